// The official vectors of PASETO version 4, purpose local (paseto-standard/test-vectors, v4.json).
#include "auth/paseto.h"

#include <gtest/gtest.h>

namespace zerohop::auth {
namespace {

constexpr std::string_view kKey =
    "707172737475767778797a7b7c7d7e7f808182838485868788898a8b8c8d8e8f";
constexpr std::string_view kZeroNonce =
    "0000000000000000000000000000000000000000000000000000000000000000";
constexpr std::string_view kNonce =
    "df654812bac492663825520ba2f6e67cf5ca5bdc13d4e7507a98cc4c2fcc3ad8";
constexpr std::string_view kSecretMessage =
    R"({"data":"this is a secret message","exp":"2022-01-01T00:00:00+00:00"})";
constexpr std::string_view kHiddenMessage =
    R"({"data":"this is a hidden message","exp":"2022-01-01T00:00:00+00:00"})";
constexpr std::string_view kKid = R"({"kid":"zVhMiPBP9fRf2snEcT7gFTioeA9COcNy9DfgL1W60haN"})";

struct Vector {
    std::string_view name, nonce, message, footer, implicit, token;
};

constexpr Vector kVectors[] = {
    {"4-E-1", kZeroNonce, kSecretMessage, "", "",
     "v4.local.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAQAr68PS4AXe7If_"
     "ZgesdkUMvSwscFlAl1pk5HC0e8k"
     "ApeaqMfGo_7OpBnwJOAbY9V7WU6abu74MmcUE8YWAiaArVI8XJ5hOb_"
     "4v9RmDkneN0S92dx0OW4pgy7omxgf3S8c3LlQg"},
    {"4-E-2", kZeroNonce, kHiddenMessage, "", "",
     "v4.local.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAQAr68PS4AXe7If_"
     "ZgesdkUMvS2csCgglvpk5HC0e8k"
     "ApeaqMfGo_7OpBnwJOAbY9V7WU6abu74MmcUE8YWAiaArVI8XIemu9chy3WVKvRBfg6t8wwYHK0ArLxxfZP73W_"
     "vfwt5A"},
    {"4-E-3", kNonce, kSecretMessage, "", "",
     "v4.local.32VIErrEkmY4JVILovbmfPXKW9wT1OdQepjMTC_MOtjA4kiqw7_tcaOM5GNEcnTxl60WkwMsYXw6FSNb_"
     "UdJP"
     "Xjpzm0KW9ojM5f4O2mRvE2IcweP-PRdoHjd5-RHCiExR1IK6t6-"
     "tyebyWG6Ov7kKvBdkrrAJ837lKP3iDag2hzUPHuMKA"},
    {"4-E-4", kNonce, kHiddenMessage, "", "",
     "v4.local.32VIErrEkmY4JVILovbmfPXKW9wT1OdQepjMTC_MOtjA4kiqw7_tcaOM5GNEcnTxl60WiA8rd3wgFSNb_"
     "UdJP"
     "Xjpzm0KW9ojM5f4O2mRvE2IcweP-PRdoHjd5-RHCiExR1IK6t4gt6TiLm55vIH8c_"
     "lGxxZpE3AWlH4WTR0v45nsWoU3gQ"},
    {"4-E-5", kNonce, kSecretMessage, kKid, "",
     "v4.local.32VIErrEkmY4JVILovbmfPXKW9wT1OdQepjMTC_MOtjA4kiqw7_tcaOM5GNEcnTxl60WkwMsYXw6FSNb_"
     "UdJP"
     "Xjpzm0KW9ojM5f4O2mRvE2IcweP-PRdoHjd5-RHCiExR1IK6t4x-RMNXtQNbz7FvFZ_G-lFpk5RG3EOrwDL6CgDqcerSQ"
     ".eyJraWQiOiJ6VmhNaVBCUDlmUmYyc25FY1Q3Z0ZUaW9lQTlDT2NOeTlEZmdMMVc2MGhhTiJ9"},
    {"4-E-6", kNonce, kHiddenMessage, kKid, "",
     "v4.local.32VIErrEkmY4JVILovbmfPXKW9wT1OdQepjMTC_MOtjA4kiqw7_tcaOM5GNEcnTxl60WiA8rd3wgFSNb_"
     "UdJP"
     "Xjpzm0KW9ojM5f4O2mRvE2IcweP-PRdoHjd5-RHCiExR1IK6t6pWSA5HX2wjb3P-xLQg5K5feUCX4P2fpVK3ZLWFbMSxQ"
     ".eyJraWQiOiJ6VmhNaVBCUDlmUmYyc25FY1Q3Z0ZUaW9lQTlDT2NOeTlEZmdMMVc2MGhhTiJ9"},
    {"4-E-7", kNonce, kSecretMessage, kKid, R"({"test-vector":"4-E-7"})",
     "v4.local.32VIErrEkmY4JVILovbmfPXKW9wT1OdQepjMTC_MOtjA4kiqw7_tcaOM5GNEcnTxl60WkwMsYXw6FSNb_"
     "UdJP"
     "Xjpzm0KW9ojM5f4O2mRvE2IcweP-PRdoHjd5-RHCiExR1IK6t40KCCWLA7GYL9KFHzKlwY9_RnIfRrMQpueydLEAZGGcA"
     ".eyJraWQiOiJ6VmhNaVBCUDlmUmYyc25FY1Q3Z0ZUaW9lQTlDT2NOeTlEZmdMMVc2MGhhTiJ9"},
    {"4-E-8", kNonce, kHiddenMessage, kKid, R"({"test-vector":"4-E-8"})",
     "v4.local.32VIErrEkmY4JVILovbmfPXKW9wT1OdQepjMTC_MOtjA4kiqw7_tcaOM5GNEcnTxl60WiA8rd3wgFSNb_"
     "UdJP"
     "Xjpzm0KW9ojM5f4O2mRvE2IcweP-PRdoHjd5-RHCiExR1IK6t5uvqQbMGlLLNYBc7A6_x7oqnpUK5WLvj24eE4DVPDZjw"
     ".eyJraWQiOiJ6VmhNaVBCUDlmUmYyc25FY1Q3Z0ZUaW9lQTlDT2NOeTlEZmdMMVc2MGhhTiJ9"},
    {"4-E-9", kNonce, kHiddenMessage, "arbitrary-string-that-isn't-json",
     R"({"test-vector":"4-E-9"})",
     "v4.local.32VIErrEkmY4JVILovbmfPXKW9wT1OdQepjMTC_MOtjA4kiqw7_tcaOM5GNEcnTxl60WiA8rd3wgFSNb_"
     "UdJP"
     "Xjpzm0KW9ojM5f4O2mRvE2IcweP-PRdoHjd5-RHCiExR1IK6t6tybdlmnMwcDMw0YxA_gFSE_IUWl78aMtOepFYSWYfQA"
     ".YXJiaXRyYXJ5LXN0cmluZy10aGF0LWlzbid0LWpzb24"},
};

std::string_view view(const std::uint8_t* bytes, std::size_t size) {
    return {reinterpret_cast<const char*>(bytes), size};
}

// Splits, decodes the footer from the token itself, opens.
std::optional<std::string> open(const SecretBytes& key, std::string_view token,
                                std::string_view implicit) {
    const auto parts = split_paseto(token);
    if (!parts) return {};
    std::uint8_t footer[256], out[4096];
    const auto footer_size = decode_base64url(parts->footer, footer);
    if (!footer_size) return {};
    const auto size = open_paseto(key, *parts, view(footer, *footer_size), implicit, out);
    if (!size) return {};
    return std::string(view(out, *size));
}

TEST(Paseto, OfficialVectorsSealAndOpen) {
    const SecretBytes key = *parse_hex_digest(kKey);
    for (const Vector& v : kVectors) {
        const Digest nonce = *parse_hex_digest(v.nonce);
        EXPECT_EQ(seal_paseto(key, v.message, v.footer, v.implicit, nonce), v.token) << v.name;
        EXPECT_EQ(open(key, v.token, v.implicit), v.message) << v.name;
    }
}

// 4-F-1 … 4-F-3: a v4.local token under a v4.public key's name, a v4.public and a v3.local token.
TEST(Paseto, OfficialFailingVectorsFail) {
    const SecretBytes key = *parse_hex_digest(kKey);
    constexpr std::string_view kBad[][2] = {
        {"v4.local.vngXfCISbnKgiP6VWGuOSlYrFYU300fy9ijW33rznDYgxHNPwWluAY2Bgb0z54CUs6aYYkIJ-"
         "bOOOmJHPuX_"
         "34Agt_IPlNdGDpRdGNnBz2MpWJvB3cttheEc1uyCEYltj7wBQQYX."
         "YXJiaXRyYXJ5LXN0cmluZy10aGF0LWlzbid0LW"
         "pzb24",
         R"({"test-vector":"4-F-1"})"},
        {"v4.public.eyJpbnZhbGlkIjoidGhpcyBzaG91bGQgbmV2ZXIgZGVjb2RlIn22Sp4gjCaUw0c7EH84ZSm_jN_"
         "Qr41MrgL"
         "Nu5LIBCzUr1pn3Z-Wukg9h3ceplWigpoHaTLcwxj0NsI1vjTh67YB."
         "eyJraWQiOiJ6VmhNaVBCUDlmUmYyc25FY1Q3"
         "Z0ZUaW9lQTlDT2NOeTlEZmdMMVc2MGhhTiJ9",
         R"({"test-vector":"4-F-2"})"},
        {"v3.local.23e_2PiqpQBPvRFKzB0zHhjmxK3sKo2grFZRRLM-"
         "U7L0a8uHxuF9RlVz3Ic6WmdUUWTxCaYycwWV1yM8gKbZ"
         "B2JhygDMKvHQ7eBf8GtF0r3K0Q_gF1PXOxcOgztak1eD1dPe9rLVMSgR0nHJXeIGYVuVrVoLWQ."
         "YXJiaXRyYXJ5LXN0"
         "cmluZy10aGF0LWlzbid0LWpzb24",
         R"({"test-vector":"4-F-3"})"},
    };
    for (const auto& [token, implicit] : kBad) EXPECT_FALSE(open(key, token, implicit)) << implicit;
}

TEST(Paseto, AnyChangedCharacterFails) {
    const SecretBytes key = *parse_hex_digest(kKey);
    const std::string token(kVectors[6].token);
    for (std::size_t i = 0; i < token.size(); ++i) {
        std::string forged = token;
        forged[i] = forged[i] == 'A' ? 'B' : 'A';
        EXPECT_FALSE(open(key, forged, kVectors[6].implicit)) << i;
    }
    for (std::size_t n = 0; n < token.size(); ++n)
        EXPECT_FALSE(open(key, token.substr(0, n), kVectors[6].implicit)) << n;
    EXPECT_FALSE(open(key, token + "A", kVectors[6].implicit));
    EXPECT_FALSE(open(key, token + ".", kVectors[6].implicit));
    EXPECT_FALSE(open(key, token, "another assertion"));
    SecretBytes other = key;
    other[31] ^= 1;
    EXPECT_FALSE(open(other, token, kVectors[6].implicit));
}

TEST(Paseto, EmptyMessageIsAMessage) {
    const SecretBytes key{};
    const Digest nonce{};
    EXPECT_EQ(open(key, seal_paseto(key, "", "", "", nonce), ""), "");
}

}  // namespace
}  // namespace zerohop::auth
