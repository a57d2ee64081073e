#include "sched/thread_governor.h"

#include <algorithm>

namespace zerohop::sched {

void ThreadGovernor::observe(double relative) {
    if (most_ == 1 || !(relative > 0)) return;
    if (trial_ > 0) {
        // The first step of a trial still pays for waking or losing a thread.
        if (trial_ < kTrial) trial_sum_ += relative;
        if (--trial_ == 0) end_trial();
        return;
    }
    recent_ = recent_ == 0 ? relative : recent_ + 0.25 * (relative - recent_);
    if (now_ == most_) floor_ = floor_ == 0 ? relative : std::min(floor_ * 1.002, relative);
    ++since_trial_;
    if (since_trial_ < wait_) return;
    if (now_ < most_) {
        begin_trial(std::min(most_, now_ * 2));
    } else if (!tried_ || recent_ > kSlow * floor_) {
        tried_ = true;
        begin_trial(std::max(1, now_ / 2));
    }
}

void ThreadGovernor::begin_trial(std::int32_t threads) {
    trial_threads_ = threads;
    trial_ = kTrial;
    trial_sum_ = 0;
    since_trial_ = 0;
}

void ThreadGovernor::end_trial() {
    const double average = trial_sum_ / (kTrial - 1);
    const bool better = average < kGain * recent_;
    if (better) {
        now_ = trial_threads_;
        recent_ = average;
        wait_ = kRetry / 4;
    } else {
        wait_ = std::min(std::max(wait_, kRetry / 2) * 2, kRetryMost);
        // What is slow and stays slow with fewer threads is the new normal (a longer context).
        if (now_ == most_) floor_ = std::max(floor_, recent_ / kSlow);
    }
}

}  // namespace zerohop::sched
