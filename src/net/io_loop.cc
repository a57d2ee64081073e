#include "net/io_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <map>
#include <mutex>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/loop_inbox.h"

namespace zerohop::net {
namespace {

constexpr int kEventsPerWait = 128;
using Events = std::array<epoll_event, kEventsPerWait>;

int make_eventfd() {
    const int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (fd < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
    return fd;
}

int make_epoll() {
    const int fd = epoll_create1(EPOLL_CLOEXEC);
    if (fd < 0) throw std::system_error(errno, std::generic_category(), "epoll_create1");
    return fd;
}

}  // namespace

struct IoLoop::Impl {
    Impl() : buffer(std::make_unique_for_overwrite<char[]>(kReadBufferBytes)) {
        // Edge-triggered and never read: each write is an edge.
        epoll_event wake{.events = EPOLLIN | EPOLLET, .data = {.ptr = nullptr}};
        if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, wake_fd, &wake) != 0)
            throw std::system_error(errno, std::generic_category(), "epoll_ctl");
    }
    ~Impl() {
        ::close(wake_fd);
        ::close(epoll_fd);
    }

    const int epoll_fd = make_epoll(), wake_fd = make_eventfd();
    // Set before the loop looks a last time whether there is work and waits; who brings some and
    // finds it set wakes the loop.
    std::atomic<bool> sleeping{false};
    std::atomic<bool> stopped{false};
    LoopInbox inbox;
    std::mutex posted_mutex;
    std::vector<std::function<void()>> posted;
    std::atomic<bool> any_posted{false};

    // Timers in order of time, then of creation; ids are found again through `due`.
    std::map<std::pair<std::int64_t, TimerId>, std::function<void()>> timers;
    std::unordered_map<TimerId, std::int64_t> due;
    TimerId last_id = 0;

    int depth = 0;
    std::vector<std::shared_ptr<TurnEnd>> ends;
    std::unique_ptr<char[]> buffer;

    static std::int64_t now_ms() { return mono_now() / kNsPerMs; }
    bool has_work() const { return !inbox.empty() || any_posted.load() || stopped.load(); }
    void wake() noexcept;
    int wait(Events& events);
    int wait_at_most(Events& events, int timeout_ms) const;
    int until_timer_ms() const;
    void drain_inbox();
    std::vector<std::function<void()>> take_posted();
    void fire_timers(IoLoop& loop);
};

IoLoop::IoLoop() : impl_(std::make_unique<Impl>()) {}
IoLoop::~IoLoop() = default;

void IoLoop::run() {
    Impl& self = *impl_;
    Events events;
    while (!self.stopped.load(std::memory_order_acquire)) {
        const int n = self.wait(events);
        for (int i = 0; i < n; ++i) {
            auto* const watch = static_cast<Watch*>(events[static_cast<std::size_t>(i)].data.ptr);
            if (watch == nullptr) continue;  // woken: the work is looked for below
            turn([&] { watch->tell(events[static_cast<std::size_t>(i)].events); });
        }
        if (!self.inbox.empty()) turn([&self] { self.drain_inbox(); });
        self.fire_timers(*this);
        for (const auto& fn : self.take_posted()) turn(fn);
    }
}

void IoLoop::stop() {
    impl_->stopped.store(true);
    impl_->wake();
}

char* IoLoop::read_buffer() { return impl_->buffer.get(); }

// --- waiting -------------------------------------------------------------------------------------

void IoLoop::Impl::wake() noexcept {
    if (!sleeping.exchange(false)) return;
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = ::write(wake_fd, &one, sizeof one);
}

int IoLoop::Impl::wait_at_most(Events& events, int timeout_ms) const {
    const int n = epoll_wait(epoll_fd, events.data(), kEventsPerWait, timeout_ms);
    ZH_CHECK(n >= 0 || errno == EINTR);
    return std::max(n, 0);
}

int IoLoop::Impl::wait(Events& events) {
    if (has_work()) return wait_at_most(events, 0);
    const int timeout_ms = until_timer_ms();
    sleeping.store(true);
    const int n = wait_at_most(events, has_work() ? 0 : timeout_ms);
    sleeping.store(false, std::memory_order_relaxed);
    return n;
}

