// Notifier: "look again" across threads. The one way a thread is woken by another.
//
// notify() is callable from any thread, never blocks, may be coalesced (n calls cause at least one
// wake-up after the last). Implemented by the I/O loop (eventfd) and by the engine (futex).
#pragma once

namespace zerohop {

class Notifier {
  public:
    virtual ~Notifier() = default;
    virtual void notify() noexcept = 0;
};

}  // namespace zerohop
