// Planner: which tokens of which sequences go into the next step. Pure: state in, plan out.
//
// Every decoding sequence gets its token; what is left of the step's time goes to waiting prefills,
// shortest first. Time is measured, not guessed: the caller reports what each step took, and the
// planner keeps the cost of a prefill token and of a decode step (exponentially weighted).
//
//     someone decodes:  prefill tokens ≤ (step_ns − decode cost) / cost per token, at least
//                       kLeastPrefill, so that prefill never starves either
//     nobody decodes:   the same with idle_step_ns
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
    std::int64_t step_ns = 110 * kNsPerMs;       // 0: no limit
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
    double prefill_token_ns() const { return prefill_token_ns_; }
    double decode_step_ns(std::int32_t sequences) const;

  private:
    static constexpr int kBuckets = 9;  // decode steps of 1, 2, 3–4, 5–8, … sequences
    static int bucket(std::int32_t sequences);
    std::int32_t prefill_budget(std::int32_t decoding) const;

    Limits limits_;
    double prefill_token_ns_ = 2e6;  // until measured: 500 tokens/s
    bool prefill_measured_ = false;
    double decode_ns_[kBuckets] = {};  // 0: not measured
    std::uint32_t turn_ = 0;
    std::vector<std::uint32_t> order_;
};

}  // namespace zerohop::sched
