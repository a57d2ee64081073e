// ReloadDesk: who waits for a reload of the configuration.
//
// ask() on I/O threads, take() and close() on the control thread, which answers. Bound:
// kMaxWaiting, beyond it 529. The desk outlives the listeners.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "api/options.h"
#include "base/error.h"

namespace zerohop::app {

class ReloadDesk {
  public:
    using Done = std::function<void(const api::ReloadOutcome&)>;
    static constexpr std::size_t kMaxWaiting = 64;

    void ask(Done done) {
        Error refusal{
            .code = Code::kUnavailable, .detail = "the server is shutting down", .origin = "app"};
        {
            const std::lock_guard lock(mutex_);
            if (!closed_ && waiting_.size() < kMaxWaiting) {
                waiting_.push_back(std::move(done));
                kill(getpid(), SIGHUP);  // app::Signals takes it
                return;
            }
            if (!closed_)
                refusal = {.code = Code::kOverloaded,
                           .detail = "too many wait for a reload already",
                           .origin = "app",
                           .retry_after_ms = 1000};
        }
        done(std::unexpected(std::move(refusal)));
    }
    // Those who asked before this are answered with what is reloaded after it.
    std::vector<Done> take() {
        const std::lock_guard lock(mutex_);
        return std::exchange(waiting_, {});
    }
    std::vector<Done> close() {
        const std::lock_guard lock(mutex_);
        closed_ = true;
        return std::exchange(waiting_, {});
    }

  private:
    std::mutex mutex_;
    std::vector<Done> waiting_;
    bool closed_ = false;
};

}  // namespace zerohop::app
