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
    MemoryBudget budget(100, 60);
    {
        MemoryCharge one(&budget, 1);
        EXPECT_TRUE(one.resize(60));
        EXPECT_FALSE(one.resize(61));  // its share
        MemoryCharge moment = one.for_a_moment();
        EXPECT_TRUE(moment.resize(40));  // in the total only
        EXPECT_FALSE(moment.resize(41));
        EXPECT_FALSE(budget.has_room_for(2, 1));
        MemoryCharge moved = std::move(one);
        EXPECT_EQ(budget.used_bytes(), 100);
        EXPECT_TRUE(moved.resize(10));
        EXPECT_EQ(budget.used_bytes(), 50);
        moved = MemoryCharge();
        EXPECT_EQ(budget.used_bytes(), 40);
    }
    EXPECT_EQ(budget.used_bytes(), 0);
    MemoryCharge free;
    EXPECT_TRUE(free.resize(std::size_t{1} << 40));
}

}  // namespace
}  // namespace zerohop
