#include "app/signals.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

namespace zerohop::app {
namespace {

constexpr unsigned kLong = 20;  // seconds; nobody waits for their end
constexpr int kTooLate = 9;

void send(int signal) {
    kill(getpid(), signal);
    usleep(50'000);  // two of a kind that wait are one
}

TEST(SignalsDeath, WhileStartingOneEndsTheProcess) {
    for (const int signal : {SIGTERM, SIGINT})
        EXPECT_EXIT(
            {
                const Signals signals;
                send(SIGHUP);
                send(signal);
                sleep(kLong);
                _exit(kTooLate);
            },
            ::testing::ExitedWithCode(0), "");
}

TEST(SignalsDeath, TheFirstIsTheControlThreads) {
    EXPECT_EXIT(
        {
            Signals signals;
            send(SIGHUP);
            signals.serving();
            const bool reloads = signals.wait(kNsPerSec) == Signals::Event::kReload;
            const bool nothing = signals.wait(kNsPerMs) == Signals::Event::kNone;
            send(SIGTERM);
            const bool stops = signals.wait(kNsPerSec) == Signals::Event::kStop;
            const bool once = signals.wait(kNsPerMs) == Signals::Event::kNone;
            _exit(reloads && nothing && stops && once && !signals.hurry() ? 5 : kTooLate);
        },
        ::testing::ExitedWithCode(5), "");
}

// Whatever the control thread is doing: here it joins something that does not end.
TEST(SignalsDeath, TheSecondEndsTheProcessSoon) {
    EXPECT_EXIT(
        {
            Signals signals;
            signals.serving();
            send(SIGTERM);
            send(SIGTERM);
            sleep(kLong);
            _exit(kTooLate);
        },
        ::testing::ExitedWithCode(0), "");
}

TEST(SignalsDeath, TheDestructorWaitsForNothing) {
    EXPECT_EXIT(
        {
            {
                Signals signals;
                signals.serving();
                send(SIGTERM);
                send(SIGTERM);
                if (!signals.hurry()) _exit(kTooLate);
            }
            _exit(5);
        },
        ::testing::ExitedWithCode(5), "");
}

}  // namespace
}  // namespace zerohop::app
