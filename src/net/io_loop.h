// IoLoop: one I/O thread's event loop (epoll), timers, and the ways other threads reach it.
//
// Owning thread: the one that calls run(), for all but post(), signal() and stop(). Work is done in
// turns: a turn is one event's handler; what it left to flush (at_turn_end) is done before the loop
// waits again, so that many small writes become one. Lifetime: outlives everything that runs on it.
// Functions posted after stop() are dropped.
//
// Why not a library's loop: docs/decisions/0008.
#pragma once

#include <memory>
#include <string_view>

#include "base/loop.h"

namespace zerohop::net {

// Something that wants a call before the loop waits again.
class TurnEnd {
  public:
    virtual ~TurnEnd() = default;
    virtual void end_of_turn() = 0;
};

class Watch;

class IoLoop final : public Loop {
  public:
    IoLoop();
    ~IoLoop() override;

    void run();   // until stop()
    void stop();  // any thread

    void post(std::function<void()> fn) override;
    void signal(Ready& ready) noexcept override;
    TimerId after(std::int64_t delay_ms, std::function<void()> fn) override;
    void cancel(TimerId id) override;

    // Runs fn as a turn (or within the one going on).
    template <class Fn>
    void turn(Fn&& fn) {
        begin_turn();
        fn();
        end_turn();
    }
    // Once per call, at the end of this turn. Only within a turn.
    void at_turn_end(std::shared_ptr<TurnEnd> what);

    // Shared scratch for reads: valid until the next event.
    char* read_buffer();
    static constexpr std::size_t kReadBufferBytes = 64 * 1024;

  private:
    friend class Watch;
    struct Impl;
    void begin_turn();
    void end_turn();
    std::unique_ptr<Impl> impl_;
};

// Who is told that a descriptor is ready.
class Watcher {
  public:
    virtual ~Watcher() = default;
    // Within a turn. `events`: of those waited for, EPOLLIN or EPOLLOUT or both; an error or a
    // hang-up is said as all of them, reading or writing tells which it is. They are not waited for
    // any more.
    virtual void on_ready(std::uint32_t events) = 0;
};

// One descriptor's place in a loop. wait_for() holds for one call of on_ready(), but the kernel is
// asked only where that changes what it watches: who waits for the same again costs no system call.
// Owning thread: the loop's. Must live until the loop's posted functions run once after forget();
// the descriptor is not its own.
class Watch {
  public:
    Watch(IoLoop& loop, int fd, Watcher& watcher) : loop_(loop), watcher_(watcher), fd_(fd) {}
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

    void wait_for(std::uint32_t events);
    bool waits_for(std::uint32_t events) const { return (wanted_ & events) != 0; }
    void forget() noexcept;  // before the descriptor is closed; nothing is told after it

  private:
    friend class IoLoop;
    void tell(std::uint32_t events);
    void change_to(std::uint32_t events) noexcept;

    IoLoop& loop_;
    Watcher& watcher_;
    int fd_;
    std::uint32_t wanted_ = 0;
    std::uint32_t watched_ = 0;  // by the kernel: wanted_, and what was wanted lately
};

}  // namespace zerohop::net
