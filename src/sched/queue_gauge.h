// QueueGauge: what head decisions and a model's engine know of each other.
//
// The engine's side (WaitQueue, the engine itself) writes all but soft_kv_tokens, which is the head
// decisions'. Any thread reads; every reading is racy by nature.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace zerohop::sched {

struct QueueGauge {
    static constexpr std::size_t kMaxLanes = 64;

    // A lane with reserved slots has a queue of its own, the others share one.
    struct Lane {
        std::atomic<bool> full{false};                    // its queue takes nobody more
        std::atomic<std::int64_t> retry_after_ms{1'000};  // when it is likely to
        // A high-priority request's first token comes after about
        //     high_start_ms                                   for a slot, those before it, the step
        //     + prefill_fixed_ns + tokens × prefill_token_ns  for what is left of its own prompt
        std::atomic<std::uint32_t> high_start_ms{0};
    };
    std::array<Lane, kMaxLanes> lanes;  // by index in the topology

    // Bounds of one queue, set before threads start; 0: not known yet.
    std::uint32_t max_requests = 0;
    std::uint64_t max_tokens = 0;
    // In all queues together.
    std::atomic<std::uint32_t> requests{0};
    std::atomic<std::uint64_t> tokens{0};

    // Where prompts are cached only the engine knows how much is left of one, and refuses itself
    // what would be late for that (Request::promise).
    bool engine_keeps_promises = false;  // set before threads start
    std::atomic<std::int64_t> prefill_fixed_ns{0};
    std::atomic<double> prefill_token_ns{0};  // as measured; 0: not known

    // Tokens that heads whose bodies are on their way have reserved (soft_kv.h). An engine with a
    // place to put idle cells keeps so many free.
    std::atomic<std::int64_t> soft_kv_tokens{0};

    // From a slot to the first token of a prompt of so many tokens.
    double prefill_ms_approx(std::int64_t input_tokens) const {
        return (static_cast<double>(prefill_fixed_ns.load(std::memory_order_relaxed)) +
                static_cast<double>(input_tokens) *
                    prefill_token_ns.load(std::memory_order_relaxed)) /
               1e6;
    }
};

}  // namespace zerohop::sched
