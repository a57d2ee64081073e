// Occupancy: how long a request may hold what others wait for, on every engine.
//
//   a slot and its KV   while its reader does not take its text: ReaderLag. Who owes more than
//                       slow_reader_ns gives them to those who wait, and queues again once what
//                       was computed has been read; who takes nothing for stalled_reader_ns fails.
//   more than its share one who has waited for a slot, or for KV, for crowded_out_ns while another
//                       workspace holds at least two slots more than its own gets one of those:
//                       nobody waits for the ends of a crowd's long answers. (Not the scripted
//                       engine, whose sequences cannot pause.)
//   the queue's head    who finds no KV keeps those behind it waiting for head_of_line_ns, and only
//                       while somebody runs whose end helps; then those that fit pass it. After
//                       passed_ns those that came after it and run give way to it.
//   the queue           kMostForRoom requests of one workspace may stand aside so; its others wait.
//
// Values and pure functions; times are passed in. Nothing fails.
#pragma once

#include <algorithm>
#include <cstddef>

#include "base/clock.h"

namespace zerohop::sched {

struct OccupancyLimits {
    MonoNs slow_reader_ns = 10 * kNsPerSec;
    MonoNs stalled_reader_ns = 60 * kNsPerSec;
    MonoNs crowded_out_ns = kNsPerSec / 2;
    MonoNs head_of_line_ns = 2 * kNsPerSec;
    MonoNs passed_ns = 5 * kNsPerSec;
};

inline constexpr std::size_t kMostForRoom = 4;

// How much longer a reader has kept its sequence from going on than it let it go on: it cannot hold
// a place for long by taking a little now and then.
class ReaderLag {
  public:
    bool starved() const { return starved_; }
    // Its ring is full; once it is, again is nothing new.
    void starve(MonoNs now) {
        if (!starved_) turn(now);
    }
    // It has taken half its ring.
    void feed(MonoNs now) {
        if (starved_) turn(now);
    }
    bool slow(const OccupancyLimits& limits, MonoNs now) const {
        return starved_ && owed(now) >= limits.slow_reader_ns;
    }
    bool stalled(const OccupancyLimits& limits, MonoNs now) const {
        return starved_ && now - since_ >= limits.stalled_reader_ns;
    }

  private:
    MonoNs owed(MonoNs now) const {
        return starved_ ? owed_ + (now - since_) : std::max<MonoNs>(owed_ - (now - since_), 0);
    }
    void turn(MonoNs now) {
        owed_ = owed(now);
        since_ = now;
        starved_ = !starved_;
    }

    bool starved_ = false;
    MonoNs owed_ = 0, since_ = 0;
};

}  // namespace zerohop::sched
