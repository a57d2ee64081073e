#include "sched/occupancy.h"

#include <gtest/gtest.h>

namespace zerohop::sched {
namespace {

constexpr OccupancyLimits kLimits{.slow_reader_ns = 10 * kNsPerSec,
                                  .stalled_reader_ns = 60 * kNsPerSec};

TEST(ReaderLag, AReaderThatTakesNothingIsSlowAndThenStalled) {
    ReaderLag lag;
    lag.starve(0);
    EXPECT_FALSE(lag.slow(kLimits, 9 * kNsPerSec));
    lag.starve(9 * kNsPerSec);  // looked at again: the same wait
    EXPECT_TRUE(lag.slow(kLimits, 10 * kNsPerSec));
    EXPECT_FALSE(lag.stalled(kLimits, 59 * kNsPerSec));
    EXPECT_TRUE(lag.stalled(kLimits, 60 * kNsPerSec));
    lag.feed(61 * kNsPerSec);
    EXPECT_FALSE(lag.slow(kLimits, 61 * kNsPerSec));
    EXPECT_FALSE(lag.stalled(kLimits, 61 * kNsPerSec));
}

TEST(ReaderLag, ALittleNowAndThenDoesNotPayWhatIsOwed) {
    ReaderLag lag;
    MonoNs now = 0;
    bool slow = false;
    for (int i = 0; i < 4 && !slow; ++i) {  // starved for 5 s, going on for 1 s
        lag.starve(now);
        now += 5 * kNsPerSec;
        slow = lag.slow(kLimits, now);
        lag.feed(now);
        now += kNsPerSec;
    }
    EXPECT_TRUE(slow);
    EXPECT_LT(now, 20 * kNsPerSec);
}

TEST(ReaderLag, WhoKeepsPaceForHalfTheTimeIsNeverSlow) {
    ReaderLag lag;
    for (MonoNs now = 0; now < 600 * kNsPerSec; now += 10 * kNsPerSec) {
        lag.starve(now);
        EXPECT_FALSE(lag.slow(kLimits, now + 5 * kNsPerSec));
        lag.feed(now + 5 * kNsPerSec);
    }
}

}  // namespace
}  // namespace zerohop::sched
