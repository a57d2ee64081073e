#include "base/turn_queue.h"

#include <gtest/gtest.h>

#include "base/memory_budget.h"

namespace zerohop {
namespace {

TEST(TurnQueue, KeysTakeTurnsAndAreBoundedTogether) {
    TurnQueue<int> queue(5);
    EXPECT_TRUE(queue.empty());
    for (const int i : {1, 2, 3}) EXPECT_TRUE(queue.push("much", int{i}));
    EXPECT_TRUE(queue.push("little", 10));
    EXPECT_TRUE(queue.push("other", 20));
    EXPECT_FALSE(queue.push("little", 11));
    std::string order;
    while (!queue.empty()) order += std::to_string(queue.pop()) + " ";
    EXPECT_EQ(order, "1 10 20 2 3 ");
    EXPECT_TRUE(queue.push("little", 11));
    EXPECT_EQ(queue.pop(), 11);
}

TEST(MemoryBudget, ChargesAreMovedNotCopiedAndEnd) {
    constexpr std::size_t kUnit = 1 << 20;
    constexpr std::size_t kSmall = MemoryBudget::kSmall;
    MemoryBudget budget(100 * kUnit, 60 * kUnit);
    {
        MemoryCharge one(&budget, 1);
        EXPECT_TRUE(one.resize(60 * kUnit));
        EXPECT_FALSE(one.resize(60 * kUnit + 1));  // its share
        MemoryCharge moment = one.for_a_moment();
        EXPECT_TRUE(moment.resize(40 * kUnit));  // in the total only
        EXPECT_FALSE(moment.resize(40 * kUnit + 1));
        EXPECT_FALSE(budget.has_room_for(2, kSmall + 1));
        EXPECT_TRUE(budget.has_room_for(2, kSmall));
        {
            MemoryCharge small(&budget, 1);
            EXPECT_TRUE(small.resize(kSmall));  // beside what large ones fill
            EXPECT_FALSE(small.resize(kSmall + 1));
        }
        MemoryCharge moved = std::move(one);
        EXPECT_EQ(budget.used_bytes(), 100 * kUnit);
        EXPECT_TRUE(moved.resize(10 * kUnit));
        EXPECT_EQ(budget.used_bytes(), 50 * kUnit);
        moved = MemoryCharge();
        EXPECT_EQ(budget.used_bytes(), 40 * kUnit);
    }
    EXPECT_EQ(budget.used_bytes(), 0);
    MemoryCharge free;
    EXPECT_TRUE(free.resize(std::size_t{1} << 40));
}

}  // namespace
}  // namespace zerohop
