#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

namespace zerohop::cli {
namespace {

using namespace std::chrono_literals;

constexpr auto kFirst = 300ms, kEach = 200ms;              // of a bar
constexpr auto kFirstLine = 2'000ms, kEachLine = 3'000ms;  // of lines

}  // namespace

ProgressBar::ProgressBar(std::string title)
    : tty_(isatty(STDERR_FILENO) != 0), title_(std::move(title)), thread_([this] { run(); }) {}

void ProgressBar::update(std::string_view what, float share) {
    const std::lock_guard lock(mutex_);
    if (!what.empty()) title_ = what;
    share_ = std::min(share, 1.0F);
}

void ProgressBar::run() {
    std::unique_lock lock(mutex_);
    const auto over = [this] { return over_; };
    bool drawn = false;
    for (auto pause = tty_ ? kFirst : kFirstLine; !ended_.wait_for(lock, pause, over);
         pause = tty_ ? kEach : kEachLine) {
        draw();
        drawn = true;
    }
    if (tty_ && drawn) fmt::print(stderr, "\r\033[K");
}

void ProgressBar::draw() const {
    const MonoNs seconds = (mono_now() - started_) / kNsPerSec;
    const std::string share = share_ < 0 ? "" : fmt::format("{:.0f} %", share_ * 100);
    if (tty_) {
        const auto filled = static_cast<std::size_t>(std::max(share_, 0.0F) * 30);
        fmt::print(stderr, "\r\033[K[{}{}] {:>5}  {} ({} s)", std::string(filled, '#'),
                   std::string(30 - filled, '.'), share, title_, seconds);
    } else {
        fmt::print(stderr, "{}: {}{}{} s\n", title_, share, share.empty() ? "" : ", ", seconds);
    }
    std::fflush(stderr);
}

void ProgressBar::finish() {
    if (!thread_.joinable()) return;
    {
        const std::lock_guard lock(mutex_);
        over_ = true;
    }
    ended_.notify_all();
    thread_.join();
}

}  // namespace zerohop::cli
