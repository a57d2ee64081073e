#include "draft/suffix_store.h"

#include <gtest/gtest.h>

#include <random>

#include "base/clock.h"
#include "draft/testing/suffix_model.h"

namespace zerohop::draft {
namespace {

const kv::Namespace kA = kv::derive_namespace("a", "m");
const kv::Namespace kB = kv::derive_namespace("b", "m");

std::vector<Token> random_text(std::mt19937& rng, int n, int alphabet) {
    std::vector<Token> out;
    for (int i = 0; i < n; ++i) out.push_back(static_cast<Token>(rng() % unsigned(alphabet)));
    return out;
}

TEST(SuffixAutomaton, AgreesWithPlainSearch) {
    std::mt19937 rng(5);
    for (int round = 0; round < 400; ++round) {
        std::vector<testing::Text> texts;
        for (int i = 0; i < 1 + round % 4; ++i)
            texts.push_back(random_text(rng, 1 + int(rng() % 28), 2 + round % 3));
        testing::compare(texts, random_text(rng, 25, 2 + round % 3), true);
    }
}

TEST(SuffixAutomaton, ManyNextTokens) {
    SuffixAutomaton a;
    for (int i = 0; i < 1000; ++i) {
        a.begin_text();
        a.add(7);
        a.add(1000 + i % 300);
    }
    Cursor c;
    a.read(c, 7);
    EXPECT_EQ(c.length, 1U);
    for (Token t = 1000; t < 1300; ++t) {
        Cursor at = c;
        a.read(at, t);
        EXPECT_EQ(at.length, 2U) << t;
    }
}

TEST(SuffixStore, LearntOutputIsProposed) {
    SuffixStore store({});
    DraftController controller;
    const std::vector<DraftKey> chain = {{kA, 1, 1}};
    const std::vector<Token> prompt = {5, 6, 7};
    std::vector<Token> output;
    for (Token t = 100; t < 120; ++t) output.push_back(t);
    store.learn(chain, prompt, output);
    DraftSession session(store, chain, prompt);
    Draft draft;
    session.propose(8, controller, draft);
    EXPECT_EQ(draft.tokens, std::vector<Token>(output.begin(), output.begin() + 8));
    session.accept(100);
    session.accept(55);  // another value
    session.propose(8, controller, draft);
    EXPECT_TRUE(draft.tokens.empty());
    session.accept(102);
    session.propose(4, controller, draft);
    EXPECT_EQ(draft.tokens, (std::vector<Token>{103, 104, 105, 106}));
}

TEST(SuffixStore, OwnTextIsProposed) {
    SuffixStore store({});
    DraftController controller;
    const std::vector<Token> prompt = {1, 2, 3, 4, 5, 6, 9};
    DraftSession session(store, {}, prompt);
    session.accept(2);
    session.accept(3);
    Draft draft;
    session.propose(3, controller, draft);
    EXPECT_EQ(draft.tokens, (std::vector<Token>{4, 5, 6}));
}

TEST(SuffixStore, FallsBackAlongTheChain) {
    SuffixStore store({});
    DraftController controller;
    const std::vector<Token> prompt = {5}, output = {10, 11, 12};
    store.learn(std::vector<DraftKey>{{kA, 1, 1}, {kA, 2, 2}, {kA, 3, 3}}, prompt, output);
    const std::vector<DraftKey> other_turn = {{kA, 9, 9}, {kA, 8, 8}, {kA, 3, 3}};
    DraftSession session(store, other_turn, prompt);
    Draft draft;
    session.propose(3, controller, draft);
    EXPECT_EQ(draft.tokens, output);
    EXPECT_EQ(draft.evidence.front().source, 3);
}

TEST(SuffixStore, NamespacesShareNothing) {
    SuffixStore store({});
    DraftController controller;
    const std::vector<Token> prompt = {5}, output = {10, 11, 12};
    store.learn(std::vector<DraftKey>{{kA, 1, 1}}, prompt, output);
    DraftSession session(store, std::vector<DraftKey>{{kB, 1, 1}}, prompt);
    Draft draft;
    session.propose(3, controller, draft);
    EXPECT_TRUE(draft.tokens.empty());
}

TEST(SuffixStore, FrequentContinuationWins) {
    SuffixStore store({});
    DraftController controller;
    const std::vector<DraftKey> chain = {{kA, 1, 1}};
    const std::vector<Token> prompt = {5};
    for (int i = 0; i < 3; ++i) store.learn(chain, prompt, std::vector<Token>{10, 20});
    store.learn(chain, prompt, std::vector<Token>{10, 30});
    DraftSession session(store, chain, prompt);
    session.accept(10);
    Draft draft;
    session.propose(1, controller, draft);
    EXPECT_EQ(draft.tokens, std::vector<Token>{20});
}

TEST(SuffixStore, ANewSessionBeginsWithTheLuckOfItsStructure) {
    SuffixStore store({});
    const std::vector<DraftKey> chain = {{.ns = {}, .lo = 1, .hi = 1}};
    const std::vector<Token> text = {1, 2, 3, 4};
    Luck bad;
    bad.expected = 10;
    for (int i = 0; i < 10; ++i) store.learn(chain, text, text, bad);
    EXPECT_LT(DraftSession(store, chain, text).luck.factor(), 0.3F);
    const std::vector<DraftKey> other = {{.ns = {}, .lo = 2, .hi = 1}};
    EXPECT_FLOAT_EQ(DraftSession(store, other, text).luck.factor(), 1);
    for (int i = 0; i < 10; ++i) store.learn(chain, text, text, Luck{});
    EXPECT_GT(DraftSession(store, chain, text).luck.factor(), 0.9F);
}

TEST(SuffixStore, MemoryIsBoundedAndTheOldestGoes) {
    SuffixStore store({.max_bytes = 2'000'000, .corpus_tokens = 1024});
    std::mt19937 rng(3);
    const std::vector<Token> prompt = {5};
    for (std::uint64_t k = 1; k <= 200; ++k) {
        for (int i = 0; i < 4; ++i)
            store.learn(std::vector<DraftKey>{{kA, k, 0}}, prompt, random_text(rng, 200, 5000));
        ASSERT_LE(store.bytes(), 2'000'000U);
    }
    EXPECT_GT(store.corpora(), 3U);
    EXPECT_LT(store.corpora(), 200U);
    DraftController controller;
    store.learn(std::vector<DraftKey>{{kA, 1, 0}}, prompt, std::vector<Token>{1, 2, 3});
    DraftSession session(store, std::vector<DraftKey>{{kA, 1, 0}}, prompt);
    Draft draft;
    session.propose(3, controller, draft);
    EXPECT_EQ(draft.tokens, (std::vector<Token>{1, 2, 3}));
}

TEST(SuffixStore, SessionSurvivesTurnsAndEvictions) {
    SuffixStore store({.max_bytes = 400'000, .corpus_tokens = 256, .own_tokens = 64});
    DraftController controller;
    std::mt19937 rng(9);
    std::vector<std::unique_ptr<DraftSession>> sessions;
    std::vector<std::vector<Token>> outputs(8);
    const std::vector<Token> prompt = {1, 2, 3};
    const auto chain_of = [](std::size_t i) {
        return std::vector<DraftKey>{{kA, 100 + i, 0}, {kA, 1 + i % 3, 0}};
    };
    for (std::size_t i = 0; i < 8; ++i)
        sessions.push_back(std::make_unique<DraftSession>(store, chain_of(i), prompt));
    Draft draft;
    for (int step = 0; step < 20'000; ++step) {
        const std::size_t i = rng() % 8;
        const Token t = static_cast<Token>(rng() % 6);
        sessions[i]->accept(t);
        outputs[i].push_back(t);
        sessions[i]->propose(16, controller, draft);
        ASSERT_LE(draft.tokens.size(), 16U);
        if (rng() % 50 != 0) continue;
        store.learn(chain_of(i), prompt, outputs[i]);
        outputs[i].clear();
        sessions[i] = std::make_unique<DraftSession>(store, chain_of(i), prompt);
        ASSERT_LE(store.bytes(), 400'000U);
    }
}

// Not a benchmark: an order-of-magnitude guard that holds on a loaded machine.
TEST(SuffixStore, ProposingIsCheap) {
    SuffixStore store({});
    DraftController controller;
    std::mt19937 rng(2);
    const std::vector<DraftKey> chain = {{kA, 1, 0}, {kA, 2, 0}, {kA, 3, 0}};
    const std::vector<Token> prompt = random_text(rng, 1000, 20'000);
    for (int i = 0; i < 30; ++i) store.learn(chain, prompt, random_text(rng, 200, 50));
    DraftSession session(store, chain, prompt);
    Draft draft;
    const auto text = random_text(rng, 2000, 50);
    const MonoNs start = mono_now();
    for (const Token t : text) {
        session.accept(t);
        session.propose(16, controller, draft);
    }
    const double us = static_cast<double>(mono_now() - start) / 1e3 / 2000;
    RecordProperty("us_per_token", std::to_string(us));
    EXPECT_LT(us, 200);
    std::printf("accept + propose: %.2f us\n", us);
}

TEST(SuffixStore, ForgetsAnOwnerAlsoWhileASessionReads) {
    SuffixStore store({});
    const std::vector<Token> text = {1, 2, 3, 4, 5};
    const DraftKey a{.ns = kA, .lo = 1, .hi = 1}, b{.ns = kB, .lo = 1, .hi = 1};
    store.learn(std::span(&a, 1), text, text);
    store.learn(std::span(&b, 1), text, text);
    const std::size_t both = store.bytes();
    DraftSession session(store, std::span(&a, 1), std::vector<Token>{9, 1, 2});
    DraftController controller;
    Draft draft;
    session.propose(4, controller, draft);
    EXPECT_FALSE(draft.tokens.empty());
    store.forget(kA.owner);
    EXPECT_EQ(store.corpora(), 1U);
    EXPECT_EQ(store.bytes(), both / 2);
    session.propose(4, controller, draft);
    EXPECT_TRUE(draft.tokens.empty());
    session.accept(3);
    store.forget(kB.owner);
    EXPECT_EQ(store.bytes(), 0U);
}

}  // namespace
}  // namespace zerohop::draft
