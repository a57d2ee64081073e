#include "admit/quota.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "admit/length_learner.h"
#include "admit/soft_kv.h"

namespace zerohop::admit {
namespace {

constexpr MonoNs kStart = 5 * kNsPerSec;
constexpr MonoNs kMinute = 60 * kNsPerSec;

Limits rpm(std::int64_t n) { return {.requests = n}; }

std::int64_t admitted_at(const QuotaCharge::Groups& groups, MonoNs now) {
    std::int64_t n = 0;
    while (!QuotaCharge::charge(groups, {.requests = 1}, {}, now)) ++n;
    return n;
}

TEST(Quota, AdmitsBurstAndThenExactlyTheRate) {
    for (const std::int64_t limit : {1, 7, 60, 599, 1'000'003, 999'999'999}) {
        QuotaGroup group("key", "k", {.requests = limit}, {.requests = 100});
        const QuotaCharge::Groups groups = {nullptr, &group, nullptr};
        EXPECT_EQ(admitted_at(groups, kStart), 100) << limit;
        // Odd steps, so that no division comes out even.
        MonoNs now = kStart;
        std::int64_t total = 0;
        for (int step = 1; step <= 50; ++step) {
            now += 7'654'321 / (limit > 1'000'000 ? 2000 : 1);
            total += admitted_at(groups, now);
            __extension__ const __int128 earned = static_cast<__int128>(now - kStart) * limit;
            EXPECT_EQ(total, static_cast<std::int64_t>(earned / kMinute)) << limit << " " << step;
        }
    }
}

// 10,000 parallel requests against one key and its workspace, with a clock that is stepped between
// waves: admitted = burst + ⌊Δt · rate⌋, no more and no less.
TEST(Quota, ExactUnderConcurrency) {
    QuotaGroup workspace("workspace", "w", rpm(100'000'000));
    QuotaGroup key("key", "k", {.requests = 613}, {.requests = 250});
    const QuotaCharge::Groups groups = {&workspace, &key, nullptr};
    std::atomic<MonoNs> clock{kStart};
    std::atomic<std::int64_t> admitted{0};
    constexpr int kThreads = 8, kWaves = 5, kPerThread = 250;  // 8 · 5 · 250 = 10,000
    for (int wave = 0; wave < kWaves; ++wave) {
        std::vector<std::thread> threads;
        for (int t = 0; t < kThreads; ++t)
            threads.emplace_back([&] {
                for (int i = 0; i < kPerThread; ++i)
                    if (!QuotaCharge::charge(groups, {.requests = 1}, {},
                                             clock.load(std::memory_order_relaxed)))
                        admitted.fetch_add(1, std::memory_order_relaxed);
            });
        for (std::thread& t : threads) t.join();
        const MonoNs elapsed = clock - kStart;
        EXPECT_EQ(admitted, 250 + elapsed * 613 / kMinute) << wave;
        clock += 3'456'789'012;
    }
}

TEST(Quota, BurstDefaultsToTheLimit) {
    QuotaGroup group("key", "k", rpm(42));
    EXPECT_EQ(admitted_at({nullptr, &group, nullptr}, kStart), 42);
}

TEST(Quota, AllOrNothingOverGroups) {
    QuotaGroup workspace("workspace", "w", rpm(5)), key("key", "k", rpm(100));
    const QuotaCharge::Groups groups = {&workspace, &key, nullptr};
    EXPECT_EQ(admitted_at(groups, kStart), 5);
    // The refused ones cost the key nothing.
    EXPECT_EQ(QuotaCharge::states({nullptr, &key, nullptr}, kStart)[0].remaining, 95);
    const auto refusal = QuotaCharge::charge(groups, {.requests = 1}, {}, kStart);
    ASSERT_TRUE(refusal);
    EXPECT_EQ(refusal->group, &workspace);
    EXPECT_EQ(refusal->limit, 5);
    EXPECT_EQ(refusal->retry_in_ns, kMinute / 5);
    EXPECT_TRUE(QuotaCharge::charge(groups, {.requests = 1}, {}, kStart + kMinute / 5 - 1));
    EXPECT_FALSE(QuotaCharge::charge(groups, {.requests = 1}, {}, kStart + kMinute / 5));
}

TEST(Quota, ProbeIsNotCharged) {
    QuotaGroup key("key", "k", {.requests = 10, .input_tokens = 100});
    const QuotaCharge::Groups groups = {nullptr, &key, nullptr};
    const Cost probe{.requests = 0, .input_tokens = 1, .output_tokens = 1};
    EXPECT_FALSE(QuotaCharge::charge(groups, {.requests = 1}, probe, kStart));
    EXPECT_EQ(QuotaCharge::states(groups, kStart)[1].remaining, 100);
    EXPECT_FALSE(QuotaCharge::charge(groups, {.input_tokens = 100}, {}, kStart));
    const auto refusal = QuotaCharge::charge(groups, {.requests = 1}, probe, kStart);
    ASSERT_TRUE(refusal);
    EXPECT_EQ(refusal->quota, Quota::kInputTokens);
}

TEST(Quota, SettlingGivesBackAndMayOwe) {
    QuotaGroup key("key", "k", {.output_tokens = 1000});
    const QuotaCharge::Groups groups = {nullptr, &key, nullptr};
    const auto remaining = [&](MonoNs now) {
        return QuotaCharge::states(groups, now)[2].remaining;
    };
    EXPECT_FALSE(QuotaCharge::charge(groups, {.output_tokens = 600}, {}, kStart));
    QuotaCharge::adjust(groups, {.output_tokens = -500}, kStart);
    EXPECT_EQ(remaining(kStart), 900);
    QuotaCharge::adjust(groups, {.output_tokens = -5000}, kStart);
    EXPECT_EQ(remaining(kStart), 1000);  // never beyond full
    QuotaCharge::adjust(groups, {.output_tokens = 1500}, kStart);
    EXPECT_EQ(remaining(kStart), 0);
    // 500 owed: half a minute to pay back, then a thousandth of one for the next token.
    EXPECT_TRUE(QuotaCharge::charge(groups, {.output_tokens = 1}, {}, kStart + kMinute / 2));
    EXPECT_FALSE(QuotaCharge::charge(groups, {.output_tokens = 1}, {},
                                     kStart + kMinute / 2 + kMinute / 1000));
}

TEST(Quota, WhatCanNeverFitSaysSo) {
    QuotaGroup key("key", "k", {.input_tokens = 1000});
    const auto refusal =
        QuotaCharge::charge({nullptr, &key, nullptr}, {.input_tokens = 1001}, {}, kStart);
    ASSERT_TRUE(refusal);
    EXPECT_EQ(refusal->retry_in_ns, -1);
}

TEST(Quota, ClockThatStepsBackStandsStill) {
    QuotaGroup key("key", "k", rpm(60));
    const QuotaCharge::Groups groups = {nullptr, &key, nullptr};
    EXPECT_EQ(admitted_at(groups, kStart), 60);
    EXPECT_EQ(admitted_at(groups, kStart - 3 * kNsPerSec), 0);
    EXPECT_EQ(admitted_at(groups, kStart), 0);
    EXPECT_EQ(admitted_at(groups, kStart + 2 * kNsPerSec), 2);
}

TEST(Quota, ChangedLimitsKeepWhatWasUsed) {
    QuotaGroup key("key", "k", rpm(100));
    const QuotaCharge::Groups groups = {nullptr, &key, nullptr};
    for (int i = 0; i < 60; ++i) (void)QuotaCharge::charge(groups, {.requests = 1}, {}, kStart);
    key.set_limits(rpm(80));
    EXPECT_EQ(QuotaCharge::states(groups, kStart)[0].remaining, 20);
    key.set_limits(rpm(0));
    EXPECT_EQ(QuotaCharge::states(groups, kStart)[0].limit, 0);
    EXPECT_FALSE(QuotaCharge::charge(groups, {.requests = 1'000'000}, {}, kStart));
}

// Also while requests come that no limit holds up.
TEST(Quota, WhatWasUsedIsEarnedBackWhileThereIsNoLimit) {
    QuotaGroup key("key", "k", rpm(5));
    const QuotaCharge::Groups groups = {nullptr, &key, nullptr};
    EXPECT_EQ(admitted_at(groups, kStart), 5);
    key.set_limits(rpm(0));
    for (int s = 1; s <= 26; ++s)
        EXPECT_FALSE(QuotaCharge::charge(groups, {.requests = 1}, {}, kStart + s * kNsPerSec));
    key.set_limits(rpm(5));
    EXPECT_EQ(admitted_at(groups, kStart + 26 * kNsPerSec), 2);
}

TEST(Quota, ClassesHaveTheLimitOfRequestsEach) {
    QuotaGroup key("key", "k", {.requests = 3, .input_tokens = 1});
    const QuotaCharge::Groups groups = {nullptr, &key, nullptr};
    QuotaCharge::adjust(groups, {.input_tokens = 100}, kStart);  // owed: no matter here
    for (const Quota each : {Quota::kRequests, Quota::kCounts, Quota::kLookups}) {
        for (int i = 0; i < 3; ++i)
            EXPECT_FALSE(QuotaCharge::charge(groups, request_cost(each), {}, kStart));
        const auto refusal = QuotaCharge::charge(groups, request_cost(each), {}, kStart);
        ASSERT_TRUE(refusal);
        EXPECT_EQ(refusal->quota, each);
        QuotaCharge::adjust(groups, request_cost(each, -1), kStart);
        EXPECT_EQ(QuotaCharge::states(groups, kStart)[static_cast<std::size_t>(each)].remaining, 1);
    }
}

TEST(Quota, AGuessTakesWhatRemains) {
    QuotaGroup workspace("workspace", "w", {.output_tokens = 1000}),
        key("key", "k", {.output_tokens = 200});
    const QuotaCharge::Groups groups = {&workspace, &key, nullptr};
    Cost cost{.output_tokens = 256};
    EXPECT_FALSE(QuotaCharge::charge_what_remains(groups, cost, kStart));
    EXPECT_EQ(cost.output_tokens, 200);
    cost.output_tokens = 256;
    const auto refusal = QuotaCharge::charge_what_remains(groups, cost, kStart);
    ASSERT_TRUE(refusal);
    EXPECT_EQ(refusal->retry_in_ns, kMinute / 200);
    QuotaCharge::adjust(groups, {.output_tokens = -195}, kStart);
    cost.output_tokens = 100;
    EXPECT_FALSE(QuotaCharge::charge_what_remains(groups, cost, kStart));
    EXPECT_EQ(cost.output_tokens, 100);
    cost.output_tokens = 0;
    EXPECT_FALSE(QuotaCharge::charge_what_remains(groups, cost, kStart));
    EXPECT_EQ(cost.output_tokens, 0);
}

TEST(Quota, StatesShowTheTightest) {
    QuotaGroup workspace("workspace", "w", rpm(10)), key("key", "k", rpm(100)),
        token("token", "t", {});
    const QuotaStates states = QuotaCharge::states({&workspace, &key, &token}, kStart);
    EXPECT_EQ(states[0].limit, 10);
    EXPECT_EQ(states[0].remaining, 10);
    EXPECT_EQ(states[1].limit, 0);
}

TEST(LengthLearner, LearnsFromAFewAndFollowsChange) {
    LengthLearner learner;
    EXPECT_EQ(learner.estimate(), LengthLearner::kPrior);
    for (int i = 0; i < 4; ++i) {
        EXPECT_FALSE(learner.learned());
        learner.observe(20);
    }
    EXPECT_TRUE(learner.learned());
    EXPECT_LE(learner.estimate(), 25);
    for (int i = 0; i < 10; ++i) learner.observe(20);
    EXPECT_GE(learner.estimate(), 20);
    EXPECT_LE(learner.estimate(), 25);
    for (int i = 0; i < 60; ++i) learner.observe(3000);
    EXPECT_GE(learner.estimate(), 3000);
    EXPECT_LE(learner.estimate(), 3750);
    for (int i = 0; i < 200; ++i) learner.observe(i % 10 == 0 ? 4000 : 10);
    EXPECT_LE(learner.estimate(), 12);  // one in ten is long: the 80 % quantile is not
    for (const int odd : {-5, 0, 1, INT32_MAX}) learner.observe(odd);
    EXPECT_GE(learner.estimate(), 0);
}

TEST(StructureLengths, TheFirstKeyWithEnoughAnswersCounts) {
    StructureLengths lengths;
    const std::array<StructureKey, 3> extraction = {
        StructureKey{.lo = 1, .hi = 1}, {.lo = 2, .hi = 1}, {.lo = 3, .hi = 1}};
    const std::array<StructureKey, 3> other = {
        StructureKey{.lo = 9, .hi = 1}, {.lo = 8, .hi = 1}, {.lo = 3, .hi = 1}};
    EXPECT_FALSE(lengths.estimate(extraction));
    for (int i = 0; i < 3; ++i) lengths.observe(extraction, 40);
    EXPECT_FALSE(lengths.estimate(extraction));  // it would be the prior's
    for (int i = 0; i < 20; ++i) lengths.observe(extraction, 40);
    EXPECT_GE(*lengths.estimate(extraction), 40);
    EXPECT_LE(*lengths.estimate(extraction), 50);
    EXPECT_EQ(lengths.estimate(other), lengths.estimate(extraction));  // by the system prompt
    for (int i = 0; i < 20; ++i) lengths.observe(other, 900);
    EXPECT_GE(*lengths.estimate(other), 900);
    EXPECT_LE(*lengths.estimate(extraction), 50);
    EXPECT_FALSE(lengths.estimate(std::array<StructureKey, 3>{}));
    for (std::uint64_t i = 0; i < 3 * StructureLengths::kMost; ++i)
        lengths.observe(std::array<StructureKey, 3>{StructureKey{.lo = 100 + i, .hi = 1}}, 5);
    EXPECT_FALSE(lengths.estimate(extraction));  // others came since
}

TEST(LengthLearner, EstimateCoversEveryLength) {
    for (std::int32_t n = 1; n < 1 << 20; n += 1 + n / 7) {
        LengthLearner learner;
        for (int i = 0; i < 100; ++i) learner.observe(n);
        ASSERT_GE(learner.estimate(), n);
        ASSERT_LE(learner.estimate(), n + n / 4 + 1);
    }
}

TEST(LengthLearner, ManyObservationsStayFinite) {
    LengthLearner learner;
    for (int i = 0; i < 20'000; ++i) learner.observe(100);
    EXPECT_GE(learner.estimate(), 100);
    EXPECT_LE(learner.estimate(), 125);
}

class SoftKv : public ::testing::Test {
  protected:
    bool reserve(SoftHold& hold, std::int64_t tokens, MonoNs now) {
        return book_.reserve(hold,
                             {.tokens = tokens,
                              .workspace_bound = 1000,
                              .key_bound = 600,
                              .key_sum = &key_,
                              .model_sum = &model_},
                             now);
    }
    SoftKvBook book_;
    std::atomic<std::int64_t> key_{0}, model_{0};
};

TEST_F(SoftKv, HoldsCountUntilReleased) {
    {
        SoftHold a, b, c;
        EXPECT_TRUE(reserve(a, 300, kStart));
        EXPECT_TRUE(reserve(b, 300, kStart));
        EXPECT_FALSE(reserve(c, 1, kStart));  // the key's bound
        EXPECT_EQ(model_, 600);
        a.release();
        a.release();
        EXPECT_FALSE(a.held());
        EXPECT_TRUE(b.held());
        EXPECT_EQ(model_, 300);
        EXPECT_TRUE(reserve(c, 300, kStart));
    }
    EXPECT_EQ(key_, 0);
    EXPECT_EQ(model_, 0);
    EXPECT_EQ(book_.sum_approx(), 0);
}

TEST_F(SoftKv, WorkspaceBound) {
    std::atomic<std::int64_t> other_key{0};
    SoftHold a, b;
    EXPECT_TRUE(reserve(a, 600, kStart));
    EXPECT_FALSE(book_.reserve(b,
                               {.tokens = 401,
                                .workspace_bound = 1000,
                                .key_bound = 600,
                                .key_sum = &other_key,
                                .model_sum = &model_},
                               kStart));
}

TEST_F(SoftKv, LapseWithoutBodyBytes) {
    SoftHold idle, busy;
    EXPECT_TRUE(reserve(idle, 100, kStart));
    EXPECT_TRUE(reserve(busy, 100, kStart));
    busy.touch(kStart + kNsPerSec);
    book_.sweep(kStart + kSoftLapseNs - 1);
    EXPECT_TRUE(idle.held());
    book_.sweep(kStart + kSoftLapseNs);
    EXPECT_FALSE(idle.held());
    EXPECT_TRUE(busy.held());
    EXPECT_EQ(model_, 100);
    idle.touch(kStart + 3 * kNsPerSec);  // too late: stays lapsed; and sweeps the other one
    EXPECT_FALSE(idle.held());
    EXPECT_FALSE(busy.held());
    EXPECT_EQ(model_, 0);
}

TEST_F(SoftKv, ManyThreads) {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
        threads.emplace_back([&] {
            for (int i = 0; i < 2000; ++i) {
                SoftHold hold;
                reserve(hold, 100, kStart + i);
                hold.touch(kStart + i + 200 * kNsPerMs);
            }
        });
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(key_, 0);
    EXPECT_EQ(model_, 0);
    EXPECT_EQ(book_.sum_approx(), 0);
}

}  // namespace
}  // namespace zerohop::admit
