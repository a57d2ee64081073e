#include "sched/thread_governor.h"

#include <gtest/gtest.h>

namespace zerohop::sched {
namespace {

// Runs `steps` with the cost that each number of threads has; returns the total.
template <class Cost>
double run(ThreadGovernor& governor, int steps, Cost&& cost) {
    double total = 0;
    for (int i = 0; i < steps; ++i) {
        const double took = cost(governor.threads());
        total += took;
        governor.observe(took);
    }
    return total;
}

double calm(std::int32_t threads) { return threads == 2 ? 10 : 18; }
double contended(std::int32_t threads) { return threads == 2 ? 300 : 30; }

TEST(ThreadGovernor, TriesOnceAndThenNothingWhileCalm) {
    ThreadGovernor governor(2);
    run(governor, 100, calm);
    EXPECT_DOUBLE_EQ(run(governor, 5000, calm), 50000);
}

TEST(ThreadGovernor, StartedUnderLoadItFindsOut) {
    ThreadGovernor governor(2);
    run(governor, 30, contended);
    EXPECT_EQ(governor.threads(), 1);
}

TEST(ThreadGovernor, LeavesCollapseAndComesBack) {
    ThreadGovernor governor(2);
    run(governor, 100, calm);
    run(governor, 100, contended);
    EXPECT_EQ(governor.threads(), 1);
    // While contended, retries cost little: far less than staying would.
    EXPECT_LT(run(governor, 1000, contended), 1000 * 60.0);
    run(governor, 5000, calm);
    EXPECT_EQ(governor.threads(), 2);
}

TEST(ThreadGovernor, SlowForAnotherReasonStaysWithAllThreads) {
    ThreadGovernor governor(2);
    run(governor, 100, calm);
    const auto longer = [](std::int32_t threads) { return 3 * calm(threads); };
    const double total = run(governor, 2000, longer);
    EXPECT_EQ(governor.threads(), 2);
    EXPECT_LT(total, 2000 * 30 * 1.02);
}

TEST(ThreadGovernor, OneThreadHasNothingToChoose) {
    ThreadGovernor governor(1);
    run(governor, 100, contended);
    EXPECT_EQ(governor.threads(), 1);
}

}  // namespace
}  // namespace zerohop::sched
