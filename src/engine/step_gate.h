// StepGate: a fair lock; whoever asks first computes first. Contexts of one process pass it by
// step, so that two models never spin against each other on the same cores.
//
// Threads: any; not recursive. Waiters sleep (futex by std::atomic::wait). Nothing fails.
#pragma once

#include <atomic>
#include <cstdint>

namespace zerohop::engine {

class StepGate {
  public:
    void lock() noexcept {
        const std::uint32_t mine = next_.fetch_add(1, std::memory_order_relaxed);
        for (std::uint32_t now = serving_.load(std::memory_order_acquire); now != mine;
             now = serving_.load(std::memory_order_acquire))
            serving_.wait(now, std::memory_order_acquire);
    }
    void unlock() noexcept {
        serving_.fetch_add(1, std::memory_order_release);
        serving_.notify_all();
    }

  private:
    std::atomic<std::uint32_t> next_{0};
    std::atomic<std::uint32_t> serving_{0};
};

}  // namespace zerohop::engine
