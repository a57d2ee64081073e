#include "kv/prefix_tree.h"

#include <gtest/gtest.h>

#include <random>

#include "kv/testing/prefix_tree_model.h"
#include "kv/testing/tokens.h"

namespace zerohop::kv {
namespace {

using testing::joined;
using testing::kA;
using testing::run_of;

EntryId cache(PrefixTree& tree, const std::vector<Token>& tokens, const Namespace& ns = kA) {
    const EntryId id = tree.open(ns, tokens, tree.lookup(ns, tokens).cached, 0);
    tree.advance(id, static_cast<std::uint32_t>(tokens.size()));
    tree.close(id);
    return id;
}

TEST(PrefixTree, ReusesToTheToken) {
    PrefixTree tree({.capacity_tokens = 10'000});
    const auto system = run_of(0, 950);
    cache(tree, joined(system, run_of(5000, 20)));
    EXPECT_EQ(tree.lookup(kA, joined(system, run_of(7000, 20))).cached, 950U);
    EXPECT_EQ(tree.lookup(kA, joined(run_of(0, 13), run_of(7000, 20))).cached, 13U);
    EXPECT_EQ(tree.lookup(kA, run_of(1, 5)).cached, 0U);
}

TEST(PrefixTree, ShowsWhatIsBeingComputed) {
    PrefixTree tree({.capacity_tokens = 10'000});
    const auto system = run_of(0, 950);
    const EntryId first = tree.open(kA, joined(system, run_of(5000, 20)), 0, 1);
    const auto second = joined(system, run_of(7000, 20));
    Match m = tree.lookup(kA, second);
    EXPECT_EQ(m.cached, 0U);
    EXPECT_EQ(m.promised, 950U);
    EXPECT_EQ(m.computing, first);
    tree.advance(first, 512);
    EXPECT_EQ(tree.lookup(kA, second).cached, 512U);
    tree.advance(first, 960);
    m = tree.lookup(kA, second);
    EXPECT_EQ(m.cached, 950U);
    EXPECT_EQ(m.computing, 0U);
}

TEST(PrefixTree, CancelledComputationLeavesOnlyWhatIsThere) {
    PrefixTree tree({.capacity_tokens = 10'000});
    const auto prompt = run_of(0, 900);
    const EntryId first = tree.open(kA, prompt, 0, 1);
    tree.advance(first, 256);
    EXPECT_EQ(tree.close(first), 256U);
    const Match m = tree.lookup(kA, prompt);
    EXPECT_EQ(m.cached, 256U);
    EXPECT_EQ(m.promised, 256U);
    EXPECT_EQ(tree.close(tree.open(kA, run_of(9000, 30), 0, 1)), 0U) << "nothing computed";
    EXPECT_EQ(tree.counters().used_tokens, 256U);
}

TEST(PrefixTree, NamespacesShareNothing) {
    PrefixTree tree({.capacity_tokens = 10'000});
    cache(tree, run_of(0, 100));
    EXPECT_EQ(tree.lookup(derive_namespace("b", "m"), run_of(0, 100)).promised, 0U);
    EXPECT_EQ(tree.lookup(derive_namespace("a", "n"), run_of(0, 100)).promised, 0U);
    EXPECT_EQ(tree.lookup(derive_namespace("a", "m", "u"), run_of(0, 100)).promised, 0U);
    EXPECT_FALSE(derive_namespace("ab", "c") == derive_namespace("a", "bc"));
    EXPECT_FALSE(shared_namespace("a", "m") == derive_namespace("a", "m"));
}

TEST(PrefixTree, EvictsByBlockFromTheColdestLeaf) {
    PrefixTree tree({.capacity_tokens = 200, .adaptive = false});
    const EntryId cold = cache(tree, run_of(0, 100));
    const EntryId warm = cache(tree, run_of(5000, 100));
    std::vector<Trim> trims;
    EXPECT_TRUE(tree.make_room(10, trims));
    ASSERT_EQ(trims.size(), 1U);
    EXPECT_EQ(trims[0].entry, cold);
    EXPECT_EQ(trims[0].length, 80U) << "ten tokens are wanted, whole blocks go";
    EXPECT_EQ(tree.counters().evicted_blocks, 2U) << "the 4 tokens of the last, and a whole one";
    EXPECT_EQ(tree.info(warm).length, 100U);
    EXPECT_EQ(tree.lookup(kA, run_of(0, 100)).cached, 80U);
}

TEST(PrefixTree, RunningAndPinnedStay) {
    PrefixTree tree({.capacity_tokens = 200, .pin_cap_tokens = 100, .adaptive = false});
    const EntryId pinned = cache(tree, run_of(0, 100));
    ASSERT_TRUE(tree.pin(pinned, 50, 1000).has_value());
    const EntryId running = tree.open(kA, run_of(5000, 100), 0, 0);
    std::vector<Trim> trims;
    EXPECT_FALSE(tree.make_room(100, trims));
    EXPECT_EQ(tree.info(pinned).length, 50U);
    EXPECT_EQ(tree.info(running).length, 100U);
    tree.expire(999);
    EXPECT_FALSE(tree.make_room(100, trims));
    tree.expire(1000);
    EXPECT_TRUE(tree.make_room(100, trims));
    EXPECT_FALSE(tree.alive(pinned));
    EXPECT_EQ(tree.counters().pinned_tokens, 0U);
}

TEST(PrefixTree, PinsAreCappedPerWorkspaceAndChargedOnce) {
    PrefixTree tree({.capacity_tokens = 10'000, .pin_cap_tokens = 150});
    const auto system = run_of(0, 100);
    const EntryId a = cache(tree, joined(system, run_of(5000, 20)));
    const EntryId b = cache(tree, joined(system, run_of(7000, 60)));
    ASSERT_TRUE(tree.pin(a, 120, 10).has_value());
    EXPECT_EQ(tree.counters().pinned_tokens, 120U);
    EXPECT_TRUE(tree.pin(b, 100, 20).has_value()) << "already charged";
    EXPECT_FALSE(tree.pin(b, 160, 20).has_value());
    EXPECT_TRUE(tree.pin(b, 130, 20).has_value());
    EXPECT_EQ(tree.counters().pinned_tokens, 150U);
    const EntryId user = cache(tree, system, derive_namespace("a", "m", "u"));
    EXPECT_FALSE(tree.pin(user, 50, 20).has_value()) << "a user's pins are the workspace's";
    const EntryId other = cache(tree, system, derive_namespace("b", "m"));
    EXPECT_TRUE(tree.pin(other, 50, 20).has_value());
    tree.expire(10);
    EXPECT_EQ(tree.counters().pinned_tokens, 180U) << "b's pins go on holding the system prompt";
    tree.drop(b);
    EXPECT_EQ(tree.counters().pinned_tokens, 150U) << "a still holds the pinned 100";
    EXPECT_EQ(tree.counters().pins_lost, 1U);
}

TEST(PrefixTree, RenewedPinKeepsTheLaterTime) {
    PrefixTree tree({.capacity_tokens = 1000, .pin_cap_tokens = 1000});
    const EntryId a = cache(tree, run_of(0, 100));
    const PinId first = tree.pin(a, 100, 10).value();
    for (MonoNs t = 11; t <= 500; ++t) EXPECT_EQ(tree.pin(a, 100, t).value(), first);
    tree.expire(499);
    EXPECT_TRUE(tree.pinned(a));
    tree.expire(500);
    EXPECT_FALSE(tree.pinned(a));
}

TEST(PrefixTree, SplitsOfThePastMergeAgain) {
    PrefixTree tree({.capacity_tokens = 100'000});
    const auto system = run_of(0, 900);
    for (int i = 1; i < 900; ++i) tree.drop(cache(tree, joined(run_of(0, i), run_of(50'000, 10))));
    const EntryId stay = cache(tree, system);
    for (int i = 1; i < 900; ++i) tree.drop(cache(tree, joined(run_of(0, i), run_of(50'000, 10))));
    EXPECT_TRUE(tree.alive(stay));
    cache(tree, joined(system, run_of(60'000, 5)));
    EXPECT_LE(tree.counters().nodes, 4U);
    tree.check();
}

TEST(PrefixTree, CountsBlocks) {
    PrefixTree tree({.capacity_tokens = 10'000});
    cache(tree, run_of(0, 160));
    cache(tree, joined(run_of(0, 85), run_of(9000, 75)));
    EXPECT_EQ(tree.counters().block_needs, 20U);
    EXPECT_EQ(tree.counters().block_hits, 5U);
}

TEST(PrefixTree, AgreesWithThePlainModel) {
    std::mt19937 rng(11);
    for (int round = 0; round < 30; ++round) {
        std::vector<std::uint8_t> bytes(400);
        for (auto& b : bytes) b = static_cast<std::uint8_t>(rng());
        testing::TreeModel(
            bytes, {.capacity_tokens = 300, .pin_cap_tokens = 80, .adaptive = round % 2 == 0})
            .run();
    }
}

}  // namespace
}  // namespace zerohop::kv
