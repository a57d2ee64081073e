#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

namespace zerohop::cli {

ProgressBar::ProgressBar(std::string title)
    : title_(std::move(title)), tty_(isatty(STDERR_FILENO) != 0) {}

void ProgressBar::update(std::string_view what, float share) {
    if (!what.empty() && what != title_) {
        title_ = what;
        last_tenth_ = -1;
    }
    if (mono_now() - started_ < 300 * kNsPerMs) return;
    share = std::clamp(share, 0.0F, 1.0F);
    const int tenth = static_cast<int>(share * 10);
    if (tty_) {
        const int filled = static_cast<int>(share * 30);
        fmt::print(stderr, "\r\033[K[{}{}] {:3.0f} %  {}",
                   std::string(static_cast<std::size_t>(filled), '#'),
                   std::string(static_cast<std::size_t>(30 - filled), '.'), share * 100, title_);
        drawn_ = true;
    } else if (tenth != last_tenth_) {
        fmt::print(stderr, "{}: {:.0f} %\n", title_, share * 100);
    }
    last_tenth_ = tenth;
    std::fflush(stderr);
}

void ProgressBar::finish() {
    if (drawn_) fmt::print(stderr, "\r\033[K");
    drawn_ = false;
}

}  // namespace zerohop::cli
