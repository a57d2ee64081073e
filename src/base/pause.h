// pause_briefly(): the processor's hint that a loop only looks for another thread's write.
#pragma once

namespace zerohop {

inline void pause_briefly() noexcept {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

}  // namespace zerohop
