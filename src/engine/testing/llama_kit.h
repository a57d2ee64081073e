// What tests of LlamaEngine with a real model share. ZEROHOP_TEST_MODEL names a small instruct GGUF
// (SmolLM2-135M); without it they are skipped.
#pragma once

#include <gtest/gtest.h>
#include <llama.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/llama_engine.h"
#include "engine/llama_glue.h"
#include "engine/testing/kit.h"

// Under a sanitizer our code is slow and its logic the same: a few repetitions do.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ZEROHOP_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define ZEROHOP_SANITIZED 1
#endif
#endif

namespace zerohop::engine::testkit {

#ifdef ZEROHOP_SANITIZED
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// ZEROHOP_LONG_TESTS=1: as many samples as a figure takes; else as many as a fault takes.
inline bool long_tests() { return std::getenv("ZEROHOP_LONG_TESTS") != nullptr; }

inline std::string model_path() {
    const char* path = std::getenv("ZEROHOP_TEST_MODEL");
    return path != nullptr ? path : "";
}

#define NEED_MODEL() \
    if (model_path().empty()) GTEST_SKIP() << "ZEROHOP_TEST_MODEL is not set"

inline LlamaOptions base_options() {
    LlamaOptions options;
    options.path = model_path();
    options.kv_tokens = 4096;
    options.max_sequences = 8;
    options.tune = options.trial = false;
    options.threads = 1;  // what several compute depends in its last bits on who came first
    options.sampling.temperature = 0.0F;
    options.cache_host_bytes = 0;
    return options;
}

inline std::unique_ptr<EnginePort> load(const LlamaOptions& options) {
    auto engine = load_llama(options, {});
    if (!engine) ADD_FAILURE() << engine.error().detail;
    return engine ? std::move(*engine) : nullptr;
}

inline std::shared_ptr<Request> ask_as(const char* workspace, std::string text,
                                       std::int32_t tokens = 8) {
    auto request = ask(std::move(text), tokens);
    request->principal.workspace = workspace;
    request->structure[0] = {.lo = 1, .hi = 2};
    return request;
}

// Words in an order that `seed` chooses.
inline std::string filler(int words, unsigned seed) {
    constexpr const char* kWords[] = {"river",  "stone",  "winter", "market", "letter", "engine",
                                      "garden", "signal", "window", "paper",  "bridge", "quiet"};
    std::mt19937 random(seed);
    std::string text;
    for (int i = 0; i < words; ++i) text.append(kWords[random() % 12]).append(" ");
    return text;
}

// Replays the engine's own batches on a bare context and expects the same tokens.
class Replay {
  public:
    explicit Replay(const LlamaOptions& options) {
        llama_model_params model_params = llama_model_default_params();
        model_.reset(llama_model_load_from_file(options.path.c_str(), model_params));
        llama_context_params params = llama_context_default_params();
        params.n_ctx = static_cast<std::uint32_t>(options.kv_tokens);
        params.n_batch = static_cast<std::uint32_t>(std::max(options.batch_tokens, 64));
        params.n_ubatch = static_cast<std::uint32_t>(options.ubatch_tokens);
        params.n_seq_max = 64;
        params.n_threads = params.n_threads_batch = options.threads;
        params.flash_attn_type = options.flash_attention.value_or(true)
                                     ? LLAMA_FLASH_ATTN_TYPE_ENABLED
                                     : LLAMA_FLASH_ATTN_TYPE_DISABLED;
        params.kv_unified = options.unified.value_or(true);
        context_.reset(llama_init_from_model(model_.get(), params));
    }

    void apply(const StepRecord& record) {
        if (record.removed_sequence >= 0) {
            if (record.removed_from == 0) history_[record.removed_sequence].clear();
            llama_memory_seq_rm(llama_get_memory(context_.get()), record.removed_sequence,
                                record.removed_from > 0 ? record.removed_from : -1, -1);
            return;
        }
        logits.clear();
        if (record.copied_from >= 0 && recompute_copies) {
            ASSERT_NO_FATAL_FAILURE(
                recompute(record.copied_from, record.copied_to, record.copied_length));
            return;
        }
        if (record.copied_from >= 0) {
            const std::vector<Split>& from = history_[record.copied_from];
            history_[record.copied_to] = from;
            llama_memory_seq_cp(llama_get_memory(context_.get()), record.copied_from,
                                record.copied_to, 0, record.copied_length);
            return;
        }
        const auto all = static_cast<std::int32_t>(record.tokens.size());
        const std::int32_t chunk = record.chunk > 0 ? record.chunk : all;
        for (std::int32_t at = 0; at < all; at += chunk)
            ASSERT_NO_FATAL_FAILURE(
                decode(record.tokens.subspan(static_cast<std::size_t>(at),
                                             static_cast<std::size_t>(std::min(chunk, all - at)))));
    }

