// IoLoop: one I/O thread's event loop (Boost.Asio), timers, and the ways other threads reach it.
//
// Owning thread: the one that calls run(), for all but post(), signal(), stop() and thread-safe
// reads. Work is done in turns: a turn is one event's handler; what it left to flush (at_turn_end)
// is done before the loop waits again, so that many small writes become one. Lifetime: outlives
// everything that runs on it. Functions posted after stop() are dropped.
#pragma once

#include <memory>
#include <string_view>

#include "base/loop.h"

namespace boost::asio {
class io_context;
}

namespace zerohop::net {

// Something that wants a call before the loop waits again.
class TurnEnd {
  public:
    virtual ~TurnEnd() = default;
    virtual void end_of_turn() = 0;
};

class IoLoop final : public Loop {
  public:
    IoLoop();
    ~IoLoop() override;

    void run();   // until stop()
    void stop();  // any thread
    bool on_this_thread() const;

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

    boost::asio::io_context& context();
    // Shared scratch for reads: valid until the next event.
    char* read_buffer();
    static constexpr std::size_t kReadBufferBytes = 64 * 1024;

  private:
    struct Impl;
    void begin_turn();
    void end_turn();
    std::unique_ptr<Impl> impl_;
};

}  // namespace zerohop::net
