#include "sched/planner.h"

#include <gtest/gtest.h>

#include <numeric>

namespace zerohop::sched {
namespace {

constexpr Runnable kDecoding{.pending = 1, .decoding = true};

std::int32_t tokens_of(const std::vector<Share>& plan, std::uint32_t index) {
    std::int32_t sum = 0;
    for (const Share& share : plan)
        if (share.index == index) sum += share.tokens;
    return sum;
}

std::int32_t total(const std::vector<Share>& plan) {
    return std::accumulate(plan.begin(), plan.end(), 0,
                           [](std::int32_t sum, const Share& s) { return sum + s.tokens; });
}

TEST(Planner, EveryDecodingSequenceGetsItsToken) {
    Planner planner({});
    std::vector<Share> plan;
    const std::vector<Runnable> work(5, kDecoding);
    planner.plan(work, 0, plan);
    ASSERT_EQ(plan.size(), 5U);
    for (std::uint32_t i = 0; i < 5; ++i) EXPECT_EQ(tokens_of(plan, i), 1);
}

TEST(Planner, NothingToDoIsAnEmptyPlan) {
    Planner planner({});
    std::vector<Share> plan{{1, 1}};
    planner.plan({}, 0, plan);
    EXPECT_TRUE(plan.empty());
}

TEST(Planner, PrefillFitsTheTimeLeftWhileOthersDecode) {
    Planner planner({.batch_tokens = 2048, .step_ns = 100 * kNsPerMs});
    planner.observe(1, 0, 20 * kNsPerMs);      // a decode step: 20 ms
    planner.observe(0, 500, 1000 * kNsPerMs);  // prefill: 2 ms per token
    std::vector<Share> plan;
    const std::vector<Runnable> work{kDecoding, {.pending = 4000}};
    planner.plan(work, 0, plan);
    EXPECT_EQ(tokens_of(plan, 0), 1);
    EXPECT_EQ(tokens_of(plan, 1), 32);  // (100 − 20) / 2 = 40, down to the grain
}

TEST(Planner, PrefillGoesOnHoweverSlowTheStepsAre) {
    Planner planner({.batch_tokens = 2048, .step_ns = 100 * kNsPerMs});
    planner.observe(8, 0, 900 * kNsPerMs);
    std::vector<Share> plan;
    std::vector<Runnable> work(8, kDecoding);
    work.push_back({.pending = 4000});
    planner.plan(work, 0, plan);
    EXPECT_EQ(tokens_of(plan, 8), Planner::kLeastPrefill);
}

TEST(Planner, BiggerChunksWhenNobodyDecodes) {
    Planner planner(
        {.batch_tokens = 2048, .step_ns = 100 * kNsPerMs, .idle_step_ns = 400 * kNsPerMs});
    planner.observe(0, 500, 500 * kNsPerMs);
    std::vector<Share> plan;
    planner.plan(std::vector<Runnable>{{.pending = 4000}}, 0, plan);
    EXPECT_EQ(total(plan), 400);
}

TEST(Planner, NoTimeLimitMeansWholeBatches) {
    Planner planner({.batch_tokens = 256, .step_ns = 0, .idle_step_ns = 0});
    std::vector<Share> plan;
    planner.plan(std::vector<Runnable>{{.pending = 4000}, kDecoding}, 0, plan);
    EXPECT_EQ(total(plan), 256);
    EXPECT_EQ(tokens_of(plan, 1), 1);
}

TEST(Planner, ShortPromptsFirstButALongOneAges) {
    Planner planner({.batch_tokens = 64, .step_ns = 0, .idle_step_ns = 0});
    std::vector<Share> plan;
    const std::vector<Runnable> work{{.pending = 4000, .since = 0}, {.pending = 40, .since = 0}};
    planner.plan(work, 0, plan);
    EXPECT_EQ(tokens_of(plan, 1), 40);
    EXPECT_EQ(tokens_of(plan, 0), 24);
    // After 5 s the long one goes before a short one that has just come.
    const std::vector<Runnable> later{{.pending = 4000, .since = 0},
                                      {.pending = 40, .since = 5 * kNsPerSec}};
    planner.plan(later, 5 * kNsPerSec, plan);
    EXPECT_EQ(tokens_of(plan, 0), 64);
}

TEST(Planner, NeverMoreThanTheBatch) {
    Planner planner({.batch_tokens = 10, .step_ns = 0, .idle_step_ns = 0});
    std::vector<Share> plan;
    const std::vector<Runnable> work(25, kDecoding);
    std::vector<int> served(25);
    for (int step = 0; step < 5; ++step) {
        planner.plan(work, 0, plan);
        EXPECT_EQ(total(plan), 10);
        for (const Share& share : plan) ++served[share.index];
    }
    for (const int times : served) EXPECT_EQ(times, 2);  // turns, not favourites
}

TEST(Planner, LearnsCostsAndScalesToWidthsNotSeen) {
    Planner planner({});
    planner.observe(1, 0, 10 * kNsPerMs);
    EXPECT_DOUBLE_EQ(planner.decode_step_ns(1), 10e6);
    EXPECT_DOUBLE_EQ(planner.decode_step_ns(4), 40e6);  // an upper bound until measured
    planner.observe(4, 0, 18 * kNsPerMs);
    EXPECT_DOUBLE_EQ(planner.decode_step_ns(3), 18e6);
    for (int i = 0; i < 100; ++i) planner.observe(0, 100, 50 * kNsPerMs);
    EXPECT_NEAR(planner.prefill_token_ns(), 0.5e6, 1e3);
    planner.observe(0, 3, 50 * kNsPerMs);  // too few tokens to say anything
    EXPECT_NEAR(planner.prefill_token_ns(), 0.5e6, 1e3);
}

// Runs one long prefill beside a decoder on a machine whose step costs `cost(tokens)` ns.
template <class Cost>
double tokens_per_second(Planner& planner, Cost&& cost, double& longest_ms) {
    std::vector<Share> plan;
    std::int32_t pending = 8000;
    double ns = 0;
    longest_ms = 0;
    while (pending > 0) {
        const std::vector<Runnable> work{kDecoding, {.pending = pending}};
        planner.plan(work, 0, plan);
        const std::int32_t chunk = tokens_of(plan, 1);
        const double took = cost(chunk);
        planner.observe(1, chunk, static_cast<std::int64_t>(took));
        longest_ms = std::max(longest_ms, took / 1e6);
        ns += took;
        pending -= chunk;
    }
    return 8000 / (ns / 1e9);
}

TEST(Planner, SmallChunksDoNotSpiralDown) {
    // 80 ms for any chunk and 1 ms per token: at 16 tokens a fifth of what 512 would do.
    Planner planner({.batch_tokens = 2048, .step_ns = 150 * kNsPerMs});
    planner.observe(1, 0, 15 * kNsPerMs);
    planner.observe(0, 384, 464 * kNsPerMs);
    double longest = 0;
    const double rate =
        tokens_per_second(planner, [](std::int32_t n) { return (80 + n) * 1e6; }, longest);
    EXPECT_GT(rate, 350);  // 16-token chunks would reach 167
    EXPECT_LT(longest, 200);
}

TEST(Planner, LinearCostsFillTheStep) {
    Planner planner({.batch_tokens = 2048, .step_ns = 110 * kNsPerMs});
    planner.observe(1, 0, 10 * kNsPerMs);
    double longest = 0;
    const double rate =
        tokens_per_second(planner, [](std::int32_t n) { return 10e6 + n * 1e6; }, longest);
    EXPECT_GT(rate, 800);
    EXPECT_LT(longest, 130);
}

TEST(Planner, RecoversFromASlowSpell) {
    Planner planner({.batch_tokens = 2048, .step_ns = 110 * kNsPerMs});
    planner.observe(1, 0, 10 * kNsPerMs);
    double longest = 0;
    tokens_per_second(planner, [](std::int32_t n) { return 20 * (10e6 + n * 1e6); }, longest);
    const double rate =
        tokens_per_second(planner, [](std::int32_t n) { return 10e6 + n * 1e6; }, longest);
    EXPECT_GT(rate, 700);
}

}  // namespace
}  // namespace zerohop::sched
