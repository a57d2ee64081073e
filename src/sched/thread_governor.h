// ThreadGovernor: how many compute threads the next step should use.
//
// ggml's threads spin at a barrier after every operation, so one core taken by somebody else (an
// I/O thread, another process) holds up all of them: measured here on a 2-core machine under load,
// 2 threads took 650 ms for a step that 1 thread did in 45. The governor notices that steps take
// much longer than the same kind of step once did, tries fewer threads, and keeps what is faster.
// While nothing is wrong it never tries anything, so it costs nothing.
//
//     calm     uses `most` threads; slow steps (kSlow × the floor) → trying
//     trying   kTrial steps with fewer threads; faster by kGain → reduced, else calm (and the next
//              trial waits twice as long)
//     reduced  every kRetry steps a trial of more threads; faster → back up
//
// Steps are compared by their cost over what a step of that shape is expected to cost; the caller
// passes the expectation. Pure; one thread (the engine's); nothing fails.
#pragma once

#include <cstdint>

namespace zerohop::sched {

class ThreadGovernor {
  public:
    explicit ThreadGovernor(std::int32_t most) : most_(most < 1 ? 1 : most), now_(most_) {}

    std::int32_t threads() const { return trial_ > 0 ? trial_threads_ : now_; }

    // relative: what the step took over what its shape is expected to take; any constant factor.
    void observe(double relative);

  private:
    static constexpr int kTrial = 3;   // steps per trial, the first not counted
    static constexpr int kRetry = 64;  // steps between trials
    static constexpr int kRetryMost = 4096;
    static constexpr double kSlow = 3.0;  // a spinning thread short of its core costs 10 × and more
    static constexpr double kGain = 0.8;

    void begin_trial(std::int32_t threads);
    void end_trial();

    std::int32_t most_, now_;
    double floor_ = 0;   // the best a step has been, drifting up slowly
    double recent_ = 0;  // average of the last steps
    int since_trial_ = 0;
    int wait_ = kRetry / 4;
    int trial_ = 0;  // steps of it left; 0: none
    std::int32_t trial_threads_ = 0;
    double trial_sum_ = 0;
    bool tried_ = false;
};

}  // namespace zerohop::sched
