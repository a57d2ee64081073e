// Signals: a thread that takes SIGTERM, SIGINT and SIGHUP from the first moment on, whatever the
// control thread is doing.
//
//     starting  -- SIGTERM, SIGINT --> ends the process at once: nothing is served yet, and what is
//                                      written meanwhile is renamed into place when it is whole
//     serving   -- the first one --> wait() tells the control thread, which drains
//               -- the second    --> hurry() is true; the process ends kHurryNs later in any case
//               -- a third       --> ends the process at once
//
// The constructor blocks the signals for the calling thread and all that it starts later, and
// ignores SIGPIPE: make it before any other thread. One per process, in front of all that it may
// interrupt. wait() and serving() are for the control thread. Exit code 0 in all cases: it was
// asked to stop.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/clock.h"

namespace zerohop::app {

class Signals {
  public:
    enum class Event { kNone, kReload, kStop };
    static constexpr MonoNs kHurryNs = kNsPerSec;

    Signals();
    ~Signals();
    Signals(const Signals&) = delete;
    Signals& operator=(const Signals&) = delete;

    // From here on the first one to stop is the control thread's.
    void serving();
    // A reload asked for before serving() is told by the first call. kNone: time is over.
    Event wait(MonoNs most_ns);
    bool hurry() const;

  private:
    void run();
    void take_stop();

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    bool serving_ = false;
    bool reload_ = false;
    bool stop_told_ = false;
    int stops_ = 0;
    std::atomic<bool> ending_{false};
    std::thread thread_;
};

}  // namespace zerohop::app
