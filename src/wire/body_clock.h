// BodyClock: is a request's body arriving fast enough? One rule for h1 and h2.
//
// Owning thread: the session's. Paused time does not count: resuming starts a new measurement.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "wire/limits.h"

namespace zerohop::wire {

class BodyClock {
  public:
    void start(MonoNs now) {
        since_ = last_ = now;
        bytes_ = 0;
    }
    void add(std::size_t n, MonoNs now) {
        bytes_ += n;
        last_ = now;
    }
    bool too_slow(MonoNs now, const Limits& limits) const {
        if (now - last_ > limits.body_idle_ms * kNsPerMs) return true;
        const std::int64_t elapsed_ms = (now - since_) / kNsPerMs;
        return elapsed_ms > limits.body_grace_ms &&
               static_cast<std::int64_t>(bytes_) * 1000 < limits.body_min_rate * elapsed_ms;
    }

  private:
    MonoNs since_ = 0;
    MonoNs last_ = 0;
    std::size_t bytes_ = 0;
};

}  // namespace zerohop::wire
