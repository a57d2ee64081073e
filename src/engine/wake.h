// Wake: a futex flag by which any thread tells one sleeper "look again".
//
// signal(): any thread, wait-free, a system call only when the sleeper sleeps; n signals before a
// wait() are one. wait(): one thread only. Nothing fails. (Linux futex, word of 32 bits.)
//
// While signals come at short intervals wait() looks for the next one for a moment instead of
// sleeping: a processor that went idle in between answers 40–80 µs late on a virtual machine (it
// left the guest), and whoever wakes it pays too. It gives way to whoever wants the processor. Who
// waited longer than kSpinNs sleeps at once until a signal comes that soon again, so that an engine
// between two chats spins for nothing once. docs/decisions/0008.
#pragma once

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <ctime>
#include <limits>

#include "base/clock.h"
#include "base/pause.h"

namespace zerohop::engine {

class Wake {
  public:
    static constexpr std::int64_t kSpinNs = 1'000'000;

    void signal() noexcept {
        if (word_.exchange(kSignalled, std::memory_order_acq_rel) == kSleeping)
            syscall(SYS_futex, address(), FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
    }

    // Returns after a signal (also one that came before), after timeout_ns (< 0: no limit; 0: only
    // takes the signal), or now and then for no reason.
    void wait(std::int64_t timeout_ns) noexcept {
        const MonoNs since = timeout_ns == 0 ? 0 : mono_now();
        if (timeout_ns != 0 && !spin(since, timeout_ns)) sleep(timeout_ns);
        const bool signalled = word_.exchange(kIdle, std::memory_order_acq_rel) == kSignalled;
        if (timeout_ns != 0)
            last_wait_ns_ = signalled ? mono_now() - since : std::numeric_limits<MonoNs>::max();
    }

  private:
    static constexpr std::uint32_t kIdle = 0, kSignalled = 1, kSleeping = 2;
    static constexpr int kLooksPerYield = 16;  // about 1 µs
    static_assert(std::atomic<std::uint32_t>::is_always_lock_free);
    std::uint32_t* address() { return reinterpret_cast<std::uint32_t*>(&word_); }

    // True: waited enough.
    bool spin(MonoNs since, std::int64_t timeout_ns) const noexcept {
        if (last_wait_ns_ > kSpinNs || !has_processor_to_spare()) return false;
        const bool whole = timeout_ns > 0 && timeout_ns <= kSpinNs;
        const MonoNs end = since + (whole ? timeout_ns : kSpinNs);
        do {
            for (int i = 0; i < kLooksPerYield; ++i) {
                if (word_.load(std::memory_order_relaxed) == kSignalled) return true;
                pause_briefly();
            }
            sched_yield();
        } while (mono_now() < end);
        return whole;
    }

    void sleep(std::int64_t timeout_ns) noexcept {
        std::uint32_t idle = kIdle;
        if (!word_.compare_exchange_strong(idle, kSleeping, std::memory_order_acq_rel)) return;
        const std::timespec limit{.tv_sec = timeout_ns / kNsPerSec,
                                  .tv_nsec = timeout_ns % kNsPerSec};
        syscall(SYS_futex, address(), FUTEX_WAIT_PRIVATE, kSleeping,
                timeout_ns < 0 ? nullptr : &limit, nullptr, 0);
    }

    std::atomic<std::uint32_t> word_{kIdle};
    MonoNs last_wait_ns_ = std::numeric_limits<MonoNs>::max();  // without a signal: no end
};

}  // namespace zerohop::engine
