// Loop: what protocol and API code may ask of the I/O thread it runs on. Implemented in `net`.
//
// Owning thread: the I/O thread, for all but post() and every Ready::signal().
// Lifetime: a Loop outlives every Exchange and Responder that runs on it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "base/clock.h"

namespace zerohop {

using TimerId = std::uint64_t;  // 0 is never a live timer

// Something an I/O thread must look at again. Other threads call signal(); the loop later calls
// on_ready() on its own thread, once for any number of signals before it. Held by shared_ptr, so a
// signal may race with the exchange's end; on_ready() must then do nothing.
class Ready : public std::enable_shared_from_this<Ready> {
  public:
    virtual ~Ready() = default;
    virtual void on_ready() = 0;  // on the loop's thread

  private:
    friend class LoopInbox;
    std::atomic<bool> queued_{false};
    Ready* next_ = nullptr;        // inbox link, owned by the inbox while queued
    std::shared_ptr<Ready> keep_;  // keeps this alive while queued
};

class Loop {
  public:
    virtual ~Loop() = default;

    // Any thread. Runs fn on the loop's thread, later, in order of posting. Not for the token path
    // (allocates): streams use signal().
    virtual void post(std::function<void()> fn) = 0;

    // Any thread. Schedules ready->on_ready() on the loop's thread. Wait-free but for one eventfd
    // write when the loop may be asleep.
    virtual void signal(Ready& ready) noexcept = 0;

    // Loop thread only. The callback runs once unless cancelled; cancelling a dead id is a no-op.
    virtual TimerId after(std::int64_t delay_ms, std::function<void()> fn) = 0;
    virtual void cancel(TimerId id) = 0;
};

}  // namespace zerohop
