// A one-line progress bar on standard error: drawn on a terminal after 0.3 s, else a line every few
// seconds from the second one on. A thread of its own draws it, so that it tells that something
// goes on also while nobody reports anything. update() and finish() are for the main thread.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "base/clock.h"

namespace zerohop::cli {

class ProgressBar {
  public:
    explicit ProgressBar(std::string title);
    ~ProgressBar() { finish(); }
    ProgressBar(const ProgressBar&) = delete;
    ProgressBar& operator=(const ProgressBar&) = delete;

    // share in [0, 1], < 0 where it is unknown; `what` replaces the title when not empty.
    void update(std::string_view what, float share);
    void finish();  // clears the bar

  private:
    void run();
    void draw() const;

    const MonoNs started_ = mono_now();
    const bool tty_;
    std::mutex mutex_;
    std::condition_variable ended_;
    std::string title_;
    float share_ = 0;
    bool over_ = false;
    std::thread thread_;
};

}  // namespace zerohop::cli
