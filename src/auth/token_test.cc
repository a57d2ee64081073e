#include "auth/token.h"

#include <gtest/gtest.h>

#include "auth/credential.h"
#include "auth/key_file.h"
#include "auth/paseto.h"

namespace zerohop::auth {
namespace {

constexpr WallNs kNow = 1'800'000'000 * kNsPerSec;

class TokenTest : public ::testing::Test {
  protected:
    void SetUp() override {
        random_bytes(content_.hash_key);
        key_ = create_key(content_, {.workspace = "w"}, kNow)->record;
    }
    TokenClaims claims(WallNs now = kNow) {
        return {.token_id = random_id(10),
                .key_id = key_.id,
                .generation = key_.generation,
                .issued_ns = now,
                .expires_ns = now + kTokenLifetimeS * kNsPerSec,
                .models = {"m1", "m \"2\" ü"},
                .region = "here",
                .quota = {.requests = 7, .input_tokens = 0, .output_tokens = 9}};
    }
    std::string mint(const TokenClaims& c) { return *mint_token(KeySnapshot(content_), c); }
    std::string why(const KeySnapshot& keys, std::string_view token, WallNs now) {
        const auto got = verifier_.check(keys, token, now);
        return got ? "good" : got.error().detail;
    }

    KeySnapshot::Content content_;
    KeyRecord key_;
    TokenVerifier verifier_;
};

TEST_F(TokenTest, ClaimsComeBackWhole) {
    const TokenClaims c = claims();
    const std::string token = mint(c);
    const KeySnapshot keys(content_);
    for (int round = 0; round < 3; ++round) {
        const auto got = verifier_.check(keys, token, kNow + round);
        ASSERT_TRUE(got);
        EXPECT_EQ(got->first_sight, round == 0);
        EXPECT_EQ(got->key, keys.find_by_id(key_.id));
        EXPECT_EQ(got->claims->token_id, c.token_id);
        EXPECT_EQ(got->claims->models, c.models);
        EXPECT_EQ(got->claims->region, c.region);
        EXPECT_EQ(got->claims->quota, c.quota);
        EXPECT_EQ(got->claims->issued_ns, c.issued_ns);
        EXPECT_EQ(got->claims->expires_ns, c.expires_ns);
    }
}

TEST_F(TokenTest, ExpiryIsCheckedEveryTime) {
    const std::string token = mint(claims());
    const KeySnapshot keys(content_);
    const WallNs end = kNow + kTokenLifetimeS * kNsPerSec;
    EXPECT_EQ(why(keys, token, end - 1), "good");
    EXPECT_EQ(why(keys, token, end), expired_token().detail);
    TokenVerifier fresh;
    const auto got = fresh.check(keys, token, end);
    ASSERT_FALSE(got);
    EXPECT_EQ(got.error().detail, expired_token().detail);
    EXPECT_EQ(got.error().retry_after_ms, 1);
}

TEST_F(TokenTest, RevokingOrRotatingTheKeyEndsItsTokens) {
    const std::string token = mint(claims());
    EXPECT_EQ(why(KeySnapshot(content_), token, kNow), "good");
    KeySnapshot::Content revoked = content_;
    ASSERT_TRUE(revoke_key(revoked, key_.id, kNow));
    EXPECT_EQ(why(KeySnapshot(revoked), token, kNow), invalid_token().detail);
    KeySnapshot::Content rotated = content_;
    ASSERT_TRUE(rotate_key_secret(rotated, key_.id, 0, kNow));
    EXPECT_EQ(why(KeySnapshot(rotated), token, kNow), invalid_token().detail);
    KeySnapshot::Content overlapping = content_;
    ASSERT_TRUE(rotate_key_secret(overlapping, key_.id, 60, kNow));
    EXPECT_EQ(why(KeySnapshot(overlapping), token, kNow), "good");
    KeySnapshot::Content removed = content_;
    removed.keys.clear();
    EXPECT_EQ(why(KeySnapshot(removed), token, kNow), invalid_token().detail);
    EXPECT_EQ(why(KeySnapshot(content_), token, kNow), "good");
}

TEST_F(TokenTest, TokensOutliveARotationOfTheirSecretUntilTheyExpire) {
    const std::string token = mint(claims());
    rotate_token_secret(content_, kTokenOverlapS, kNow);
    const KeySnapshot keys(content_);
    EXPECT_EQ(why(keys, token, kNow + 299 * kNsPerSec), "good");
    EXPECT_EQ(why(keys, mint(claims()), kNow), "good");
    rotate_token_secret(content_, 0, kNow);  // the secret leaked: everything ends
    EXPECT_EQ(why(KeySnapshot(content_), token, kNow), invalid_token().detail);
}

TEST_F(TokenTest, CachedTokenEndsWithItsSecretsOverlap) {
    const std::string token = mint(claims());
    rotate_token_secret(content_, 60, kNow);
    const KeySnapshot keys(content_);
    EXPECT_EQ(why(keys, token, kNow + 59 * kNsPerSec), "good");
    EXPECT_NE(why(keys, token, kNow + 60 * kNsPerSec), "good");
}

TEST_F(TokenTest, ForgedTruncatedAndFlippedAreInvalid) {
    const std::string token = mint(claims());
    const KeySnapshot keys(content_);
    ASSERT_EQ(why(keys, token, kNow), "good");  // in the cache while the forgeries are tried
    for (std::size_t n = 0; n < token.size(); ++n)
        ASSERT_EQ(why(keys, std::string_view(token).substr(0, n), kNow), invalid_token().detail);
    for (std::size_t i = 0; i < token.size(); ++i)
        for (int bit = 0; bit < 8; ++bit) {
            std::string forged = token;
            forged[i] = static_cast<char>(forged[i] ^ (1 << bit));
            ASSERT_EQ(why(keys, forged, kNow), invalid_token().detail) << i << " " << bit;
        }
    EXPECT_EQ(why(keys, token + "A", kNow), invalid_token().detail);
    EXPECT_EQ(why(keys, "", kNow), invalid_token().detail);
    EXPECT_EQ(why(keys, std::string(kMaxCredential + 1, 'A'), kNow), invalid_token().detail);
    EXPECT_EQ(why(keys, "v4.local.", kNow), invalid_token().detail);
    EXPECT_EQ(why(keys, "v4.local." + std::string(200, 'A') + ".AAAA", kNow),
              invalid_token().detail);
}

TEST_F(TokenTest, OtherServersSecretsAndOtherUsesAreInvalid) {
    KeySnapshot::Content other = content_;
    random_bytes(other.token_secrets[0].bytes);  // same id, another secret
    EXPECT_EQ(why(KeySnapshot(other), mint(claims()), kNow), invalid_token().detail);
    other.token_secrets[0].id = "zzzzzzzz";
    EXPECT_EQ(why(KeySnapshot(other), mint(claims()), kNow), invalid_token().detail);
    Digest nonce;
    random_bytes(nonce);
    const TokenSecret& secret = content_.token_secrets[0];
    const std::string elsewhere = seal_paseto(
        secret.bytes, "{}", R"({"kid":")" + secret.id + R"("})", "another program", nonce);
    EXPECT_EQ(why(KeySnapshot(content_), elsewhere, kNow), invalid_token().detail);
}

TEST_F(TokenTest, GenuineButSenselessClaimsAreInvalid) {
    const KeySnapshot keys(content_);
    const TokenSecret& secret = content_.token_secrets[0];
    for (
        const char* message :
        {"", "{}", "[]", "null", "{\"jti\":1}", "not json",
         R"({"jti":"a","sub":"b","gen":-1,"iat":"2027-01-15T08:00:00Z","exp":"2027-01-15T08:05:00Z","model_scope":[],"region_hint":"","rate_limit_quota":{}})",
         R"({"jti":"a","sub":"b","gen":1,"iat":"yesterday","exp":"2027-01-15T08:05:00Z","model_scope":[],"region_hint":"","rate_limit_quota":{}})"}) {
        Digest nonce;
        random_bytes(nonce);
        const std::string token = seal_paseto(
            secret.bytes, message, R"({"kid":")" + secret.id + R"("})", "zerohop/auth/v1", nonce);
        EXPECT_EQ(why(keys, token, kNow), invalid_token().detail) << message;
    }
}

TEST_F(TokenTest, ClockStepsAndFutureTokens) {
    const KeySnapshot keys(content_);
    const std::string token = mint(claims());
    EXPECT_EQ(why(keys, token, kNow), "good");
    // Set back by less than the leeway: still good. By more: refused, and a new one is fetched.
    EXPECT_EQ(why(keys, token, kNow - kClockLeewayS * kNsPerSec), "good");
    EXPECT_EQ(why(keys, token, kNow - (kClockLeewayS + 1) * kNsPerSec), invalid_token().detail);
    EXPECT_EQ(why(keys, mint(claims(kNow + 3600 * kNsPerSec)), kNow), invalid_token().detail);
    TokenClaims immortal = claims();
    immortal.expires_ns += kNsPerSec;
    EXPECT_EQ(why(keys, mint(immortal), kNow), invalid_token().detail);
}

TEST_F(TokenTest, CacheIsBoundedAndKeepsWhatIsUsed) {
    const KeySnapshot keys(content_);
    std::vector<std::string> tokens;
    for (int i = 0; i < 3000; ++i) {
        tokens.push_back(mint(claims()));
        ASSERT_TRUE(verifier_.check(keys, tokens.back(), kNow));
    }
    std::size_t remembered = 0;
    for (const std::string& token : tokens) {
        const auto got = verifier_.check(keys, token, kNow);
        ASSERT_TRUE(got);
        remembered += got->first_sight ? 0 : 1;
    }
    EXPECT_LE(remembered, TokenVerifier::kSets * TokenVerifier::kWays);
    EXPECT_TRUE(verifier_.check(keys, tokens.back(), kNow));
    EXPECT_FALSE(verifier_.check(keys, tokens.back(), kNow)->first_sight);
}

TEST_F(TokenTest, AttachmentLivesWithTheCacheEntry) {
    const KeySnapshot keys(content_);
    const std::string token = mint(claims());
    auto first = verifier_.check(keys, token, kNow);
    ASSERT_EQ(*first->attachment, nullptr);
    *first->attachment = std::make_shared<int>(7);
    auto again = verifier_.check(keys, token, kNow);
    ASSERT_NE(*again->attachment, nullptr);
    EXPECT_EQ(*std::static_pointer_cast<int>(*again->attachment), 7);
}

TEST_F(TokenTest, TooManyModelsIsRefusedWhenMinting) {
    TokenClaims c = claims();
    for (int i = 0; i < 100; ++i)
        c.models.push_back("some-rather-long-model-name-" + std::to_string(i));
    const auto got = mint_token(KeySnapshot(content_), c);
    ASSERT_FALSE(got);
    EXPECT_EQ(got.error().code, Code::kInvalidRequest);
}

}  // namespace
}  // namespace zerohop::auth
