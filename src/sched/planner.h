// Planner: which tokens of which sequences go into the next step. Pure: state in, plan out.
//
// Every decoding sequence gets its token; what is left of the step's time goes to waiting prefills,
// shortest first. Time is measured, not guessed: the caller reports what each step took, and the
// planner keeps the cost of a prefill token and of a decode step (exponentially weighted).
//
//     someone decodes:  as many prefill tokens as fit into step_ns beside the decode step
//     nobody decodes:   the same with idle_step_ns
// but never fewer than kLeastPrefill, and not a chunk so small that it wastes the machine: small
// chunks can cost nearly as much as large ones (flash attention on a CPU: 18 tokens took 150 ms
// where 368 took 470), so cost is kept per size of chunk, and a size that is less than half as
// efficient as another gives way to it as long as the step stays below 1.5 × the limit.
//
// Shortest first with ageing: a prefill of n tokens that has waited w ms counts as n − w tokens, so
// that a stream of short prompts cannot hold up a long one for more than its length in ms.
//
// Threads: one (the engine's). Nothing fails.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"

namespace zerohop::sched {

struct Limits {
    std::int32_t batch_tokens = 2048;
    std::int64_t step_ns = 150 * kNsPerMs;       // 0: no limit
    std::int64_t idle_step_ns = 400 * kNsPerMs;  // 0: no limit
};

struct Runnable {
    std::int32_t pending = 1;  // tokens to compute before the next one can be sampled, ≥ 1
    bool decoding = false;     // has sampled already and pending == 1
    MonoNs since = 0;          // when its prefill began to wait
};

struct Share {
    std::uint32_t index = 0;  // into the span of Runnable
    std::int32_t tokens = 0;
};

class Planner {
  public:
    static constexpr std::int32_t kLeastPrefill = 16;  // tokens per step, when any prefill waits
    static constexpr std::int32_t kGrain = 16;         // chunks end on multiples of this

    explicit Planner(const Limits& limits) : limits_(limits) {}

    // Fills `out`; the sum of its tokens is ≤ batch_tokens. Decoding sequences come first, in
    // order. With more decoding sequences than batch_tokens the rest take turns.
    void plan(std::span<const Runnable> runnable, MonoNs now, std::vector<Share>& out);

    // What the last step took.
    void observe(std::int32_t decoding, std::int32_t prefill_tokens, std::int64_t took_ns);

    // Estimates, for Retry-After and tests.
    double prefill_token_ns() const { return chunk_ns(512) / 512; }  // in large chunks
    double decode_step_ns(std::int32_t sequences) const;
    double chunk_ns(std::int32_t tokens) const;

  private:
    static constexpr int kBuckets = 9;            // decode steps of 1, 2, 3–4, 5–8, … sequences
    static constexpr int kSizes = 9;              // chunks of up to 16, 32, 64, … 4096 tokens
    static constexpr double kFirstTokenNs = 2e6;  // until measured: 500 tokens/s
    static int bucket(std::int32_t sequences);
    static int size_class(std::int32_t tokens);
    std::int32_t prefill_budget(std::int32_t decoding) const;
    void observe_chunk(std::int32_t tokens, double took_ns);

    Limits limits_;
    double token_ns_[kSizes] = {};     // per token of a chunk of that size; 0: not measured
    double decode_ns_[kBuckets] = {};  // 0: not measured
    std::uint32_t turn_ = 0;
    std::vector<std::uint32_t> order_;
};

}  // namespace zerohop::sched
