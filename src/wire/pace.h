// Pace: does the peer move its bytes fast enough? One rule for what it sends and for what it takes,
// on h1 and h2.
//
// A store of time: it begins with `patience`, time spends it, each byte that moves earns 1/rate
// seconds, and it never holds more than `most`. So who moves nothing is out of time after patience,
// who moves less than the rate soon after, however much moved before, and a steady peer above the
// rate never, as long as its steps are no longer than that. Owning thread: the session's.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "wire/limits.h"

namespace zerohop::wire {

struct PaceRule {
    std::int64_t patience_ms = 0;
    std::int64_t most_ms = 0;
    std::int64_t rate = 0;  // bytes per second; 0: a byte earns all of the patience
};

class Pace {
  public:
    // `before`: bytes that moved lately, before there was a reason to look.
    void start(MonoNs now, std::uint64_t before, const PaceRule& rule) {
        left_ = rule.patience_ms * kNsPerMs;
        last_ = now;
        moved(before, now, rule);
    }
    void moved(std::uint64_t bytes, MonoNs now, const PaceRule& rule) {
        left_ -= now - last_;
        last_ = now;
        if (bytes == 0) return;
        constexpr std::uint64_t kPlenty = 1 << 30;  // no overflow below
        const MonoNs earned =
            rule.rate > 0 ? static_cast<MonoNs>(std::min(bytes, kPlenty)) * kNsPerSec / rule.rate
                          : rule.patience_ms * kNsPerMs;
        left_ = std::min(left_ + earned, rule.most_ms * kNsPerMs);
    }
    // Time since the last call does not count: something else than the peer held the bytes up.
    void skip(MonoNs now) { last_ = now; }
    bool is_over(MonoNs now) const { return left_ < now - last_; }

  private:
    MonoNs left_ = 0;
    MonoNs last_ = 0;
};

// How an answer must be taken. Windows of TCP and HTTP/2 open in steps (32 KiB and more), so who
// takes some may be silent for twice as long as who takes nothing.
inline PaceRule take_pace(const Limits& limits) {
    return {.patience_ms = limits.write_stall_ms,
            .most_ms = 2 * limits.write_stall_ms,
            .rate = limits.min_rate};
}

// A request's body on its way in. Paused time does not count: resuming starts a new measurement.
class BodyClock {
  public:
    void start(MonoNs now, const Limits& limits) {
        began_ = now;
        pace_.start(now, 0, rule(limits));
    }
    void add(std::size_t n, MonoNs now, const Limits& limits) { pace_.moved(n, now, rule(limits)); }
    bool too_slow(MonoNs now, const Limits& limits) const {
        return pace_.is_over(now) || now - began_ > limits.body_ms * kNsPerMs;
    }

  private:
    static PaceRule rule(const Limits& limits) {
        return {.patience_ms = limits.body_idle_ms,
                .most_ms = limits.body_idle_ms,
                .rate = limits.min_rate};
    }
    Pace pace_;
    MonoNs began_ = 0;
};

}  // namespace zerohop::wire
