#include "app/signals.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <utility>

#include "base/log.h"

namespace zerohop::app {
namespace {

sigset_t handled_signals() {
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&set, signal);
    return set;
}

// Not exit(): other threads run on, and destructors would wait for them.
[[noreturn]] void end_now(const char* why) {
    log_info("app", "{}", why);
    _exit(0);
}

}  // namespace

Signals::Signals() {
    const sigset_t set = handled_signals();
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
    signal(SIGPIPE, SIG_IGN);
    thread_ = std::thread([this] { run(); });
}

Signals::~Signals() {
    ending_.store(true);
    pthread_kill(thread_.native_handle(), SIGHUP);  // only to wake it
    thread_.join();
}

void Signals::run() {
    pthread_setname_np(pthread_self(), "signals");
    const sigset_t set = handled_signals();
    while (!ending_.load()) {
        const int signal = sigwaitinfo(&set, nullptr);
        if (ending_.load()) return;
        if (signal == SIGTERM || signal == SIGINT) take_stop();
        if (signal != SIGHUP) continue;
        const std::lock_guard lock(mutex_);
        reload_ = true;
        changed_.notify_all();
    }
}

void Signals::take_stop() {
    int stops = 0;
    {
        const std::lock_guard lock(mutex_);
        if (!serving_) end_now("stopped while starting: nothing was served yet");
        stops = ++stops_;
        changed_.notify_all();
    }
    if (stops < 2) return;
    const sigset_t set = handled_signals();
    const timespec hurry{.tv_sec = kHurryNs / kNsPerSec, .tv_nsec = kHurryNs % kNsPerSec};
    int signal = SIGHUP;
    while (signal == SIGHUP && !ending_.load()) signal = sigtimedwait(&set, nullptr, &hurry);
    if (!ending_.load()) end_now("stopped at once");
}

void Signals::serving() {
    const std::lock_guard lock(mutex_);
    serving_ = true;
}

Signals::Event Signals::wait(MonoNs most_ns) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::nanoseconds(most_ns),
                      [this] { return reload_ || (stops_ > 0 && !stop_told_); });
    if (stops_ > 0 && !std::exchange(stop_told_, true)) return Event::kStop;
    return std::exchange(reload_, false) ? Event::kReload : Event::kNone;
}

bool Signals::hurry() const {
    const std::lock_guard lock(mutex_);
    return stops_ > 1;
}

}  // namespace zerohop::app
