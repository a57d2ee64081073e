// For loops that look for another thread's write instead of sleeping (decision 0008).
#pragma once

#include <thread>

namespace zerohop {

// Who looks must not take the only processor from the one that writes.
inline bool has_processor_to_spare() noexcept {
    static const bool spare = std::thread::hardware_concurrency() > 1;
    return spare;
}

// The processor's hint that this is such a loop.
inline void pause_briefly() noexcept {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

}  // namespace zerohop
