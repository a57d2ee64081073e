#include "base/cpu_use.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace zerohop {
namespace {

TEST(CpuUse, ReadsWhatAllCpusDid) {
    const auto jiffies = parse_proc_stat(
        "cpu  10 20 30 1000 2000 4 5 6 7 8\ncpu0 5 10 15 500 1000 2 2 3 3 4\n"
        "cpu1 5 10 15 500 1000 2 3 3 4 4\nintr 1 2 3\nctxt 9\n");
    ASSERT_TRUE(jiffies);
    EXPECT_EQ(jiffies->busy, 10 + 20 + 30 + 4 + 5 + 6);
    EXPECT_EQ(jiffies->cpus, 2);
    for (const char* broken :
         {"", "cpu", "cpu  1 2 3\ncpu0 1 2 3 4 5 6 7 8\n", "intr 1\n", "cpu  a"})
        EXPECT_FALSE(parse_proc_stat(broken)) << broken;
}

TEST(CpuUse, OthersAreAllButThisProcess) {
    const CpuUse before{.busy_ns = 100, .own_ns = 50, .at_ns = 1'000, .cpus = 2};
    CpuUse after{.busy_ns = 1'600, .own_ns = 1'050, .at_ns = 2'000, .cpus = 2};
    EXPECT_DOUBLE_EQ(after.others_since(before), 0.25);
    after.own_ns = 3'000;  // the clocks tick apart
    EXPECT_DOUBLE_EQ(after.others_since(before), 0);
    after.cpus = 0;  // unknown
    EXPECT_DOUBLE_EQ(after.others_since(before), 0);
}

TEST(CpuUse, KnowsThisMachine) {
    const CpuUse before = CpuUse::now();
    if (!std::filesystem::exists("/proc/stat")) GTEST_SKIP() << "no /proc/stat";
    ASSERT_GT(before.cpus, 0);
    const MonoNs until = mono_now() + 100 * kNsPerMs;
    while (mono_now() < until) {
    }
    const CpuUse after = CpuUse::now();
    EXPECT_GT(after.own_ns, before.own_ns);
    EXPECT_GE(after.busy_ns, before.busy_ns);
}

}  // namespace
}  // namespace zerohop
