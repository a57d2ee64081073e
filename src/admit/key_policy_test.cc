#include "admit/key_policy.h"

#include <gtest/gtest.h>

namespace zerohop::admit {
namespace {

wire::RequestHead head(std::vector<wire::Header> headers) {
    wire::RequestHead h;
    h.method = "POST";
    h.target = "/v1/messages";
    h.headers = std::move(headers);
    return h;
}

TEST(KeyPolicy, NamesThePrincipalFromEitherHeader) {
    auto keys = auth::make_static_keys(
        {{.id = "ci", .workspace = "tests", .sha256 = auth::to_hex(auth::sha256("k1"))}}, 1);
    ASSERT_TRUE(keys);
    KeyPolicy policy(*keys);
    for (const auto& headers :
         {std::vector<wire::Header>{{"x-api-key", "k1"}},
          std::vector<wire::Header>{{"authorization", "Bearer k1"}},
          std::vector<wire::Header>{{"authorization", "Bearer k1"}, {"x-api-key", "k1"}}}) {
        const auto decision = policy.decide(head(headers));
        ASSERT_TRUE(decision);
        EXPECT_EQ(decision->principal.workspace, "tests");
        EXPECT_EQ(decision->principal.key_id, "ci");
    }
    for (const auto& headers :
         {std::vector<wire::Header>{}, std::vector<wire::Header>{{"x-api-key", "k2"}},
          std::vector<wire::Header>{{"authorization", "Bearer v4.local.AAAA"}}}) {
        const auto decision = policy.decide(head(headers));
        ASSERT_FALSE(decision);
        EXPECT_EQ(decision.error().code, Code::kAuthentication);
    }
}

TEST(KeyPolicy, WithoutKeysEverybodyIsAnonymousUntilKeysCome) {
    KeyPolicy policy(*auth::make_static_keys({}, 1));
    const auto decision = policy.decide(head({}));
    ASSERT_TRUE(decision);
    EXPECT_EQ(decision->principal.key_id, "");
    EXPECT_EQ(decision->principal.workspace, "default");
    policy.replace(
        *auth::make_static_keys({{.id = "a", .sha256 = auth::to_hex(auth::sha256("k"))}}, 1));
    EXPECT_FALSE(policy.decide(head({})));
}

}  // namespace
}  // namespace zerohop::admit
