// QueueGauge: what the head decision may know of a model's queue. Written by the engine thread
// (through FairQueue), read by I/O threads; every reading is racy by nature.
#pragma once

#include <atomic>
#include <cstdint>

namespace zerohop::admit {

struct QueueGauge {
    // Bounds, set before threads start.
    std::uint32_t max_requests = 0;  // 0: no bound known yet, never full
    std::uint64_t max_tokens = 0;

    std::atomic<std::uint32_t> requests{0};
    std::atomic<std::uint64_t> tokens{0};
    std::atomic<std::int64_t> retry_after_ms{1000};  // when a place is likely to be free
    // First token of a high-priority request admitted now, as the planner expects it; 0: unknown.
    std::atomic<std::uint32_t> expected_high_ttft_ms{0};

    bool full_approx() const {
        if (max_requests == 0) return false;
        return requests.load(std::memory_order_relaxed) >= max_requests ||
               (max_tokens != 0 && tokens.load(std::memory_order_relaxed) >= max_tokens);
    }
};

}  // namespace zerohop::admit
