#include "auth/credential.h"

#include <gtest/gtest.h>

#include "auth/key_snapshot.h"

namespace zerohop::auth {
namespace {

TEST(Credential, EitherHeaderServesAndXApiKeyComesFirst) {
    const auto first = [](std::string_view key, std::string_view authorization) {
        return std::string(read_credentials(key, authorization)->first.text);
    };
    EXPECT_EQ(first("abc", ""), "abc");
    EXPECT_EQ(first("", "Bearer abc"), "abc");
    EXPECT_EQ(first("", "bearer \t abc "), "abc");
    EXPECT_EQ(first("", "BEARER abc"), "abc");
    EXPECT_EQ(first("mine", "Basic b3RoZXI="), "mine");
    EXPECT_EQ(first("  ", "Bearer abc"), "abc");
    EXPECT_EQ(first(std::string(kMaxCredential + 1, 'a'), "Bearer abc"), "abc");
    EXPECT_FALSE(read_credentials("abc", "")->first.is_token);
    EXPECT_TRUE(read_credentials("", "Bearer v4.local.AAAA")->first.is_token);
    EXPECT_TRUE(read_credentials("v4.local.AAAA", "")->first.is_token);
}

TEST(Credential, TwoThatDifferAreBothTold) {
    const auto both = read_credentials(" mine ", "Bearer v4.local.other");
    EXPECT_EQ(both->first.text, "mine");
    ASSERT_TRUE(both->second);
    EXPECT_EQ(both->second->text, "v4.local.other");
    EXPECT_TRUE(both->second->is_token);
    EXPECT_FALSE(read_credentials("mine", "Bearer mine")->second);
    EXPECT_FALSE(read_credentials("mine", "Basic b3RoZXI=")->second);
    EXPECT_FALSE(read_credentials("", "Bearer mine")->second);
}

TEST(Credential, MissingOrUnusableIs401) {
    for (const char* authorization :
         {"", " ", "Bearer", "Bearer ", "Basic abc", "Bearerabc", "abc"}) {
        const auto got = read_credentials("", authorization);
        ASSERT_FALSE(got) << authorization;
        EXPECT_EQ(got.error().code, Code::kAuthentication);
        EXPECT_FALSE(got.error().detail.empty());
    }
    EXPECT_FALSE(read_credentials(std::string(kMaxCredential + 1, 'a'), ""));
}

StaticKey key(std::string id, std::string_view secret) {
    return {.id = std::move(id), .sha256 = to_hex(sha256(secret))};
}

TEST(StaticKeys, FindsEachAndOnlyItsSecret) {
    const auto keys = make_static_keys({key("a", "secret-a"), key("b", "secret-b")}, 1);
    ASSERT_TRUE(keys);
    EXPECT_EQ((*keys)->find_by_secret("secret-a", 2)->id, "a");
    EXPECT_EQ((*keys)->find_by_secret("secret-b", 2)->id, "b");
    for (const char* wrong : {"", "secret-", "secret-a ", "secret-A", "a"})
        EXPECT_EQ((*keys)->find_by_secret(wrong, 2), nullptr) << wrong;
}

TEST(StaticKeys, NoKeysIsEmpty) {
    const auto keys = make_static_keys({}, 1);
    ASSERT_TRUE(keys);
    EXPECT_TRUE((*keys)->empty());
    EXPECT_EQ((*keys)->find_by_secret("x", 2), nullptr);
}

TEST(StaticKeys, BadEntriesAreNamed) {
    auto bad = [](std::vector<StaticKey> keys) {
        const auto got = make_static_keys(keys, 1);
        return got ? std::string() : got.error().detail;
    };
    EXPECT_EQ(bad({key("", "x")}), "auth.keys[0]: id must be 1 to 64 of [A-Za-z0-9._-]");
    EXPECT_EQ(bad({key("a", "x"), key("a", "y")}), "auth.keys[1]: id \"a\" is used twice");
    EXPECT_EQ(bad({key("a", "x"), key("b", "x")}),
              "auth.keys[1]: the key of \"b\" is listed twice");
    StaticKey short_hash = key("a", "x");
    short_hash.sha256.pop_back();
    EXPECT_NE(bad({short_hash}).find("64 hex digits"), std::string::npos);
}

// "abc" of FIPS 180-2, so that what people make with sha256sum is what is compared.
TEST(Crypto, Sha256IsTheStandardOne) {
    EXPECT_EQ(to_hex(sha256("abc")),
              "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Crypto, Base64urlRoundTripsAndIsStrict) {
    std::uint8_t bytes[64];
    random_bytes(bytes);
    for (std::size_t n = 0; n <= sizeof bytes; ++n) {
        const std::string text = base64url({bytes, n});
        std::uint8_t back[64];
        ASSERT_EQ(decode_base64url(text, back), n);
        ASSERT_TRUE(std::equal(bytes, bytes + n, back));
    }
    std::uint8_t out[8];
    for (const char* bad : {"A", "AB", "AAB", "AA==", "A+AA", "A/AA", "AA A", "AAAAA", "\xff\xff"})
        EXPECT_FALSE(decode_base64url(bad, out)) << bad;
    EXPECT_FALSE(decode_base64url("AAAAAAAAAAAAAAAA", out));  // does not fit
}

TEST(Crypto, ConstantTimeEqualityIsEquality) {
    std::string a(67, 'x');
    for (std::size_t i = 0; i < a.size(); ++i) {
        std::string b = a;
        EXPECT_TRUE(equal_in_constant_time(a, b));
        b[i] = 'y';
        EXPECT_FALSE(equal_in_constant_time(a, b)) << i;
    }
    EXPECT_FALSE(equal_in_constant_time(a, a.substr(1)));
    EXPECT_TRUE(equal_in_constant_time("", ""));
}

}  // namespace
}  // namespace zerohop::auth
