// LaneCaps: how much of a step the prompts of other lanes may take while a lane has one to compute.
//
// Shared by all engines of a process. The control thread writes (at start and at a reload), engine
// threads read at each step: racy by nature, a step more or less under the old value. By lane
// index.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "sched/queue_gauge.h"

namespace zerohop::sched {

class LaneCaps {
  public:
    // Tokens; 0: no cap.
    std::uint32_t of(std::size_t lane) const {
        return lane < caps_.size() ? caps_[lane].load(std::memory_order_relaxed) : 0;
    }
    void set(std::size_t lane, std::uint32_t tokens) {
        caps_.at(lane).store(tokens, std::memory_order_relaxed);
    }

  private:
    std::array<std::atomic<std::uint32_t>, QueueGauge::kMaxLanes> caps_{};
};

}  // namespace zerohop::sched
