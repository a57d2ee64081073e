#include "engine/kv_pool.h"

#include <gtest/gtest.h>

namespace zerohop::engine {
namespace {

TEST(KvPool, UnifiedReservationsShareTheTotal) {
    KvPool pool(4, 100, 100, true);
    const auto a = pool.admit({}, 60);
    ASSERT_TRUE(a);
    EXPECT_FALSE(pool.admit({}, 41));
    const auto b = pool.admit({}, 40);
    ASSERT_TRUE(b);
    EXPECT_NE(a->sequence, b->sequence);
    EXPECT_FALSE(pool.cover(b->sequence, 41));
    pool.release(a->sequence);
    EXPECT_TRUE(pool.cover(b->sequence, 41));
    EXPECT_EQ(pool.reserved(), 100);  // grew by more than the one token asked for
    pool.release(b->sequence);
    EXPECT_EQ(pool.reserved(), 0);
    EXPECT_EQ(pool.free_sequences(), 4);
}

TEST(KvPool, GrowthTakesWhatIsLeft) {
    KvPool pool(2, 100, 100, true);
    const auto a = pool.admit({}, 90);
    EXPECT_TRUE(pool.cover(a->sequence, 95));
    EXPECT_EQ(pool.reserved(), 100);
    EXPECT_TRUE(pool.cover(a->sequence, 100));
    EXPECT_FALSE(pool.cover(a->sequence, 101));
}

TEST(KvPool, StreamsOnlyRunOutOfIds) {
    KvPool pool(2, 200, 100, false);
    const auto a = pool.admit({}, 1000);
    const auto b = pool.admit({}, 1000);
    ASSERT_TRUE(a && b);
    EXPECT_FALSE(pool.admit({}, 1));
    EXPECT_TRUE(pool.cover(a->sequence, 100));
    EXPECT_FALSE(pool.cover(a->sequence, 101));
}

}  // namespace
}  // namespace zerohop::engine
