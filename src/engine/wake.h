// Wake: a futex flag by which any thread tells one sleeper "look again".
//
// signal(): any thread, wait-free, a system call only when the sleeper sleeps; n signals before a
// wait() are one. wait(): one thread only. Nothing fails. (Linux futex, word of 32 bits.) Why it
// does not look for the next signal before it sleeps: docs/decisions/0008.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <ctime>

#include "base/clock.h"

namespace zerohop::engine {

class Wake {
  public:
    void signal() noexcept {
        if (word_.exchange(kSignalled, std::memory_order_acq_rel) == kSleeping)
            syscall(SYS_futex, address(), FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
    }

    // Returns after a signal (also one that came before), after timeout_ns (< 0: no limit; 0: only
    // takes the signal), or now and then for no reason.
    void wait(std::int64_t timeout_ns) noexcept {
        if (timeout_ns != 0) sleep(timeout_ns);
        word_.exchange(kIdle, std::memory_order_acq_rel);
    }

  private:
    static constexpr std::uint32_t kIdle = 0, kSignalled = 1, kSleeping = 2;
    static_assert(std::atomic<std::uint32_t>::is_always_lock_free);
    std::uint32_t* address() { return reinterpret_cast<std::uint32_t*>(&word_); }

    void sleep(std::int64_t timeout_ns) noexcept {
        std::uint32_t idle = kIdle;
        if (!word_.compare_exchange_strong(idle, kSleeping, std::memory_order_acq_rel)) return;
        const std::timespec limit{.tv_sec = timeout_ns / kNsPerSec,
                                  .tv_nsec = timeout_ns % kNsPerSec};
        syscall(SYS_futex, address(), FUTEX_WAIT_PRIVATE, kSleeping,
                timeout_ns < 0 ? nullptr : &limit, nullptr, 0);
    }

    std::atomic<std::uint32_t> word_{kIdle};
};

}  // namespace zerohop::engine
