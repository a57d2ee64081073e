// Caches with a real model: what is shared, what it changes (nothing), whose it is.
#include <gtest/gtest.h>
#include <llama.h>

#include <array>
#include <cmath>
#include <map>

#include "engine/attention_job.h"
#include "engine/testing/llama_kit.h"

namespace zerohop::engine {
namespace {

using namespace testkit;

// With our kernel f16, the usual layout, computes a row alike in whatever batch it stands; with
// ggml's only bf16 does.
const char* rows_alone() { return has_avx512() ? "f16" : "bf16"; }

TEST(LlamaCache, ASecondRequestReadsWhatTheFirstComputed) {
    NEED_MODEL();
    auto engine = load(base_options());
    const std::string text = filler(300, 1) + "What is this list about?";
    const Answer first = answer_of(*engine, ask_as("a", text));
    const Answer second = answer_of(*engine, ask_as("a", text));
    ASSERT_TRUE(first.done && second.done);
    EXPECT_EQ(first.done->usage.cache_read_tokens, 0);
    EXPECT_EQ(second.done->usage.cache_read_tokens, first.prepared - 1);
    // Another workspace finds nothing of it: the counters say so, and all of its prompt is
    // computed, so that time does not tell either.
    const std::uint64_t before = engine->stats_approx().prompt_tokens_computed;
    const Answer other = answer_of(*engine, ask_as("b", text));
    ASSERT_TRUE(other.done);
    EXPECT_EQ(engine->stats_approx().prompt_tokens_computed - before,
              static_cast<std::uint64_t>(other.prepared));
    EXPECT_EQ(other.done->usage.cache_read_tokens, 0);
    EXPECT_EQ(other.text, first.text);  // computed in the same way, from nothing
    // A conversation goes on where it was, the answer included.
    auto next = ask_as("a", text);
    next->turns.push_back({Role::kAssistant, {first.text}});
    next->turns.push_back({Role::kUser, {"Thank you. And now?"}});
    const Answer third = answer_of(*engine, next);
    ASSERT_TRUE(third.done);
    EXPECT_GE(third.done->usage.cache_read_tokens, first.prepared);
    engine->forget_cached("a", 0);
    ASSERT_TRUE(eventually([&] {
        const auto list = engine->cached_approx();
        return list != nullptr && std::ranges::none_of(*list, [](const CacheEntry& entry) {
                   return entry.workspace == "a";
               });
    }));
    EXPECT_EQ(answer_of(*engine, ask_as("a", text)).done->usage.cache_read_tokens, 0);
}

TEST(LlamaCache, AUserOfAWorkspaceCanBeAlone) {
    NEED_MODEL();
    auto engine = load(base_options());
    const std::string text = filler(60, 2);
    const auto as = [&](const char* user) {
        auto request = ask_as("a", text, 2);
        request->cache_user = user;
        return answer_of(*engine, request).done->usage.cache_read_tokens;
    };
    EXPECT_EQ(as("ann"), 0);
    EXPECT_EQ(as("bob"), 0);
    EXPECT_GT(as("ann"), 40);
}

TEST(LlamaCache, AGroupOfWorkspacesIsOne) {
    NEED_MODEL();
    auto engine = load(base_options());
    const std::string text = filler(60, 7);
    const auto read = [&](const char* workspace, const char* group) {
        auto request = ask_as(workspace, text, 2);
        request->principal.cache_group = group;
        return answer_of(*engine, request).done->usage.cache_read_tokens;
    };
    EXPECT_EQ(read("a", "a+b"), 0);
    EXPECT_GT(read("b", "a+b"), 40);
    EXPECT_EQ(read("c", ""), 0);
    EXPECT_EQ(read("a", ""), 0);
    EXPECT_EQ(read("a+b", ""), 0);  // not even a workspace that is called so
    engine->forget_cached("a", 0);
    EXPECT_GT(read("b", "a+b"), 40);
    engine->forget_cached("a+b", 0);
    EXPECT_EQ(read("b", "a+b"), 0);
}

TEST(LlamaCache, BreakpointsAreCountedAndPinned) {
    NEED_MODEL();
    LlamaOptions options = base_options();
    options.threads = 2;
    options.pin_share = 0.5;
    auto engine = load(options);
    const auto request = [&](const char* question) {
        auto r = ask_as("a", question, 4);
        r->turns.insert(r->turns.begin(), Turn{Role::kSystem, {filler(200, 3), filler(50, 4)}});
        r->breakpoints = {{.turn = 0, .part = 0, .ttl_ns = 3600 * kNsPerSec},
                          {.turn = 0, .part = 1, .ttl_ns = 300 * kNsPerSec}};
        return r;
    };
    const Usage first = answer_of(*engine, request("One?")).done->usage;
    EXPECT_GT(first.cache_write_1h_tokens, 190);
    EXPECT_GT(first.cache_write_5m_tokens, 45);
    EXPECT_EQ(first.cache_read_tokens, 0);
    const Answer second = answer_of(*engine, request("Two, then?"));
    EXPECT_GE(second.done->usage.cache_read_tokens,
              first.cache_write_1h_tokens + first.cache_write_5m_tokens);
    EXPECT_EQ(second.done->usage.cache_write_1h_tokens + second.done->usage.cache_write_5m_tokens,
              0);
    EXPECT_GT(second.done->cached_until_ns, mono_now() + 3000 * kNsPerSec);
    const auto pinned = [&] {
        const auto list = engine->cached_approx();
        return list != nullptr && std::ranges::any_of(*list, [](const CacheEntry& entry) {
                   return entry.pinned_until > mono_now();
               });
    };
    EXPECT_TRUE(eventually(pinned));
    // More than the pool holds passes by; what is pinned stays.
    for (unsigned i = 0; i < 9; ++i)
        ASSERT_TRUE(answer_of(*engine, ask_as("a", filler(400, 100 + i), 1)).done);
    EXPECT_GE(answer_of(*engine, request("Three?")).done->usage.cache_read_tokens,
              first.cache_write_1h_tokens + first.cache_write_5m_tokens);
}

TEST(LlamaCache, WaitingRequestsShareWhatOneComputes) {
    NEED_MODEL();
    LlamaOptions options = base_options();
    for (const bool beside : {true, false}) {
        options.side_prefill = beside;
        auto engine = load(options);
        std::vector<StreamPtr> streams;
        const std::string system = filler(400, 5);
        for (int i = 0; i < 6; ++i) {
            auto r = ask_as("a", "Question " + std::to_string(i * 7919) + "?", 4);
            r->turns.insert(r->turns.begin(), Turn{Role::kSystem, {system}});
            streams.push_back(submit(*engine, r));
        }
        std::int32_t prompts = 0;
        for (const StreamPtr& stream : streams) {
            const Answer answer = wait_for(*stream);
            ASSERT_TRUE(answer.done);
            prompts = answer.prepared;
        }
        const std::uint64_t computed = engine->stats_approx().prompt_tokens_computed;
        EXPECT_LT(computed, static_cast<std::uint64_t>(prompts + 6 * 40));
    }
}

TEST(LlamaCache, MorePrefixesThanThePoolHoldsAreKeptInHostMemory) {
    NEED_MODEL();
    LlamaOptions options = base_options();
    options.threads = 2;
    options.kv_tokens = 1024;
    options.cache_host_bytes = 2LL << 30;
    auto engine = load(options);
    constexpr unsigned kPrefixes = kSanitized ? 30 : 60;
    for (unsigned i = 0; i < kPrefixes; ++i)
        ASSERT_TRUE(answer_of(*engine, ask_as("a", filler(40, 1000 + i), 1)).done) << i;
    EXPECT_GT(engine->stats_approx().host_bytes, 0U);
    unsigned found = 0;
    for (unsigned i = 0; i < kPrefixes; ++i) {
        const Answer again = answer_of(*engine, ask_as("a", filler(40, 1000 + i), 1));
        ASSERT_TRUE(again.done) << i;
        if (again.done->usage.cache_read_tokens == again.prepared - 1) ++found;
    }
    EXPECT_EQ(found, kPrefixes);
}

// Every batch once with shared cells, once with each sequence computing its own beginning in the
// same split: the logits are the same to the bit. In batches below 64 rows, where attention does
// not depend on where in the pool a cell lies (larger ones go by tiles of 64 cells).
TEST(LlamaCache, SharedCellsGiveTheLogitsOfUnsharedOnes) {
    NEED_MODEL();
    LlamaOptions options = base_options();
    options.batch_tokens = 48;
    options.side_prefill = false;
    std::vector<Recorded> records;
    options.on_step = [&](const StepRecord& record) { records.emplace_back(record); };
    {
        auto engine = load(options);
        const std::string system = filler(120, 6);
        for (int i = 0; i < 4; ++i) {
            auto r = ask_as("a", "Question " + std::to_string(i * 7919) + "?", 6);
            r->turns.insert(r->turns.begin(), Turn{Role::kSystem, {system}});
            ASSERT_TRUE(answer_of(*engine, r).done);
        }
    }
    Replay shared(options), unshared(options);
    unshared.recompute_copies = true;
    int copies = 0;
    for (const Recorded& record : records) {
        copies += record.record.copied_from >= 0 ? 1 : 0;
        ASSERT_NO_FATAL_FAILURE(shared.apply(record.get()));
        ASSERT_NO_FATAL_FAILURE(unshared.apply(record.get()));
        ASSERT_EQ(shared.logits, unshared.logits);
    }
    EXPECT_GT(copies, 0);
    EXPECT_GT(shared.compared, 10);
}

struct Output {
    std::vector<std::string> texts;
    std::vector<std::vector<std::int32_t>> tokens;  // of the requests, one by one
    std::vector<std::int32_t> prompts;
    EngineStats stats;
};

std::string short_prompt(int i) {
    return "List " + std::to_string(i % 7) + " facts about " + filler(3, static_cast<unsigned>(i)) +
           "and repeat: " + filler(6, static_cast<unsigned>(i / 4));
}

const std::size_t kPrompts = long_tests() ? 200 : kSanitized ? 16 : 40;
constexpr int kTokens = 10;

Output answer_all(LlamaOptions options, bool one_by_one) {
    Output out;
    std::vector<std::int32_t> tokens;
    options.threads = 2;
    if (one_by_one)
        options.on_step = [&](const StepRecord& record) {
            for (const StepToken& token : record.tokens) tokens.push_back(token.token);
        };
    auto engine = load(options);
    const int width = one_by_one ? 1 : 8;
    for (int i = 0; i < static_cast<int>(kPrompts); i += width) {
        std::vector<StreamPtr> streams;
        tokens.clear();
        for (int k = i; k < i + width; ++k)
            streams.push_back(submit(*engine, ask_as("a", short_prompt(k), kTokens)));
        for (const StreamPtr& stream : streams) {
            const Answer answer = wait_for(*stream);
            out.texts.push_back(answer.text);
            out.prompts.push_back(answer.prepared);
        }
        out.tokens.push_back(tokens);
    }
    out.stats = engine->stats_approx();
    return out;
}

// Drafts (each one tried), and then caches too, eight requests at once, against a plain engine, one
// by one: the same texts, or they part at a tie within what the place of cells in the pool alone
// changes.
TEST(LlamaCache, TextIsThatOfAPlainEngine) {
    NEED_MODEL();
    LlamaOptions none = base_options();
    none.kv_type = rows_alone();
    none.prefix_cache = none.drafts = none.side_prefill = false;
    const Output plain = answer_all(none, true);
    EXPECT_EQ(plain.stats.drafts_proposed, 0U);
    Bare bare(none);
    float tolerance = 0;
    for (std::size_t i = 0; i < kPrompts; i += 10)
        tolerance = std::max(tolerance, place_tolerance(bare, plain.tokens[i]));
    const auto compare = [&](const char* what, const Output& output) {
        float largest = 0;
        std::size_t different = 0;
        for (std::size_t i = 0; i < kPrompts; ++i) {
            if (output.texts[i] == plain.texts[i]) continue;
            ++different;
            const FirstDifference d = first_difference(
                bare, plain.tokens[i], static_cast<std::size_t>(plain.prompts[i]), output.texts[i]);
            largest = std::max(largest, d.gap);
            tolerance = std::max(tolerance,
                                 place_tolerance(bare, std::span(plain.tokens[i]).first(d.tokens)));
        }
        printf("%s: %zu of %zu differ, by at most %.3f; places of cells alone: %.3f\n", what,
               different, kPrompts, static_cast<double>(largest), static_cast<double>(tolerance));
        EXPECT_LE(largest, tolerance) << what;
        EXPECT_LE(different, kPrompts / 3) << what;  // a fifth is usual: lists have many ties
    };
    LlamaOptions options = none;
    options.drafts = options.drafts_always = true;
    const Output drafted = answer_all(options, false);
    EXPECT_GT(drafted.stats.drafts_accepted, kPrompts / 4);
    EXPECT_GT(drafted.stats.drafts_proposed, drafted.stats.drafts_accepted);
    compare("drafts", drafted);
    options.prefix_cache = options.side_prefill = true;
    const Output cached = answer_all(options, false);
    EXPECT_GT(cached.stats.block_hits, kPrompts / 2);
    compare("drafts and caches", cached);
}

// Drafts on against off at temperature 1: the two-token completions of one prompt are distributed
// alike. The draft is right in about half of the cases, so both ways are taken. Both runs have the
// same seeds, rows that do not depend on their batch, and one request at a time: with several the
// cells of one lie in another order in the pool from run to run, which moves logits by up to 0.25.
// What is left is what drafts do.
TEST(LlamaCache, DraftsDoNotChangeTheDistribution) {
    NEED_MODEL();
    const int samples = long_tests() ? 10'000 : kSanitized ? 100 : 400;
    const auto count = [&](bool drafts) {
        LlamaOptions options = base_options();
        options.kv_type = rows_alone();
        options.max_sequences = 1;
        options.drafts = options.drafts_always = drafts;
        options.sampling = {};
        options.sampling.temperature = 1.0F;
        options.sampling.top_k = 4;
        auto engine = load(options);
        std::map<std::string, int> counts;
        std::uint32_t seed = 1;
        for (int i = 0; i < samples; i += 50) {
            std::vector<StreamPtr> streams;
            streams.reserve(50);
            for (int k = 0; k < 50; ++k) {
                auto r = ask_as("a", "Say one colour.", 3);
                r->sampling.seed = seed++;
                streams.push_back(submit(*engine, r));
            }
            for (const StreamPtr& stream : streams) ++counts[wait_for(*stream).text];
        }
        if (drafts) {
            const EngineStats stats = engine->stats_approx();
            EXPECT_GT(stats.drafts_accepted, static_cast<std::uint64_t>(samples / 20));
            EXPECT_GT(stats.drafts_proposed, stats.drafts_accepted);
        }
        return counts;
    };
    const auto with = count(true), without = count(false);
    // Two-sample chi-square over the outcomes seen at least ten times, the rest together.
    double chi = 0;
    std::array<double, 2> rest{};
    int cells = 0;
    const auto add = [&](double a, double b) {
        if (a + b < 10) return;
        chi += (a - b) * (a - b) / (a + b);
        ++cells;
    };
    std::map<std::string, int> keys = with;
    keys.insert(without.begin(), without.end());
    const auto seen = [](const std::map<std::string, int>& counts, const std::string& text) {
        const auto it = counts.find(text);
        return it == counts.end() ? 0.0 : static_cast<double>(it->second);
    };
    for (const auto& entry : keys) {
        const double a = seen(with, entry.first);
        const double b = seen(without, entry.first);
        if (a + b >= 10)
            add(a, b);
        else
            rest = {rest[0] + a, rest[1] + b};
    }
    add(rest[0], rest[1]);
    const double freedom = cells - 1;
    // p = 0.001 by Wilson and Hilferty's approximation.
    const double z = 3.09, t = 2.0 / (9.0 * freedom);
    const double limit = freedom * std::pow(1 - t + z * std::sqrt(t), 3);
    EXPECT_GT(cells, 3);
    EXPECT_LT(chi, limit) << cells << " cells";
}

}  // namespace
}  // namespace zerohop::engine
