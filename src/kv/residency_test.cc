#include "kv/residency.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>

#include "kv/testing/fake_llama.h"
#include "kv/testing/tokens.h"

namespace zerohop::kv {
namespace {

using Outcome = Grant::Outcome;
using How = Grant::How;

using testing::joined;
using testing::kA;
using testing::run_of;

// Residency and a fake llama.cpp side by side, as the engine will drive them.
class Rig {
  public:
    explicit Rig(const ResidencyConfig& config) : kv(config), llama(config) {}

    struct Live {
        std::vector<Token> tokens;
        std::uint32_t computed = 0;
    };

    Grant admit(const Namespace& ns, const std::vector<Token>& tokens, std::uint32_t reserve = 0,
                bool may_wait = true) {
        Grant g = kv.admit(
            {.ns = ns, .tokens = tokens, .reserve = reserve, .may_wait = may_wait, .now = now});
        llama.apply(g.steps);
        if (g.outcome == Outcome::kGo) {
            EXPECT_LT(g.cached, tokens.size());
            EXPECT_EQ(llama.after_copies(g.slot),
                      std::vector<Token>(tokens.begin(), tokens.begin() + g.cached));
            EXPECT_FALSE(live.contains(g.slot));
            live[g.slot] = {.tokens = tokens, .computed = g.cached};
        }
        kv.check();
        return g;
    }
    void compute(SlotId slot, std::uint32_t upto) {
        Live& l = live.at(slot);
        upto = std::min<std::uint32_t>(upto, static_cast<std::uint32_t>(l.tokens.size()));
        if (upto <= l.computed) return;
        llama.decode(slot, std::span(l.tokens).subspan(l.computed, upto - l.computed));
        kv.on_decode();
        kv.computed(slot, upto);
        l.computed = upto;
    }
    bool sample(SlotId slot, Token token) {
        Live& l = live.at(slot);
        std::vector<Step> steps;
        const bool fits = kv.cover(slot, static_cast<std::uint32_t>(l.tokens.size()) + 1, steps);
        llama.apply(steps);
        if (!fits) return false;
        l.tokens.push_back(token);
        kv.sampled(slot, token);
        return true;
    }
    void finish(SlotId slot, bool keep = true) {
        std::vector<Step> steps;
        kv.finish(slot, keep, steps);
        llama.apply(steps);
        live.erase(slot);
        kv.check();
    }
    Grant whole(const Namespace& ns, const std::vector<Token>& tokens) {
        const Grant g = admit(ns, tokens);
        EXPECT_EQ(g.outcome, Outcome::kGo);
        if (g.outcome != Outcome::kGo) return g;
        compute(g.slot, static_cast<std::uint32_t>(tokens.size()));
        finish(g.slot);
        return g;
    }

