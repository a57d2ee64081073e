#include "sched/fair_queue.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <limits>
#include <map>
#include <random>
#include <vector>

namespace zerohop::sched {
namespace {

constexpr MonoNs kBegin = 1000 * kNsPerSec;

FairItem item(std::uint64_t handle, std::string workspace, std::int64_t tokens = 100,
              Priority priority = Priority::kNormal, MonoNs arrived = kBegin, MonoNs work = 0) {
    return {.handle = handle,
            .workspace = std::move(workspace),
            .priority = priority,
            .tokens = tokens,
            .expected_work_ns = work,
            .arrived_ns = arrived};
}

std::vector<std::uint64_t> drain(FairQueue& q, MonoNs now = kBegin + kNsPerSec) {
    std::vector<std::uint64_t> order;
    while (auto i = q.pop(now)) order.push_back(i->handle);
    return order;
}

TEST(FairQueue, OneWorkspaceIsFirstComeFirstServed) {
    FairQueue q({});
    for (std::uint64_t i = 1; i <= 5; ++i)
        ASSERT_TRUE(
            q.push(item(i, "w", 100, Priority::kNormal, kBegin + static_cast<MonoNs>(i)), 0));
    EXPECT_EQ(drain(q), (std::vector<std::uint64_t>{1, 2, 3, 4, 5}));
    EXPECT_EQ(q.size(), 0U);
    EXPECT_EQ(q.tokens(), 0);
    EXPECT_EQ(q.peek(kBegin), nullptr);
}

TEST(FairQueue, HighGoesFirstWhateverItsAge) {
    FairQueue q({});
    ASSERT_TRUE(q.push(item(1, "a"), 0));
    ASSERT_TRUE(q.push(item(2, "b", 100, Priority::kLow), 0));
    ASSERT_TRUE(q.push(item(3, "a", 100, Priority::kHigh, kBegin + kNsPerSec), 0));
    EXPECT_EQ(drain(q, kBegin + kNsPerSec).front(), 3U);
}

TEST(FairQueue, HighDoesNotStarveTheRest) {
    FairQueue q({});
    ASSERT_TRUE(q.push(item(1, "a"), 0));
    for (std::uint64_t i = 2; i < 40; ++i)
        ASSERT_TRUE(q.push(item(i, "b", 100, Priority::kHigh), 0));
    std::vector<std::uint64_t> fresh = {};
    MonoNs now = kBegin + kNsPerSec;  // the normal one is not overdue yet
    for (int i = 0; i < 12; ++i) EXPECT_NE(q.pop(now)->handle, 1U);
    now = kBegin + 2 * kNsPerSec;
    EXPECT_EQ(q.pop(now)->handle, 1U);
}

TEST(FairQueue, LowCountsAHundredMillisecondsLater) {
    // Same workspace, same work: a normal one that came ≤ 100 ms after a low one goes first.
    for (const MonoNs later : {99 * kNsPerMs, 101 * kNsPerMs}) {
        FairQueue q({});
        ASSERT_TRUE(q.push(item(1, "w", 100, Priority::kLow, kBegin), 0));
        ASSERT_TRUE(q.push(item(2, "w", 100, Priority::kNormal, kBegin + later), 0));
        EXPECT_EQ(drain(q).front(), later < 100 * kNsPerMs ? 2U : 1U);
    }
}

TEST(FairQueue, YoungLowStepsBackBehindOtherWorkspacesButNeverWaitsIdle) {
    FairQueue q({});
    ASSERT_TRUE(q.push(item(1, "a", 100, Priority::kLow, kBegin), 0));
    // Nobody else: it goes at once.
    EXPECT_EQ(q.peek(kBegin)->handle, 1U);
    ASSERT_TRUE(q.push(item(2, "b", 100, Priority::kNormal, kBegin + 50 * kNsPerMs), 0));
    ASSERT_TRUE(q.push(item(3, "b", 100, Priority::kNormal, kBegin + 50 * kNsPerMs), 0));
    EXPECT_EQ(q.pop(kBegin + 60 * kNsPerMs)->handle, 2U);
    // After its 100 ms it has its turn like anybody.
    ASSERT_TRUE(q.push(item(4, "b", 100, Priority::kNormal, kBegin + 60 * kNsPerMs), 0));
    const auto rest = drain(q, kBegin + 101 * kNsPerMs);
    EXPECT_EQ(rest.size(), 3U);
    EXPECT_NE(rest.back(), 1U);
}

TEST(FairQueue, ShortWorkOvertakesByAtMostTwoSeconds) {
    FairQueue q({});
    const MonoNs minute = 60 * kNsPerSec;
    ASSERT_TRUE(q.push(item(1, "w", 100, Priority::kNormal, kBegin, minute), 0));
    ASSERT_TRUE(q.push(item(2, "w", 100, Priority::kNormal, kBegin + 1900 * kNsPerMs, 1), 0));
    ASSERT_TRUE(q.push(item(3, "w", 100, Priority::kNormal, kBegin + 2100 * kNsPerMs, 1), 0));
    EXPECT_EQ(drain(q, kBegin + minute), (std::vector<std::uint64_t>{2, 1, 3}));
}

// A with 4 requests in flight at a time beside B with 64: both get half of the tokens.
TEST(FairQueue, WorkspacesGetEqualTokensWhateverTheyQueue) {
    for (const std::size_t b_in_flight : {4, 64}) {
        FairQueue q({.max_requests = 1000});
        std::mt19937 random(7);
        std::map<std::string, std::int64_t> served;
        std::map<std::string, std::size_t> queued;
        std::uint64_t next = 1;
        MonoNs now = kBegin;
        for (int i = 0; i < 4000; ++i) {
            now += kNsPerMs;
            for (const auto& [name, want] : {std::pair<std::string, std::size_t>{"a", 4},
                                             std::pair<std::string, std::size_t>{"b", b_in_flight}})
                while (queued[name] < want) {
                    ASSERT_TRUE(q.push(item(next++, name, 50 + static_cast<int>(random() % 4000),
                                            Priority::kNormal, now),
                                       now));
                    ++queued[name];
                }
            const FairItem* shown = q.peek(now);
            ASSERT_NE(shown, nullptr);
            const std::uint64_t handle = shown->handle;
            EXPECT_EQ(q.peek(now)->handle, handle);  // looking changes nothing
            const auto got = q.pop(now);
            EXPECT_EQ(got->handle, handle);
            served[got->workspace] += got->tokens;
            --queued[got->workspace];
        }
        const double ratio = static_cast<double>(served["a"]) / static_cast<double>(served["b"]);
        EXPECT_GT(ratio, 0.97) << b_in_flight;
        EXPECT_LT(ratio, 1.03) << b_in_flight;
    }
}

TEST(FairQueue, BigRequestsAreNotStarvedBySmallOnesOfOthers) {
    FairQueue q({.max_requests = 1000, .max_tokens = 10'000'000});
    ASSERT_TRUE(q.push(item(1, "big", 100'000), 0));
    for (std::uint64_t i = 2; i < 200; ++i) ASSERT_TRUE(q.push(item(i, "small", 1000), 0));
    ASSERT_TRUE(q.push(item(200, "big", 100'000), 0));
    const auto order = drain(q);
    const auto at = [&](std::uint64_t handle) {
        return std::find(order.begin(), order.end(), handle) - order.begin();
    };
    EXPECT_LE(at(1), 1);      // nobody has been given anything yet
    EXPECT_GE(at(200), 99);   // then the others get as many tokens …
    EXPECT_LE(at(200), 102);  // … and not more
}

// A few requests at a time beside a crowd: whenever one comes, its turn is the next.
TEST(FairQueue, WhoComesOneAtATimeIsNext) {
    FairQueue q({.max_requests = 1000});
    std::mt19937 random(5);
    std::uint64_t next = 1;
    for (; next <= 64; ++next)
        ASSERT_TRUE(q.push(item(next, "crowd", 200 + static_cast<int>(random() % 400)), kBegin));
    for (int round = 0; round < 8; ++round) {
        for (int i = 0; i < 3; ++i) ASSERT_EQ(q.pop(kBegin)->workspace, "crowd");
        ASSERT_TRUE(q.push(item(next++, "few", 200 + static_cast<int>(random() % 400)), kBegin));
        ASSERT_EQ(q.pop(kBegin)->workspace, "few");
    }
}

// … but not beyond its share: coming back each time at once gains nothing over staying.
TEST(FairQueue, ComingOneAtATimeGainsNothing) {
    FairQueue q({.max_requests = 1000});
    std::map<std::string, std::int64_t> served;
    std::uint64_t next = 1;
    const std::vector<std::string> singles = {"s1", "s2", "s3", "s4"};
    for (int i = 0; i < 64; ++i) ASSERT_TRUE(q.push(item(next++, "crowd", 300), kBegin));
    for (const std::string& name : singles) ASSERT_TRUE(q.push(item(next++, name, 300), kBegin));
    for (int i = 0; i < 1000; ++i) {
        const auto got = q.pop(kBegin);
        served[got->workspace] += got->tokens;
        ASSERT_TRUE(q.push(item(next++, got->workspace, 300), kBegin));
    }
    for (const auto& [name, tokens] : served) EXPECT_NEAR(tokens, 60'000, 600) << name;
}

// Eight slots. A keeps 4 requests in flight and thinks for `back` between two; B keeps `b`.
// How many of A's end.
int ended_of_a(int b, std::uint64_t seed, MonoNs back) {
    FairQueue q({.max_requests = 1000});
    std::mt19937 random(seed);
    std::multimap<MonoNs, std::string> running, coming;
    MonoNs now = kBegin;
    std::uint64_t next = 1;
    int ended = 0;
    for (int i = 0; i < 4; ++i) coming.emplace(now, "a");
    for (int i = 0; i < b; ++i) coming.emplace(now, "b");
    while (now < kBegin + 600 * kNsPerSec) {
        while (!coming.empty() && coming.begin()->first <= now) {
            const int tokens = 250 + static_cast<int>(random() % 200);
            EXPECT_TRUE(q.push(item(next++, coming.begin()->second, tokens, Priority::kNormal, now,
                                    tokens * kNsPerMs),
                               now));
            coming.erase(coming.begin());
        }
        while (running.size() + q.kept(now) < 8) {
            const auto got = q.pop(now);
            if (!got) break;
            running.emplace(now + got->tokens * 4 * kNsPerMs, got->workspace);
        }
        const auto first = [](const auto& m) {
            return m.empty() ? std::numeric_limits<MonoNs>::max() : m.begin()->first;
        };
        const MonoNs look =
            q.kept(now) > 0 ? now + 10 * kNsPerMs : std::numeric_limits<MonoNs>::max();
        now = std::min({first(running), first(coming), look});  // an engine looks at each step
        while (!running.empty() && running.begin()->first <= now) {
            ended += running.begin()->second == "a" ? 1 : 0;
            q.note_end(running.begin()->second, now);
            coming.emplace(now + back, running.begin()->second);
            running.erase(running.begin());
        }
    }
    return ended;
}

double fair_ratio(std::uint64_t seed, MonoNs back) {
    const double ratio = static_cast<double>(ended_of_a(64, seed, back)) /
                         static_cast<double>(ended_of_a(4, seed, back));
    std::printf("fair ratio %.3f\n", ratio);
    return ratio;
}

// A crowd costs the others next to nothing: places are kept for who comes back at once.
TEST(FairQueue, WhoKeepsFourInFlightKeepsFourPlacesBesideACrowd) {
    for (const std::uint64_t seed : {1, 2, 3}) {
        const double ratio = fair_ratio(seed, 5 * kNsPerMs);
        EXPECT_GE(ratio, 0.95);
        EXPECT_LE(ratio, 1.01);
    }
}

// What keeping them is worth: who comes later than that waits each time until another one ends.
TEST(FairQueue, WhoReturnsLaterLosesItsPlace) {
    for (const std::uint64_t seed : {1, 2, 3}) {
        const double ratio = fair_ratio(seed, FairQueue::kReturn + 5 * kNsPerMs);
        EXPECT_GE(ratio, 0.8);
        EXPECT_LE(ratio, 0.95);
    }
}

TEST(FairQueue, APlaceIsKeptForAMomentForWhoseTurnItWouldBe) {
    FairQueue q({.max_requests = 100});
    ASSERT_TRUE(q.push(item(1, "a"), kBegin));
    for (std::uint64_t i = 2; i < 10; ++i) ASSERT_TRUE(q.push(item(i, "b"), kBegin));
    EXPECT_EQ(q.kept(kBegin), 0U);
    for (int i = 0; i < 3; ++i) (void)q.pop(kBegin);  // one of a's, two of b's
    q.note_end("a", kBegin);
    EXPECT_EQ(q.kept(kBegin), 1U);
    EXPECT_EQ(q.kept(kBegin + FairQueue::kReturn), 0U);
    ASSERT_TRUE(q.push(item(20, "a"), kBegin));  // it came back: nothing to keep
    EXPECT_EQ(q.kept(kBegin), 0U);
    EXPECT_EQ(q.pop(kBegin)->workspace, "a");
    ASSERT_TRUE(q.push(item(21, "a", 1000), kBegin));
    EXPECT_EQ(q.pop(kBegin)->workspace, "a");
    q.note_end("a", kBegin);  // it is ahead now
    EXPECT_EQ(q.kept(kBegin), 0U);
}

TEST(FairQueue, BoundsAnd529) {
    FairQueue q({.max_requests = 16, .max_tokens = 10'000, .model = "m"});
    std::uint64_t next = 1;
    // One workspace alone: at most 7/8.
    while (q.push(item(next, "noisy", 10), kBegin)) ++next;
    EXPECT_EQ(q.size(), 14U);
    const Status refused = q.push(item(next, "noisy", 10), kBegin);
    EXPECT_EQ(refused.error().code, Code::kOverloaded);
    EXPECT_EQ(refused.error().detail,
              "overloaded: 14 requests of workspace \"noisy\" are waiting, which is its share of "
              "the queue of model \"m\"; try again in 1 s");
    EXPECT_GE(refused.error().retry_after_ms, 1000);
    // Others still get in.
    EXPECT_TRUE(q.push(item(100, "quiet", 10), kBegin));
    EXPECT_TRUE(q.push(item(101, "third", 10), kBegin));
    const Status full = q.push(item(102, "fourth", 10), kBegin);
    ASSERT_FALSE(full);
    EXPECT_EQ(full.error().detail,
              "overloaded: the queue of model \"m\" is full: 16 requests with 160 tokens are "
              "waiting (limits 16 and 10000); try again in 1 s");
    // A crowded queue gives free places to those below their share.
    for (const std::uint64_t handle : {1, 2, 3}) ASSERT_TRUE(q.remove(handle));
    EXPECT_FALSE(q.push(item(200, "noisy", 10), kBegin));
    EXPECT_TRUE(q.push(item(201, "fourth", 10), kBegin));
}

TEST(FairQueue, TokenBound) {
    FairQueue q({.max_requests = 100, .max_tokens = 1000});
    EXPECT_TRUE(q.push(item(1, "a", 5000), kBegin));  // alone, it may be as big as the model allows
    EXPECT_FALSE(q.push(item(2, "b", 1), kBegin));
    q.pop(kBegin);
    EXPECT_TRUE(q.push(item(3, "a", 400), kBegin));
    EXPECT_TRUE(q.push(item(4, "b", 400), kBegin));
    EXPECT_FALSE(q.push(item(5, "c", 400), kBegin));
    EXPECT_TRUE(q.push(item(6, "c", 100), kBegin));
}

TEST(FairQueue, RemoveAndPutBack) {
    FairQueue q({.max_requests = 3});
    for (std::uint64_t i = 1; i <= 3; ++i)
        ASSERT_TRUE(
            q.push(item(i, "w", 100, Priority::kNormal, kBegin + static_cast<MonoNs>(i)), 0));
    EXPECT_TRUE(q.full());
    EXPECT_TRUE(q.remove(2));
    EXPECT_FALSE(q.full());
    EXPECT_FALSE(q.remove(2));
    auto first = q.pop(kBegin);
    EXPECT_EQ(first->handle, 1U);
    EXPECT_EQ(drain(q), (std::vector<std::uint64_t>{3}));
    EXPECT_EQ(q.size(), 0U);
    EXPECT_EQ(q.tokens(), 0);
}

TEST(FairQueue, RetryAfterFollowsItsSpeed) {
    FairQueue q({.max_requests = 40});
    for (std::uint64_t i = 0; i < 35; ++i) ASSERT_TRUE(q.push(item(i, "w"), kBegin));
    MonoNs now = kBegin;
    for (int i = 0; i < 5; ++i) {
        q.pop(now);
        now += 500 * kNsPerMs;
    }
    EXPECT_EQ(q.retry_after_ms(), 15'000);  // 30 left, 2 a second
}

// Any mix of operations: nothing is lost, nothing comes twice.
TEST(FairQueue, RandomOperationsKeepEveryItem) {
    std::mt19937 random(11);
    FairQueue q({.max_requests = 64, .max_tokens = 100'000});
    std::map<std::uint64_t, bool> inside;
    MonoNs now = kBegin;
    std::uint64_t next = 1;
    for (int step = 0; step < 20'000; ++step) {
        now += static_cast<MonoNs>(random() % (50 * kNsPerMs));
        const auto what = random() % 10;
        if (what < 5) {
            const std::uint64_t handle = next++;
            const auto priority = static_cast<Priority>(random() % 3);
            if (q.push(item(handle, std::string(1, static_cast<char>('a' + random() % 5)),
                            static_cast<std::int64_t>(random() % 5000), priority, now,
                            static_cast<MonoNs>(random() % (4 * kNsPerSec))),
                       now))
                inside[handle] = true;
        } else if (what < 9) {
            const auto got = q.pop(now);
            ASSERT_EQ(got.has_value(), !inside.empty());
            if (got) {
                ASSERT_EQ(inside.erase(got->handle), 1U);
            }
        } else if (!inside.empty()) {
            auto it = inside.begin();
            std::advance(it, random() % inside.size());
            ASSERT_TRUE(q.remove(it->first));
            inside.erase(it);
        }
        ASSERT_EQ(q.size(), inside.size());
    }
}

TEST(FairQueue, AWorkspaceHeldBackHasNoTurnButItsHighOnes) {
    FairQueue q({});
    for (std::uint64_t i = 1; i <= 2; ++i) ASSERT_TRUE(q.push(item(i, "a"), 0));
    ASSERT_TRUE(q.push(item(3, "b"), 0));
    ASSERT_TRUE(q.push(item(4, "a", 100, Priority::kHigh), 0));
    q.hold_back({"a"});
    EXPECT_EQ(drain(q), (std::vector<std::uint64_t>{4, 3}));
    EXPECT_EQ(q.size(), 2U);
    q.hold_back({});
    EXPECT_EQ(drain(q), (std::vector<std::uint64_t>{1, 2}));
}

}  // namespace
}  // namespace zerohop::sched