    int compared = 0;
    bool recompute_copies = false;  // a copy's target computes its own beginning, in the same split
    std::vector<float> logits;      // of all compared rows of the last record

  private:
    void decode(std::span<const StepToken> tokens) {
        const auto n = static_cast<std::int32_t>(tokens.size());
        Batch batch(n);
        for (const StepToken& token : tokens)
            batch.add(token.token, token.position, token.sequence, token.logits);
        for (const StepToken& token : tokens) {
            std::vector<Split>& history = history_[token.sequence];
            if (history.empty() || history.back().batch != batches_)
                history.push_back({.batch = batches_, .tokens = {}});
            history.back().tokens.push_back(token);
        }
        ++batches_;
        ASSERT_EQ(llama_decode(context_.get(), batch.get()), 0);
        const std::int32_t vocab = llama_vocab_n_tokens(llama_model_get_vocab(model_.get()));
        for (std::int32_t i = 0; i < n; ++i) {
            const StepToken& token = tokens[static_cast<std::size_t>(i)];
            if (!token.logits || token.sampled < 0) continue;  // behind a refused draft
            const float* row = llama_get_logits_ith(context_.get(), i);
            std::int32_t best = 0;
            for (std::int32_t k = 1; k < vocab; ++k)
                if (row[k] > row[best]) best = k;
            ASSERT_EQ(best, token.sampled) << "at position " << token.position;
            logits.insert(logits.end(), row, row + vocab);
            ++compared;
        }
    }

    struct Split {
        int batch = 0;
        std::vector<StepToken> tokens;
    };
    void recompute(std::int32_t from, std::int32_t to, std::int32_t length) {
        const std::vector<Split> splits = history_[from];
        history_[to].clear();
        for (const Split& split : splits) {
            std::vector<StepToken> part = split.tokens;
            if (!part.empty() && part.front().position >= length) continue;
            for (StepToken& token : part) {
                token.sequence = to;
                token.logits = false;
            }
            if (part.empty()) continue;
            ASSERT_NO_FATAL_FAILURE(decode(part));
        }
        llama_memory_seq_rm(llama_get_memory(context_.get()), to, length, -1);
        for (Split& split : history_[to])
            std::erase_if(split.tokens, [&](const StepToken& t) { return t.position >= length; });
    }

    ModelPtr model_;
    ContextPtr context_;
    std::map<std::int32_t, std::vector<Split>> history_;  // by sequence
    int batches_ = 0;
};

struct Recorded {
    std::vector<StepToken> tokens;
    StepRecord record;
    explicit Recorded(const StepRecord& r) : tokens(r.tokens.begin(), r.tokens.end()), record(r) {}
    StepRecord get() const {
        StepRecord out = record;
        out.tokens = tokens;
        return out;
    }
};

// A model and a context of our own, to ask what it thinks of some tokens.
class Bare {
  public:
    explicit Bare(const LlamaOptions& options) {
        model_.reset(
            llama_model_load_from_file(options.path.c_str(), llama_model_default_params()));
        llama_context_params params = llama_context_default_params();
        params.n_ctx = 4096;
        params.n_seq_max = 2;
        params.kv_unified = true;
        if (options.kv_type == "bf16") params.type_k = params.type_v = GGML_TYPE_BF16;
        params.n_threads = params.n_threads_batch = options.threads;
        params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
        context_.reset(llama_init_from_model(model_.get(), params));
        vocab_ = llama_model_get_vocab(model_.get());
    }

    // Logits after the tokens, computed in batches of so many; the last `tail` tokens one by one.
    std::vector<float> logits(std::span<const std::int32_t> tokens, std::size_t batch,
                              std::size_t tail) {
        llama_memory_clear(llama_get_memory(context_.get()), true);
        std::vector<std::int32_t> own(tokens.begin(), tokens.end());
        for (std::size_t at = 0; at < own.size();) {
            const std::size_t left = own.size() - at;
            const std::size_t n = left <= tail ? 1 : std::min(batch, left - tail);
            if (llama_decode(context_.get(),
                             llama_batch_get_one(own.data() + at, static_cast<std::int32_t>(n))) !=
                0)
                ADD_FAILURE() << "llama_decode";
            at += n;
        }
        const float* row = llama_get_logits_ith(context_.get(), -1);
        return {row, row + llama_vocab_n_tokens(vocab_)};
    }