int IoLoop::Impl::until_timer_ms() const {
    if (timers.empty()) return -1;
    constexpr std::int64_t kMost = 60'000;
    return static_cast<int>(
        std::clamp<std::int64_t>(timers.begin()->first.first - now_ms(), 0, kMost));
}

// --- from other threads --------------------------------------------------------------------------

void IoLoop::post(std::function<void()> fn) {
    {
        const std::lock_guard lock(impl_->posted_mutex);
        impl_->posted.push_back(std::move(fn));
        impl_->any_posted.store(true);
    }
    impl_->wake();
}

std::vector<std::function<void()>> IoLoop::Impl::take_posted() {
    if (!any_posted.load(std::memory_order_relaxed)) return {};
    const std::lock_guard lock(posted_mutex);
    any_posted.store(false, std::memory_order_relaxed);
    return std::exchange(posted, {});
}

void IoLoop::signal(Ready& ready) noexcept {
    if (impl_->inbox.push(ready)) impl_->wake();
}

void IoLoop::Impl::drain_inbox() {
    inbox.drain([](Ready& ready) { ready.on_ready(); });
}

// --- timers --------------------------------------------------------------------------------------

TimerId IoLoop::after(std::int64_t delay_ms, std::function<void()> fn) {
    const TimerId id = ++impl_->last_id;
    const std::int64_t at = Impl::now_ms() + std::max<std::int64_t>(delay_ms, 0) + 1;
    impl_->timers.emplace(std::pair{at, id}, std::move(fn));
    impl_->due.emplace(id, at);
    return id;
}

void IoLoop::cancel(TimerId id) {
    const auto it = impl_->due.find(id);
    if (it == impl_->due.end()) return;
    impl_->timers.erase({it->second, id});
    impl_->due.erase(it);
}

void IoLoop::Impl::fire_timers(IoLoop& loop) {
    if (timers.empty()) return;
    const std::int64_t now = now_ms();
    if (timers.begin()->first.first > now) return;
    loop.turn([this, now] {
        while (!timers.empty() && timers.begin()->first.first <= now) {
            auto node = timers.extract(timers.begin());
            due.erase(node.key().second);
            node.mapped()();
        }
    });
}

// --- turns ---------------------------------------------------------------------------------------

void IoLoop::begin_turn() { ++impl_->depth; }

void IoLoop::end_turn() {
    if (impl_->depth > 1) {
        --impl_->depth;
        return;
    }
    // What ends a turn may add more to be done.
    for (std::size_t i = 0; i < impl_->ends.size(); ++i) {
        const std::shared_ptr<TurnEnd> what = std::move(impl_->ends[i]);
        what->end_of_turn();
    }
    impl_->ends.clear();
    --impl_->depth;
}

void IoLoop::at_turn_end(std::shared_ptr<TurnEnd> what) {
    ZH_CHECK(impl_->depth > 0);
    impl_->ends.push_back(std::move(what));
}

// --- descriptors ---------------------------------------------------------------------------------

void Watch::wait_for(std::uint32_t events) {
    wanted_ |= events;
    if ((wanted_ & ~watched_) != 0) change_to(watched_ | wanted_);
}

void Watch::forget() noexcept {
    wanted_ = 0;
    if (watched_ != 0) change_to(0);
}

void Watch::tell(std::uint32_t events) {
    if (watched_ == 0) return;  // forgotten earlier in this round
    if ((events & (EPOLLERR | EPOLLHUP)) != 0) events |= watched_;
    // What nobody wants any more would be told at once again.
    if ((events & watched_ & ~wanted_) != 0) change_to(wanted_);
    const std::uint32_t ready = events & wanted_;
    wanted_ &= ~ready;
    if (ready != 0) watcher_.on_ready(ready);
}

void Watch::change_to(std::uint32_t events) noexcept {
    const int what = events == 0 ? EPOLL_CTL_DEL : watched_ == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
    epoll_event event{.events = events, .data = {.ptr = this}};
    // Fails only where memory or fs.epoll.max_user_watches is used up; the tick ends who is stuck.
    if (epoll_ctl(loop_.impl_->epoll_fd, what, fd_, &event) == 0 || events == 0) watched_ = events;
}

}  // namespace zerohop::net
