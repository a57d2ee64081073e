// A one-line progress bar on standard error: drawn on a terminal, a line every 10 % otherwise, and
// not at all for what ends within 300 ms. Main thread only.
#pragma once

#include <string>
#include <string_view>

#include "base/clock.h"

namespace zerohop::cli {

class ProgressBar {
  public:
    explicit ProgressBar(std::string title);
    ~ProgressBar() { finish(); }
    ProgressBar(const ProgressBar&) = delete;
    ProgressBar& operator=(const ProgressBar&) = delete;

    // share in [0, 1]; `what` replaces the title when not empty.
    void update(std::string_view what, float share);
    void finish();  // clears the bar

  private:
    std::string title_;
    MonoNs started_ = mono_now();
    bool tty_;
    bool drawn_ = false;
    int last_tenth_ = -1;
};

}  // namespace zerohop::cli