    // Logits after the tokens when all behind the first half lie before it in the pool, as happens
    // when somebody else's cells there were freed.
    std::vector<float> misplaced_logits(std::span<const std::int32_t> tokens) {
        llama_memory_t memory = llama_get_memory(context_.get());
        llama_memory_clear(memory, true);
        std::vector<std::int32_t> other(3 * tokens.size(), tokens.front());
        const std::size_t half = tokens.size() / 2;
        decode(other, 0, other.size(), 1);
        decode(tokens, 0, half, 0);
        llama_memory_seq_rm(memory, 1, -1, -1);
        decode(tokens, half, tokens.size(), 0);
        const float* row = llama_get_logits_ith(context_.get(), -1);
        return {row, row + llama_vocab_n_tokens(vocab_)};
    }

    std::string piece(std::int32_t token) const {
        char buffer[256];
        const std::int32_t n = llama_token_to_piece(vocab_, token, buffer, sizeof buffer, 0, false);
        return {buffer, static_cast<std::size_t>(std::max(n, 0))};
    }
    bool ends(std::int32_t token) const { return llama_vocab_is_eog(vocab_, token); }

  private:
    void decode(std::span<const std::int32_t> tokens, std::size_t from, std::size_t to,
                std::int32_t sequence) {
        Batch batch(static_cast<std::int32_t>(to - from));
        for (std::size_t i = from; i < to; ++i)
            batch.add(tokens[i], static_cast<std::int32_t>(i), sequence, i + 1 == to);
        EXPECT_EQ(llama_decode(context_.get(), batch.get()), 0);
    }

    ModelPtr model_;
    ContextPtr context_;
    const llama_vocab* vocab_ = nullptr;
};

// How far the place of cells alone moves the likely tokens against each other: the most that the
// difference of two of the ten best logits changes.
inline float place_tolerance(Bare& bare, std::span<const std::int32_t> tokens) {
    const std::vector<float> usual = bare.logits(tokens, tokens.size(), 0);
    const std::vector<float> other = bare.misplaced_logits(tokens);
    std::vector<std::size_t> best(usual.size());
    for (std::size_t i = 0; i < best.size(); ++i) best[i] = i;
    std::ranges::partial_sort(best, best.begin() + 10,
                              [&](std::size_t a, std::size_t b) { return usual[a] > usual[b]; });
    float low = 1e9F, high = -1e9F;
    for (std::size_t i = 0; i < 10; ++i) {
        low = std::min(low, other[best[i]] - usual[best[i]]);
        high = std::max(high, other[best[i]] - usual[best[i]]);
    }
    return high - low;
}

// How much more the model likes the best token than what `text` has instead, where `text` leaves
// the tokens of a plain engine (`prompt` of them, then its output). The texts may part inside a
// token: then it was the one before that differed.
struct FirstDifference {
    float gap = 1e9F;
    std::size_t tokens = 0;  // before it
};
inline FirstDifference first_difference(Bare& bare, std::span<const std::int32_t> tokens,
                                        std::size_t prompt, const std::string& text) {
    std::vector<std::string> before;  // what `text` has before each output token
    std::string common;
    for (std::size_t at = prompt;; ++at) {
        before.push_back(common);
        const std::string own = at < tokens.size() ? bare.piece(tokens[at]) : std::string();
        if (own.empty() || !text.substr(common.size()).starts_with(own)) break;
        common += own;
    }
    FirstDifference out;
    for (std::size_t i = before.size() - std::min<std::size_t>(before.size(), 2); i < before.size();
         ++i) {
        const std::size_t at = prompt + i;
        const std::string rest = text.substr(before[i].size());
        const std::vector<float> row = bare.logits(tokens.first(at), 48, 0);
        const float best = *std::ranges::max_element(row);
        for (std::size_t k = 0; k < row.size(); ++k) {
            const auto token = static_cast<std::int32_t>(k);
            if (at < tokens.size() && token == tokens[at]) continue;
            const std::string p = bare.piece(token);
            const bool fits = bare.ends(token) ? rest.empty() : !p.empty() && rest.starts_with(p);
            if (!fits || best - row[k] >= out.gap) continue;
            out = {.gap = best - row[k], .tokens = at};
        }
    }
    return out;
}

}  // namespace zerohop::engine::testkit