    Residency kv;
    testing::FakeLlama llama;
    std::map<SlotId, Live> live;
    MonoNs now = 0;
};

const Namespace kB = derive_namespace("b", "m");

ResidencyConfig unified() {
    return {.unified = true,
            .slots = 8,
            .pool_tokens = 4000,
            .slot_tokens = 4000,
            .pin_cap_tokens = 2000};
}
ResidencyConfig streams() {
    return {.unified = false,
            .slots = 4,
            .slot_tokens = 2000,
            .pin_cap_tokens = 2000,
            .costs = {.copy_fixed = 10e6, .copy_per_token = 1000}};
}

TEST(Residency, ContinuedConversationTakesItsSlotOver) {
    for (const auto& config : {unified(), streams()}) {
        Rig rig(config);
        const auto turn = run_of(0, 500);
        const Grant first = rig.whole(kA, turn);
        const Grant second = rig.whole(kA, joined(turn, run_of(5000, 40)));
        EXPECT_EQ(second.how, How::kTakeOver);
        EXPECT_EQ(second.slot, first.slot);
        EXPECT_EQ(second.cached, 500U);
        EXPECT_EQ(rig.whole(kB, turn).cached, 0U);
    }
}

TEST(Residency, ExactRepeatComputesOneToken) {
    for (const auto& config : {unified(), streams()}) {
        Rig rig(config);
        rig.whole(kA, run_of(0, 500));
        EXPECT_EQ(rig.whole(kA, run_of(0, 500)).cached, 499U);
    }
}

TEST(Residency, KeepsCellsFreeForThoseWhoWillCome) {
    ResidencyConfig config = unified();
    config.host_bytes = 1 << 30;
    config.bytes_per_token = 1000;
    Rig rig(config);
    rig.whole(kA, run_of(0, 1000));
    rig.whole(kA, run_of(10'000, 1000));
    const Grant running = rig.admit(kB, run_of(20'000, 1000));
    rig.compute(running.slot, 1000);
    const auto keep_free = [&](std::uint64_t tokens) {
        std::vector<Step> steps;
        rig.kv.keep_free(tokens, steps);
        rig.llama.apply(steps);
        rig.kv.check();
        return rig.kv.resident().counters().used_tokens;
    };
    EXPECT_EQ(keep_free(1000), 3000U);  // there already
    EXPECT_EQ(keep_free(1001), 2000U);  // the colder of the idle ones goes
    EXPECT_EQ(keep_free(4000), 1000U);  // and the other; never the running one
    EXPECT_EQ(rig.admit(kA, run_of(0, 1000)).how, How::kRestore);
}

TEST(Residency, EightAtOnceComputeTheirPrefixOnce) {
    for (ResidencyConfig config : {unified(), streams()}) {
        config.slots = 8;
        Rig rig(config);
        const auto system = run_of(0, 950);
        std::vector<std::vector<Token>> prompts;
        for (int i = 0; i < 8; ++i) prompts.push_back(joined(system, run_of(5000 + 100 * i, 20)));
        const Grant first = rig.admit(kA, prompts[0]);
        ASSERT_EQ(first.outcome, Outcome::kGo);
        for (int i = 1; i < 8; ++i) {
            const Grant g = rig.admit(kA, prompts[std::size_t(i)]);
            EXPECT_EQ(g.outcome, Outcome::kWait);
            EXPECT_EQ(g.wait_for, first.slot);
            EXPECT_EQ(g.wait_until, 950U);
        }
        rig.compute(first.slot, 512);
        EXPECT_EQ(rig.admit(kA, prompts[1]).outcome, Outcome::kWait);
        rig.compute(first.slot, 970);
        for (int i = 1; i < 8; ++i) {
            const Grant g = rig.admit(kA, prompts[std::size_t(i)]);
            EXPECT_EQ(g.outcome, Outcome::kGo);
            EXPECT_EQ(g.how, How::kCopy);
            EXPECT_EQ(g.cached, 950U);
        }
        if (config.unified) {
            EXPECT_LE(rig.llama.cells(), 970U);
        }
    }
}

TEST(Residency, CancelledOwnerDoesNotStrandTheWaiting) {
    Rig rig(streams());
    const Grant owner = rig.admit(kA, run_of(0, 900));
    rig.compute(owner.slot, 300);
    EXPECT_EQ(rig.admit(kA, run_of(0, 900)).outcome, Outcome::kWait);
    rig.finish(owner.slot);
    const Grant g = rig.admit(kA, run_of(0, 900));
    EXPECT_EQ(g.outcome, Outcome::kGo);
    EXPECT_EQ(g.cached, 300U);
}

TEST(Residency, HostTierHoldsWhatSlotsCannot) {
    for (ResidencyConfig config : {unified(), streams()}) {
        config.pool_tokens = 2000;
        config.host_bytes = 1ULL << 30;
        config.bytes_per_token = 1000;
        config.slot_tokens = 1000;
        Rig rig(config);
        for (int i = 0; i < 1000; ++i) rig.whole(kA, run_of(10'000 * i, 400));
        int found = 0;
        for (int i = 0; i < 1000; ++i)
            found += rig.whole(kA, joined(run_of(10'000 * i, 400), run_of(9000, 10))).cached == 400;
        EXPECT_EQ(found, 1000);
        EXPECT_LE(rig.kv.counters().blob_bytes, config.host_bytes);
    }
}

TEST(Residency, HostTierIsBounded) {
    ResidencyConfig config = streams();
    config.host_bytes = 2'000'000;
    config.bytes_per_token = 1000;
    Rig rig(config);
    for (int i = 0; i < 100; ++i) rig.whole(kA, run_of(10'000 * i, 400));
    EXPECT_LE(rig.kv.counters().blob_bytes, config.host_bytes);
    EXPECT_EQ(rig.kv.counters().blobs, rig.llama.blobs());
    EXPECT_GE(rig.kv.counters().blobs, 4U);
}

// Begins small; what comes back after it had to go makes it grow, what does not never.
TEST(Residency, HostTierGrowsByWhatItWouldHaveSaved) {
    ResidencyConfig config = streams();
    config.host_bytes = 20'000'000;
    config.host_first_bytes = 2'000'000;
    config.bytes_per_token = 1000;
    Rig rig(config);
    for (int i = 0; i < 100; ++i) rig.whole(kA, run_of(10'000 * i, 400));
    EXPECT_EQ(rig.kv.counters().host_limit, config.host_first_bytes);
    EXPECT_LE(rig.kv.counters().blob_bytes, config.host_first_bytes);
    const std::uint32_t before = rig.kv.counters().blobs;
    for (int round = 0; round < 4; ++round)
        for (int i = 0; i < 30; ++i) rig.whole(kA, run_of(10'000 * i, 400));
    EXPECT_GT(rig.kv.counters().host_limit, 4 * config.host_first_bytes);
    EXPECT_LE(rig.kv.counters().blob_bytes, config.host_bytes);
    EXPECT_GT(rig.kv.counters().blobs, 4 * before);
    EXPECT_EQ(rig.whole(kA, run_of(0, 400)).how, How::kRestore);
    EXPECT_EQ(rig.kv.counters().blobs, rig.llama.blobs());
}

TEST(Residency, HostTierGivesBackWhatNobodyUses) {
    ResidencyConfig config = streams();
    config.host_bytes = 20'000'000;
    config.host_first_bytes = 2'000'000;
    config.bytes_per_token = 1000;
    Rig rig(config);
    const auto shrink = [&](std::uint64_t most, MonoNs unused_since) {
        std::vector<Step> steps;
        rig.kv.shrink_host(most, unused_since, steps);
        rig.llama.apply(steps);
        rig.kv.check();
        EXPECT_EQ(rig.kv.counters().blobs, rig.llama.blobs());
        return rig.kv.counters().blob_bytes;
    };
    for (int round = 0; round < 4; ++round)
        for (int i = 0; i < 40; ++i) rig.whole(kA, run_of(10'000 * i, 400));
    const std::uint64_t all = rig.kv.counters().blob_bytes;
    EXPECT_EQ(shrink(all, 0), all);
    const std::uint64_t half = shrink(all / 2, 0);
    EXPECT_LE(half, all / 2);
    EXPECT_GT(half, all / 3);
    EXPECT_EQ(rig.kv.counters().host_limit, std::max(half, config.host_first_bytes));
    EXPECT_EQ(shrink(~0ULL, rig.now + 1), 0U);  // nobody has used them since
    EXPECT_EQ(rig.kv.counters().host_limit, config.host_first_bytes);
}

// A recurrent model's states have a size whatever the prompt's; what a save really took counts.
TEST(Residency, HostTierCountsStatesAndWhatSavesTook) {
    ResidencyConfig config = streams();
    config.host_bytes = 20'000'000;
    config.bytes_per_sequence = 3'000'000;
    config.partial_removal = false;
    Rig rig(config);
    for (int i = 0; i < 100; ++i) rig.whole(kA, run_of(10'000 * i, 400));
    const ResidencyCounters before = rig.kv.counters();
    EXPECT_LE(before.blobs, 6U);
    EXPECT_GE(before.blob_bytes, before.blobs * config.bytes_per_sequence);
    rig.kv.saved(before.saves, before.blob_bytes);  // the last one's id: they count up
    EXPECT_EQ(rig.kv.counters().blob_bytes,
              before.blob_bytes + before.blob_bytes - before.blob_bytes / before.blobs);
}

// With room for one of two: they would push each other out for as long as nobody comes.
TEST(Residency, SavingAheadEnds) {
    for (ResidencyConfig config : {unified(), streams()}) {
        config.host_bytes = 600'000;
        config.bytes_per_token = 1000;
        Rig rig(config);
        for (int i = 0; i < 2; ++i) rig.whole(kA, run_of(10'000 * i, 400));
        int saved = 0;
        for (std::vector<Step> steps; saved < 100 && rig.kv.save_ahead(steps); ++saved) {
            rig.llama.apply(steps);
            steps.clear();
        }
        EXPECT_EQ(saved, 1);
        rig.kv.check();
    }
}

TEST(Residency, PutsEverythingAwayWhenNobodyComes) {
    for (ResidencyConfig config : {unified(), streams()}) {
        config.bytes_per_token = 1000;
        const auto put_away = [](Rig& rig) {
            std::vector<Step> steps;
            const bool empty = rig.kv.put_away(steps);
            rig.llama.apply(steps);
            rig.kv.check();
            return empty;
        };
        Rig without(config);
        without.whole(kA, run_of(0, 400));
        EXPECT_FALSE(put_away(without));  // there is no other place for it
        config.host_bytes = 1ULL << 30;
        Rig rig(config);
        EXPECT_TRUE(put_away(rig));
        for (int i = 0; i < 3; ++i) rig.whole(kA, run_of(10'000 * i, 400));
        const Grant running = rig.admit(kA, run_of(50'000, 400));
        EXPECT_FALSE(put_away(rig));
        EXPECT_EQ(rig.kv.resident().counters().entries, 1U);  // the running one
        rig.compute(running.slot, 400);
        rig.finish(running.slot);
        EXPECT_TRUE(put_away(rig));
        for (int i = 0; i < 3; ++i)
            EXPECT_EQ(rig.whole(kA, run_of(10'000 * i, 400)).how, How::kRestore);
    }
}

TEST(Residency, RestoreThatDoesNotPayIsNotMade) {
    ResidencyConfig config = streams();
    config.host_bytes = 1ULL << 30;
    config.bytes_per_token = 1000;
    config.costs.restore_per_token = 2e6;  // dearer than computing
    Rig rig(config);
    for (int i = 0; i < 50; ++i) rig.whole(kA, run_of(10'000 * i, 400));
    EXPECT_EQ(rig.kv.counters().saves, 0U);
}

TEST(Residency, PinnedPrefixOutlivesTraffic) {
    for (const bool host : {false, true})
        for (ResidencyConfig config : {unified(), streams()}) {
            if (host) {
                config.host_bytes = 3'000'000;
                config.bytes_per_token = 1000;
            }
            Rig rig(config);
            const auto system = run_of(0, 600);
            const Grant g = rig.admit(kA, system);
            rig.compute(g.slot, 600);
            ASSERT_TRUE(rig.kv.pin(g.slot, 600, 1000).has_value());
            rig.finish(g.slot);
            for (int i = 1; i < 60; ++i) rig.whole(kB, run_of(10'000 * i, 700));
            EXPECT_GE(rig.kv.known_prefix(kA, system), 600U);
            rig.now = 1000;
            for (int i = 1; i < 60; ++i) rig.whole(kB, run_of(10'000 * i + 5000, 700));
            EXPECT_EQ(rig.kv.known_prefix(kA, system), 0U);
        }
}

// Prompts of four owners, pinned until 1000, 2000, … and idle.
void pin_four(Rig& rig, int tokens) {
    for (int i = 0; i < 4; ++i) {
        const Namespace ns = derive_namespace("owner " + std::to_string(i), "m");
        const Grant g = rig.admit(ns, run_of(10'000 * i, tokens));
        ASSERT_EQ(g.outcome, Outcome::kGo);
        rig.compute(g.slot, static_cast<std::uint32_t>(tokens));
        ASSERT_TRUE(rig.kv.pin(g.slot, static_cast<std::uint32_t>(tokens), 1000 * (i + 1)));
        rig.finish(g.slot);
    }
}
bool known(const Rig& rig, int owner) {
    const Namespace ns = derive_namespace("owner " + std::to_string(owner), "m");
    return rig.kv.known_prefix(ns, run_of(10'000 * owner, 100)) >= 100;
}

TEST(Residency, PinsNeverRefuseARequest) {
    for (const bool partial : {true, false})
        for (const bool host : {false, true})
            for (ResidencyConfig config : {unified(), streams()}) {
                config.partial_removal = partial;
                if (host) {
                    config.host_bytes = 10'000'000;
                    config.bytes_per_token = 1000;
                }
                Rig rig(config);
                pin_four(rig, 980);  // of 4000
                const Grant g = rig.admit(kB, run_of(0, 600));
                ASSERT_EQ(g.outcome, Outcome::kGo) << partial << host << config.unified;
                EXPECT_EQ(known(rig, 0), host) << "the pin that ends first goes first";
                for (int i = 1; i < 4; ++i) EXPECT_TRUE(known(rig, i));
                rig.finish(g.slot);
                EXPECT_EQ(rig.admit(kB, run_of(50'000, 1900)).outcome, Outcome::kGo);
            }
}

TEST(Residency, PinsStayWhereGivingThemUpWouldNotHelp) {
    Rig rig(unified());
    pin_four(rig, 500);
    const Grant big = rig.admit(kB, run_of(0, 1900));
    ASSERT_EQ(big.outcome, Outcome::kGo);
    EXPECT_EQ(rig.admit(kB, run_of(50'000, 2200)).outcome, Outcome::kFull);
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(known(rig, i));
    rig.finish(big.slot, false);
    EXPECT_EQ(rig.admit(kB, run_of(50'000, 2200)).outcome, Outcome::kGo);
}

TEST(Residency, PinsOfAllOwnersTogetherAreCapped) {
    for (ResidencyConfig config : {unified(), streams()}) {
        config.pin_total_tokens = 1000;
        Rig rig(config);
        for (const auto& [ns, allowed] : {std::pair(kA, true), std::pair(kB, false)}) {
            const Grant g = rig.admit(ns, run_of(0, 700));
            rig.compute(g.slot, 700);
            EXPECT_EQ(rig.kv.pin(g.slot, 700, 1000).has_value(), allowed);
            EXPECT_EQ(rig.kv.pin(g.slot, 300, 1000).has_value(), true);
            rig.finish(g.slot);
        }
        EXPECT_EQ(rig.kv.counters().resident.pinned_tokens, 1000U);
    }
}

// Emptying a pool of long entries looks at each token a few times, not once for each block.
TEST(Residency, EvictionIsLinear) {
    ResidencyConfig config = unified();
    config.pool_tokens = config.slot_tokens = 40'000;
    config.host_bytes = 1ULL << 30;
    config.bytes_per_token = 1000;
    Rig rig(config);
    for (int i = 0; i < 4; ++i) rig.whole(kA, run_of(10'000 * i, 9'600));
    const Grant g = rig.admit(kB, run_of(0, 39'000));
    ASSERT_EQ(g.outcome, Outcome::kGo);
    const ResidencyCounters c = rig.kv.counters();
    EXPECT_GE(c.resident.evicted_blocks, 2'300U);
    EXPECT_EQ(c.saves, 4U);
    EXPECT_LE(c.tokens_weighed, 3U * 40'000U);
    EXPECT_LE(g.steps.size(), 16U);
}

TEST(Residency, IdsTellNothingOfOthers) {
    ResidencyConfig config = unified();
    config.host_bytes = 1ULL << 30;
    config.bytes_per_token = 1000;
    Rig rig(config);
    std::vector<std::uint64_t> ids;
    for (int i = 0; i < 6; ++i) rig.whole(kA, run_of(10'000 * i, 900));
    std::vector<Holding> held;
    rig.kv.list(held);
    ASSERT_GE(held.size(), 6U);
    for (const Holding& h : held) ids.push_back(h.id);
    std::ranges::sort(ids);
    for (std::size_t i = 1; i < ids.size(); ++i)
        EXPECT_GT(ids[i] - ids[i - 1], 1U << 20) << "near each other: counted, not drawn";
    std::vector<Step> steps;
    for (const Holding& h : held) rig.kv.forget(kA.owner, h.id, steps);
    rig.llama.apply(steps);
    rig.kv.check();
    held.clear();
    rig.kv.list(held);
    EXPECT_TRUE(held.empty());
}

// Two that compute the same apart from each other: one path in the tree, two sets of cells.
TEST(Residency, DuplicatesAreCounted) {
    ResidencyConfig config = unified();
    config.pool_tokens = config.slot_tokens = 1000;
    Rig rig(config);
    const Grant a = rig.admit(kA, run_of(0, 300), 100, false);
    const Grant b = rig.admit(kA, run_of(0, 300), 100, false);
    for (const SlotId s : {a.slot, b.slot}) {
        rig.compute(s, 300);
        for (int i = 0; i < 100; ++i) {
            ASSERT_TRUE(rig.sample(s, 7));
            rig.compute(s, static_cast<std::uint32_t>(301 + i));
        }
    }
    EXPECT_EQ(rig.llama.cells(), 800U);
    EXPECT_EQ(rig.admit(kB, run_of(0, 201)).outcome, Outcome::kFull);
    EXPECT_EQ(rig.admit(kB, run_of(0, 200)).outcome, Outcome::kGo);
}

TEST(Residency, FullAndNever) {
    ResidencyConfig config = unified();
    config.slot_tokens = 3000;
    Rig rig(config);
    EXPECT_EQ(rig.admit(kA, run_of(0, 3001)).outcome, Outcome::kNever);
    const Grant a = rig.admit(kA, run_of(0, 2500), 400);
    EXPECT_EQ(a.outcome, Outcome::kGo);
    EXPECT_EQ(rig.admit(kA, run_of(50'000, 1500)).outcome, Outcome::kFull);
    rig.finish(a.slot, false);
    EXPECT_EQ(rig.admit(kA, run_of(50'000, 1500)).outcome, Outcome::kGo);
}

TEST(Residency, WithoutPartialRemovalOnlyWholeSequencesHelp) {
    ResidencyConfig config = unified();
    config.partial_removal = false;
    Rig rig(config);
    const auto turn = run_of(0, 500);
    rig.whole(kA, turn);
    EXPECT_EQ(rig.whole(kA, joined(run_of(0, 400), run_of(9000, 50))).cached, 0U);
    EXPECT_EQ(rig.whole(kA, turn).cached, 0U) << "its last token would have to be removed";
    EXPECT_EQ(rig.whole(kA, joined(turn, run_of(7000, 50))).cached, 500U);
}

TEST(Residency, FailedRestoreIsForgotten) {
    ResidencyConfig config = streams();
    config.host_bytes = 1ULL << 30;
    config.bytes_per_token = 1000;
    Rig rig(config);
    for (int i = 0; i < 5; ++i) rig.whole(kA, run_of(10'000 * i, 400));
    const Grant g = rig.admit(kA, run_of(0, 410));
    ASSERT_EQ(g.how, How::kRestore);
    std::vector<Step> steps;
    rig.kv.abandon(g.slot, steps);
    rig.llama.apply(steps);
    rig.live.erase(g.slot);
    EXPECT_EQ(rig.admit(kA, run_of(0, 410)).how, How::kCompute);
}

// Random traffic against llama.cpp's rules: every plan must be valid and give the right prefix.
void storm(const ResidencyConfig& config, unsigned seed, int steps, ResidencyCounters& sum) {
    std::mt19937 rng(seed);
    Rig rig(config);
    const auto prompt = [&] {
        std::vector<Token> out;
        const int runs = 1 + static_cast<int>(rng() % 3);
        for (int r = 0; r < runs; ++r)
            out = joined(std::move(out), run_of(static_cast<Token>(1000 * (rng() % 5)),
                                                1 + static_cast<int>(rng() % 120)));
        return out;
    };
    const auto some = [&] {
        auto it = rig.live.begin();
        std::advance(it, rng() % rig.live.size());
        return it->first;
    };
    for (int i = 0; i < steps; ++i) {
        const unsigned what = rng() % 12;
        if (what < 4 || rig.live.empty()) {
            const Grant g = rig.admit(rng() % 2 ? kA : kB, prompt(), rng() % 60, rng() % 3 != 0);
            if (g.outcome == Outcome::kGo && rng() % 15 == 0) {
                std::vector<Step> undo;
                rig.kv.abandon(g.slot, undo);
                rig.llama.apply(undo);
                rig.live.erase(g.slot);
            }
            if (g.outcome == Outcome::kWait) {
                ASSERT_TRUE(rig.live.contains(g.wait_for));
                ASSERT_LT(rig.live.at(g.wait_for).computed, g.wait_until);
            }
        } else if (what < 7) {
            const SlotId s = some();
            rig.compute(s, rig.live.at(s).computed + 1 + static_cast<std::uint32_t>(rng() % 200));
        } else if (what < 9) {
            const SlotId s = some();
            const auto& l = rig.live.at(s);
            for (unsigned n = rng() % 40; n > 0 && l.computed == l.tokens.size(); --n) {
                if (!rig.sample(s, rng() % 100 == 0)) break;
                rig.compute(s, l.computed + 1);
            }
        } else if (what < 11) {
            rig.finish(some(), rng() % 5 != 0);
        } else {
            const SlotId s = some();
            (void)rig.kv.pin(s, 1 + static_cast<std::uint32_t>(rng() % 100), rig.now + 20);
            rig.now += static_cast<MonoNs>(rng() % 10);
        }
        if (::testing::Test::HasFailure()) return;
    }
    while (!rig.live.empty()) rig.finish(rig.live.begin()->first);
    const ResidencyCounters c = rig.kv.counters();
    EXPECT_EQ(c.blobs, rig.llama.blobs());
    sum.take_overs += c.take_overs;
    sum.copies += c.copies;
    sum.restores += c.restores;
    sum.computes += c.computes;
    sum.waits += c.waits;
    sum.saves += c.saves;
    sum.blobs_dropped += c.blobs_dropped;
    sum.resident.evicted_blocks += c.resident.evicted_blocks;
}

TEST(Residency, StormKeepsLlamasRules) {
    ResidencyCounters sum;
    for (unsigned seed = 0; seed < 12; ++seed)
        for (const bool is_unified : {true, false})
            for (const bool partial : {true, false})
                for (const bool host : {true, false}) {
                    ResidencyConfig config{.unified = is_unified,
                                           .slots = 1 + seed % 6,
                                           .pool_tokens = 700,
                                           .slot_tokens = 500,
                                           .partial_removal = partial,
                                           .host_bytes = host ? 1'000'000U : 0U,
                                           .bytes_per_token = 1000,
                                           .pin_cap_tokens = 150,
                                           .min_wait = 8};
                    storm(config, seed, 400, sum);
                    if (HasFailure()) {
                        ADD_FAILURE() << seed << is_unified << partial << host;
                        return;
                    }
                }
    // The storm reached every way there is.
    for (const std::uint64_t n : {sum.take_overs, sum.copies, sum.restores, sum.computes, sum.waits,
                                  sum.saves, sum.blobs_dropped, sum.resident.evicted_blocks})
        EXPECT_GT(n, 100U);
    std::printf("take over %lu, copy %lu, restore %lu, compute %lu, wait %lu, save %lu\n",
                sum.take_overs, sum.copies, sum.restores, sum.computes, sum.waits, sum.saves);
}

}  // namespace
}  // namespace zerohop::kv
