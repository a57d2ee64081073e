#include "net/io_loop.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <ctime>
#include <thread>
#include <vector>

namespace zerohop::net {
namespace {

using namespace std::chrono_literals;

struct Pair {
    Pair() { EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds.data()), 0); }
    ~Pair() {
        close(0);
        close(1);
    }
    void close(std::size_t end) {
        if (fds[end] >= 0) ::close(std::exchange(fds[end], -1));
    }
    void send() const { EXPECT_EQ(::write(fds[1], "x", 1), 1); }
    std::array<int, 2> fds{-1, -1};
};

struct Seen final : Watcher {
    void on_ready(std::uint32_t events) override {
        calls.push_back(events);
        if (then) then();
    }
    std::vector<std::uint32_t> calls;
    std::function<void()> then;
};

// A loop that watches one end of a pair.
struct Watched {
    IoLoop loop;
    Pair pair;
    Seen seen;
    Watch watch{loop, pair.fds[0], seen};
};

// Runs what was posted and what is ready, for a while.
void run_for(IoLoop& loop, std::int64_t ms) {
    loop.turn([&] { loop.after(ms, [&] { loop.stop(); }); });
    loop.run();
}

TEST(WatchTest, TellsOncePerWait) {
    Watched w;
    w.pair.send();
    w.watch.wait_for(EPOLLIN);
    EXPECT_TRUE(w.watch.waits_for(EPOLLIN));
    run_for(w.loop, 20);
    EXPECT_EQ(w.seen.calls, std::vector<std::uint32_t>{EPOLLIN});  // though the byte is still there
    EXPECT_FALSE(w.watch.waits_for(EPOLLIN));
}

TEST(WatchTest, TellsAgainWhatIsStillThere) {
    Watched w;
    w.seen.then = [&] {
        if (w.seen.calls.size() < 3) w.watch.wait_for(EPOLLIN);
    };
    w.pair.send();
    w.watch.wait_for(EPOLLIN);
    run_for(w.loop, 20);
    EXPECT_EQ(w.seen.calls.size(), 3U);
}

TEST(WatchTest, ReadingAndWritingAreWaitedForApart) {
    Watched w;
    w.watch.wait_for(EPOLLIN);
    w.watch.wait_for(EPOLLOUT);
    w.seen.then = [&] { w.pair.send(); };
    run_for(w.loop, 20);
    ASSERT_EQ(w.seen.calls.size(), 2U);
    EXPECT_EQ(w.seen.calls[0], std::uint32_t{EPOLLOUT});
    EXPECT_EQ(w.seen.calls[1], std::uint32_t{EPOLLIN});
}

TEST(WatchTest, AHangUpIsSaidAsWhatIsWaitedFor) {
    Watched w;
    w.watch.wait_for(EPOLLIN);
    w.pair.close(1);
    run_for(w.loop, 20);
    EXPECT_EQ(w.seen.calls, std::vector<std::uint32_t>{EPOLLIN});
}

// A peer that is gone, or bytes that nobody wants yet, must not keep the loop awake.
TEST(WatchTest, WhatNobodyWaitsForCostsNothing) {
    IoLoop loop;
    Pair gone, unread;
    Seen seen;
    Watch a(loop, gone.fds[0], seen), b(loop, unread.fds[0], seen);
    for (Watch* watch : {&a, &b}) watch->wait_for(EPOLLIN);
    unread.send();
    gone.close(1);
    const std::clock_t before = std::clock();
    run_for(loop, 300);
    EXPECT_EQ(seen.calls.size(), 2U);
    EXPECT_LT(std::clock() - before, CLOCKS_PER_SEC / 10);
}

TEST(WatchTest, ForgetsWithinARound) {
    IoLoop loop;
    Pair one, two;
    Seen first, second;
    Watch a(loop, one.fds[0], first), b(loop, two.fds[0], second);
    one.send();
    two.send();
    a.wait_for(EPOLLIN);
    b.wait_for(EPOLLIN);
    first.then = [&] { b.forget(); };  // both are ready: whoever is told first forgets the other
    second.then = [&] { a.forget(); };
    run_for(loop, 20);
    EXPECT_EQ(first.calls.size() + second.calls.size(), 1U);
}

struct Counter final : Ready {
    void on_ready() override { ++seen; }
    std::atomic<int> seen{0};
};

// Signals and posts from other threads, into a loop that falls asleep between them or does not.
TEST(IoLoopTest, NothingFromOtherThreadsIsLost) {
    IoLoop loop;
    std::thread io([&] { loop.run(); });
    const auto counter = std::make_shared<Counter>();
    std::atomic<int> ran{0};
    for (int i = 1; i <= 2'000; ++i) {
        if (i % 7 == 0) std::this_thread::sleep_for(std::chrono::microseconds(i % 90));
        const int before = counter->seen.load();
        loop.signal(*counter);
        loop.post([&ran] { ++ran; });
        const auto until = std::chrono::steady_clock::now() + 20s;
        while ((counter->seen.load() == before || ran.load() != i) &&
               std::chrono::steady_clock::now() < until)
            std::this_thread::yield();
        ASSERT_GT(counter->seen.load(), before);
        ASSERT_EQ(ran.load(), i);
    }
    loop.stop();
    io.join();
}

TEST(IoLoopTest, TimersRunInOrderAndNotWhenCancelled) {
    IoLoop loop;
    std::vector<int> ran;
    loop.turn([&] {
        loop.after(300, [&] { ran.push_back(2); });
        loop.after(5, [&] {
            ran.push_back(1);
            loop.after(-5, [&] { ran.push_back(0); });  // now, from a timer
        });
        loop.cancel(loop.after(10, [&] { ran.push_back(9); }));
    });
    run_for(loop, 400);
    EXPECT_EQ(ran, (std::vector<int>{1, 0, 2}));
}

TEST(IoLoopTest, PostedFunctionsThatPostDoNotStarveEvents) {
    Watched w;
    w.pair.send();
    w.watch.wait_for(EPOLLIN);
    std::function<void()> again = [&] {
        if (w.seen.calls.empty()) w.loop.post(again);
    };
    w.loop.post(again);
    run_for(w.loop, 20);
    EXPECT_EQ(w.seen.calls.size(), 1U);
}

}  // namespace
}  // namespace zerohop::net
