#include "kv/plans.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "kv/testing/tokens.h"

namespace zerohop::kv {
namespace {

using testing::kA;
const std::vector<PlanKey> kChain = {{kA, 1, 1}, {kA, 2, 2}, {kA, 3, 3}};

TEST(Plans, DefaultThenLearnt) {
    Plans plans({.default_output = 200});
    EXPECT_EQ(plans.expect(kChain, 0).reserve_tokens, 200U);
    EXPECT_EQ(plans.expect(kChain, 50).reserve_tokens, 50U);
    for (int i = 0; i < 5; ++i) plans.learn(kChain, 40);
    const Expectation e = plans.expect(kChain, 0);
    EXPECT_EQ(e.samples, 5U);
    EXPECT_NEAR(e.mean_tokens, 40, 0.01);
    EXPECT_GE(e.reserve_tokens, 40U);
    EXPECT_LE(e.reserve_tokens, 60U);
    EXPECT_EQ(plans.expect(kChain, 10).reserve_tokens, 10U);
}

TEST(Plans, QuantileCoversMostAndFollowsChange) {
    Plans plans({});
    std::mt19937 rng(1);
    for (int i = 0; i < 200; ++i) plans.learn(kChain, rng() % 10 == 0 ? 900 : 30);
    EXPECT_LE(plans.expect(kChain, 0).reserve_tokens, 1100U);
    for (int i = 0; i < 60; ++i) plans.learn(kChain, 500);
    EXPECT_GE(plans.expect(kChain, 0).reserve_tokens, 500U);
    EXPECT_NEAR(plans.expect(kChain, 0).mean_tokens, 500, 30);
    for (int i = 0; i < 60; ++i) plans.learn(kChain, 20);
    EXPECT_LE(plans.expect(kChain, 0).reserve_tokens, 30U);
}

TEST(Plans, FallsBackAlongTheChain) {
    Plans plans({});
    for (int i = 0; i < 5; ++i) plans.learn(kChain, 64);
    const std::vector<PlanKey> other = {{kA, 9, 9}, {kA, 8, 8}, {kA, 3, 3}};
    EXPECT_EQ(plans.expect(other, 0).samples, 5U);
    const Namespace b = derive_namespace("b", "m");
    EXPECT_EQ(plans.expect(std::vector<PlanKey>{{b, 3, 3}}, 0).samples, 0U);
}

TEST(Plans, Bounded) {
    Plans plans({.max_entries = 10});
    for (std::uint64_t k = 1; k < 1000; ++k) plans.learn(std::vector<PlanKey>{{kA, k, 0}}, 5);
    EXPECT_EQ(plans.size(), 10U);
}

TEST(Plans, ForgetsAnOwner) {
    Plans plans({});
    const Namespace user = derive_namespace("a", "m", "someone"), b = derive_namespace("b", "m");
    for (const Namespace& ns : {kA, user, b})
        for (int i = 0; i < 5; ++i) plans.learn(std::vector<PlanKey>{{ns, 3, 3}}, 64);
    plans.forget(kA.owner);
    EXPECT_EQ(plans.expect(kChain, 0).samples, 0U);
    EXPECT_EQ(plans.expect(std::vector<PlanKey>{{user, 3, 3}}, 0).samples, 0U);
    EXPECT_EQ(plans.expect(std::vector<PlanKey>{{b, 3, 3}}, 0).samples, 5U);
}

TEST(Plans, ExtremesFit) {
    Plans plans({});
    for (int i = 0; i < 5; ++i) plans.learn(kChain, 0xffffffff);
    for (int i = 0; i < 60; ++i) plans.learn(kChain, 0);
    EXPECT_EQ(plans.expect(kChain, 0).reserve_tokens, 1U);
}

}  // namespace
}  // namespace zerohop::kv
