#include "net/io_loop.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <map>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/check.h"
#include "base/loop_inbox.h"

namespace zerohop::net {

namespace asio = boost::asio;
using boost::system::error_code;

struct IoLoop::Impl {
    Impl()
        : work(asio::make_work_guard(context)),
          wake(context),
          timer(context),
          buffer(std::make_unique_for_overwrite<char[]>(kReadBufferBytes)) {
        const int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        if (fd < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
        wake.assign(fd);
        wake_fd = fd;
    }

    asio::io_context context{1};
    asio::executor_work_guard<asio::io_context::executor_type> work;
    asio::posix::stream_descriptor wake;
    int wake_fd = -1;
    LoopInbox inbox;
    std::atomic<std::thread::id> thread{};

    // Timers in order of time, then of creation; ids are found again through `due`.
    asio::steady_timer timer;
    std::map<std::pair<std::int64_t, TimerId>, std::function<void()>> timers;
    std::unordered_map<TimerId, std::int64_t> due;
    TimerId last_id = 0;
    std::int64_t armed_ms = -1;

    int depth = 0;
    std::vector<std::shared_ptr<TurnEnd>> ends;
    std::unique_ptr<char[]> buffer;

    static std::int64_t now_ms() { return mono_now() / kNsPerMs; }
    void wait_wake(IoLoop& loop);
    void drain_inbox();
    void arm(IoLoop& loop);
    void fire(IoLoop& loop);
};

IoLoop::IoLoop() : impl_(std::make_unique<Impl>()) { impl_->wait_wake(*this); }
IoLoop::~IoLoop() = default;

void IoLoop::run() {
    impl_->thread.store(std::this_thread::get_id());
    impl_->context.run();
}

void IoLoop::stop() {
    impl_->work.reset();
    impl_->context.stop();
}

bool IoLoop::on_this_thread() const { return impl_->thread.load() == std::this_thread::get_id(); }

asio::io_context& IoLoop::context() { return impl_->context; }
char* IoLoop::read_buffer() { return impl_->buffer.get(); }

void IoLoop::post(std::function<void()> fn) {
    asio::post(impl_->context, [this, fn = std::move(fn)] { turn(fn); });
}

void IoLoop::signal(Ready& ready) noexcept {
    if (!impl_->inbox.push(ready)) return;
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = ::write(impl_->wake_fd, &one, sizeof one);
}

void IoLoop::Impl::wait_wake(IoLoop& loop) {
    wake.async_wait(asio::posix::stream_descriptor::wait_read, [this, &loop](error_code ec) {
        if (ec) return;
        std::uint64_t count = 0;
        [[maybe_unused]] const ssize_t n = ::read(wake_fd, &count, sizeof count);
        loop.turn([this] { drain_inbox(); });
        wait_wake(loop);
    });
}

void IoLoop::Impl::drain_inbox() {
    inbox.drain([](Ready& ready) { ready.on_ready(); });
}

TimerId IoLoop::after(std::int64_t delay_ms, std::function<void()> fn) {
    const TimerId id = ++impl_->last_id;
    const std::int64_t at = Impl::now_ms() + std::max<std::int64_t>(delay_ms, 0) + 1;
    impl_->timers.emplace(std::pair{at, id}, std::move(fn));
    impl_->due.emplace(id, at);
    impl_->arm(*this);
    return id;
}

void IoLoop::cancel(TimerId id) {
    const auto it = impl_->due.find(id);
    if (it == impl_->due.end()) return;
    impl_->timers.erase({it->second, id});
    impl_->due.erase(it);  // the asio timer may fire for nothing once
}

void IoLoop::Impl::arm(IoLoop& loop) {
    if (timers.empty()) return;
    const std::int64_t at = timers.begin()->first.first;
    if (armed_ms >= 0 && armed_ms <= at) return;
    armed_ms = at;
    timer.expires_at(std::chrono::steady_clock::time_point(std::chrono::milliseconds(at)));
    timer.async_wait([this, &loop](error_code ec) {
        if (ec) return;  // armed anew for an earlier time, or the loop ends
        armed_ms = -1;
        loop.turn([this, &loop] { fire(loop); });
        arm(loop);
    });
}

void IoLoop::Impl::fire(IoLoop&) {
    const std::int64_t now = now_ms();
    while (!timers.empty() && timers.begin()->first.first <= now) {
        auto node = timers.extract(timers.begin());
        due.erase(node.key().second);
        node.mapped()();
    }
}

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

}  // namespace zerohop::net
