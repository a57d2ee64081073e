#include "draft/draft_controller.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

namespace zerohop::draft {
namespace {

// A model of the machine: what a step of n tokens costs, and how often draft tokens are right.
struct Trace {
    std::function<double(std::uint32_t)> cost;
    std::function<double(int step)> truth;  // chance that a draft token is right
    std::uint32_t sequences = 1;
    std::uint32_t draft_length = 16;
    Evidence evidence = evidence_of(1, 5, 3, 3);
    double noise = 0.05;
};

struct Outcome {
    double speedup = 1;       // against plain steps for the same tokens
    double worst_window = 1;  // the same over any 2,000 steps
};

Outcome run(const Trace& trace, int steps) {
    DraftController controller;
    std::mt19937 rng(17);
    std::uniform_real_distribution<double> uniform(0, 1);
    Draft draft;
    for (std::uint32_t i = 0; i < trace.draft_length; ++i) {
        draft.tokens.push_back(1);
        draft.evidence.push_back(trace.evidence);
    }
    std::vector<Luck> luck(trace.sequences);
    double spent = 0, plain = 0, window_spent = 0, window_plain = 0, worst = 1e9;
    for (int step = 0; step < steps; ++step) {
        std::vector<DraftController::Wish> wishes;
        for (Luck& l : luck) wishes.push_back({.draft = &draft, .luck = &l});
        controller.allocate(wishes, trace.sequences);
        std::uint32_t drafted = 0, accepted = 0;
        for (std::size_t s = 0; s < wishes.size(); ++s) {
            std::uint32_t right = 0;
            while (right < wishes[s].allowed && uniform(rng) < trace.truth(step)) ++right;
            drafted += wishes[s].allowed;
            accepted += right;
            controller.accepted(draft, wishes[s].allowed, right, luck[s]);
        }
        const double ns =
            trace.cost(trace.sequences + drafted) * (1 + trace.noise * (2 * uniform(rng) - 1));
        controller.step_done(trace.sequences, 0, drafted, accepted, ns);
        spent += ns;
        plain += trace.cost(trace.sequences) * (trace.sequences + accepted) / trace.sequences;
        if (step % 2000 == 1999) {
            worst = std::min(worst, (plain - window_plain) / (spent - window_spent));
            window_plain = plain;
            window_spent = spent;
        }
    }
    return {.speedup = plain / spent, .worst_window = worst};
}

// ENGINE.md's tables: flash attention off (cheap batches) and on with f16 (dear ones), in ms.
double cheap_batches(std::uint32_t n) { return 1e6 * (10.5 + 2.3 * n); }
double dear_batches(std::uint32_t n) { return 1e6 * (7 + 13.2 * n); }

TEST(DraftController, GoodDraftsPay) {
    EXPECT_GT(run({.cost = cheap_batches, .truth = [](int) { return 0.97; }}, 4000).speedup, 2.0);
    EXPECT_GT(run({.cost = cheap_batches, .truth = [](int) { return 0.7; }}, 4000).speedup, 1.2);
}

TEST(DraftController, NeverMuchSlower) {
    for (const double truth : {0.0, 0.05, 0.2, 0.4})
        for (const auto& cost : {cheap_batches, dear_batches})
            for (const std::uint32_t sequences : {1U, 4U, 8U})
                for (const Evidence& e : {evidence_of(0, 1, 1, 1), evidence_of(1, 20, 9, 9)}) {
                    const Outcome o = run({.cost = cost,
                                           .truth = [=](int) { return truth; },
                                           .sequences = sequences,
                                           .evidence = e},
                                          6000);
                    EXPECT_GE(o.speedup, 0.985) << truth << ' ' << sequences;
                    EXPECT_GE(o.worst_window, 0.98) << truth << ' ' << sequences;
                }
}

TEST(DraftController, DearBatchesAreLeftAlone) {
    EXPECT_GE(run({.cost = dear_batches, .truth = [](int) { return 0.6; }}, 4000).speedup, 0.985);
}

TEST(DraftController, LuckThatTurnsIsNoticed) {
    const auto turns = [](int step) { return step / 4000 % 2 == 0 ? 0.95 : 0.0; };
    const Outcome o = run({.cost = cheap_batches, .truth = turns}, 16'000);
    EXPECT_GT(o.speedup, 1.3);
    EXPECT_GE(o.worst_window, 0.98);
}

TEST(DraftController, RecoversFromABadStart) {
    const auto late = [](int step) { return step < 3000 ? 0.0 : 0.95; };
    EXPECT_GT(run({.cost = cheap_batches, .truth = late}, 12'000).speedup, 1.5);
}

TEST(DraftController, TakesTheBestOfSeveralSequences) {
    DraftController c;
    for (std::uint32_t n = 1; n <= 64; ++n) c.seed_cost(n, cheap_batches(n));
    Draft good, bad;
    for (int i = 0; i < 16; ++i) {
        good.tokens.push_back(1);
        good.evidence.push_back(evidence_of(1, 20, 50, 50));
        bad.tokens.push_back(1);
        bad.evidence.push_back(evidence_of(0, 1, 1, 9));
    }
    Luck a, b;
    std::vector<DraftController::Wish> wishes = {{.draft = &bad, .luck = &a},
                                                 {.draft = &good, .luck = &b}};
    c.allocate(wishes, 2);
    EXPECT_EQ(wishes[0].allowed, 0U);
    EXPECT_GE(wishes[1].allowed, 4U);
}

// At a prompt's end: the call is there anyway, so a likely token is worth more than its row costs,
// and an unlikely one is not.
TEST(DraftController, EndsOfPromptsGetWhatPaysForItsRows) {
    for (const double share : {0.9, 0.05}) {
        DraftController c;
        for (std::uint32_t n = 1; n <= 128; ++n) c.seed_cost(n, 1e6 * (5 + 0.8 * n));
        Draft draft;
        for (int i = 0; i < 8; ++i) {
            draft.tokens.push_back(1);
            draft.evidence.push_back(evidence_of(1, 20, 50, 50));
        }
        Luck luck;
        for (int i = 0; i < 200; ++i) c.accepted(draft, 1, i < 200 * share ? 1 : 0, luck);
        Luck fresh;
        std::vector<DraftController::Wish> wishes = {{.draft = &draft, .luck = &fresh}};
        c.allocate(wishes, 1, 40);
        EXPECT_EQ(wishes[0].allowed > 0, share > 0.5) << share;
    }
}

TEST(DraftController, ASlowStepIsNotTheCost) {
    StepCost cost;
    for (int i = 0; i < 20; ++i) cost.observe(1, 10e6);
    cost.observe(1, 900e6);
    EXPECT_LT(cost.at(1), 12e6);
    cost.observe(16, 900e6);  // the first of its size
    EXPECT_LT(cost.at(16), 100e6);
    for (int i = 0; i < 3; ++i) cost.observe(16, 40e6);
    EXPECT_LT(cost.at(16), 41e6);
}

TEST(DraftController, CostBetweenMeasurements) {
    StepCost cost;
    EXPECT_EQ(cost.at(3), 0);
    cost.observe(1, 10);
    cost.observe(5, 30);
    EXPECT_DOUBLE_EQ(cost.at(3), 20);
    EXPECT_GE(cost.at(20), 30);
}

}  // namespace
}  // namespace zerohop::draft
