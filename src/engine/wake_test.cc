#include "engine/wake.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace zerohop::engine {
namespace {

using namespace std::chrono_literals;

// Two threads that tell each other to look again, mostly while the other is about to sleep. A
// signal that is lost hangs the test.
TEST(WakeTest, NoSignalIsLostOnTheWayToSleep) {
    constexpr int kRounds = 3'000;
    Wake ask, answer;
    std::atomic<int> asked{0}, answered{0};
    std::thread other([&] {
        for (int seen = 0; seen < kRounds;) {
            if (asked.load() == seen) {
                ask.wait(-1);
                continue;
            }
            answered.store(++seen);
            answer.signal();
        }
    });
    for (int round = 1; round <= kRounds; ++round) {
        if (round % 100 < 4)
            std::this_thread::sleep_for(std::chrono::microseconds(300 * round % 1'900));
        asked.store(round);
        ask.signal();
        while (answered.load() != round) answer.wait(-1);
    }
    other.join();
    EXPECT_EQ(answered.load(), kRounds);
}

TEST(WakeTest, TimeoutEndsASleep) {
    Wake wake;
    const auto waited = [&](std::int64_t ns) {
        const MonoNs since = mono_now();
        wake.wait(ns);
        return mono_now() - since;
    };
    EXPECT_GE(waited(2'000'000), 1'900'000);
    wake.signal();
    EXPECT_LT(waited(60'000'000'000), 1'000'000'000);  // at once: a signal came before
    EXPECT_GE(waited(300'000), 290'000);
    wake.signal();
    wake.wait(0);  // takes the signal
    EXPECT_GE(waited(2'000'000), 1'900'000);
}

TEST(WakeTest, WaitsWithoutProcessorTime) {
    Wake wake;
    std::atomic<bool> stop{false};
    std::atomic<std::int64_t> used_ns{0};
    std::thread sleeper([&] {
        const auto cpu = [] {
            std::timespec t{};
            clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
            return t.tv_sec * kNsPerSec + t.tv_nsec;
        };
        const std::int64_t before = cpu();
        while (!stop.load()) wake.wait(-1);
        used_ns.store(cpu() - before);
    });
    for (int i = 0; i < 20; ++i) {
        std::this_thread::sleep_for(10ms);
        wake.signal();
    }
    stop.store(true);
    wake.signal();
    sleeper.join();
    EXPECT_LT(used_ns.load(), 20 * kNsPerMs);
}

}  // namespace
}  // namespace zerohop::engine
