// Time. Every component that needs a clock takes one, so tests can step it.
//
// MonoNs is nanoseconds of the monotonic clock (intervals, deadlines); WallNs is nanoseconds since
// the Unix epoch (what people and wire formats read). Threads: any. Nothing fails.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

namespace zerohop {

using MonoNs = std::int64_t;
using WallNs = std::int64_t;

inline constexpr std::int64_t kNsPerMs = 1'000'000;
inline constexpr std::int64_t kNsPerSec = 1'000'000'000;

inline MonoNs mono_now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}
inline WallNs wall_now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
}

// Injected where a test must control time; empty means mono_now().
using MonoClock = std::function<MonoNs()>;

}  // namespace zerohop
