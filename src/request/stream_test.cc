#include "request/stream.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/loop_inbox.h"

namespace zerohop {
namespace {

struct CountingNotifier : Notifier {
    std::atomic<int> count{0};
    void notify() noexcept override { ++count; }
};

TEST(Stream, KeepsTwoPlacesForTheEnd) {
    Stream stream(nullptr, nullptr);
    std::uint32_t pushed = 0;
    while (stream.try_push(Text{"x", 1})) ++pushed;
    EXPECT_EQ(pushed, Stream::kCapacity - 2);
    EXPECT_TRUE(stream.try_push(Done{}));
    EXPECT_TRUE(stream.try_push(Failed{}));
    EXPECT_FALSE(stream.try_push(Failed{}));
}

TEST(Stream, TellsTheProducerWhenThereIsRoomAgain) {
    CountingNotifier producer;
    Stream stream(nullptr, nullptr);
    stream.set_producer(&producer);
    while (stream.try_push(Text{"x", 1})) {
    }
    Event event;
    for (std::uint32_t i = 0; i < Stream::kCapacity / 2 - 3; ++i)
        ASSERT_TRUE(stream.try_pop(event));
    EXPECT_EQ(producer.count, 0);
    while (stream.try_pop(event)) {
    }
    EXPECT_EQ(producer.count, 1);
}

TEST(Stream, FirstCancelReasonStays) {
    CountingNotifier producer;
    Stream stream(nullptr, nullptr);
    stream.set_producer(&producer);
    stream.cancel(CancelReason::kDisconnect);
    stream.cancel(CancelReason::kDeadline);
    EXPECT_EQ(stream.cancelled(), CancelReason::kDisconnect);
    EXPECT_EQ(producer.count, 1);
}

TEST(Stream, OrderHoldsAcrossThreads) {
    CountingNotifier producer_notifier;
    Stream stream(nullptr, nullptr);
    stream.set_producer(&producer_notifier);
    constexpr int kEvents = 20000;
    std::thread producer([&] {
        for (int i = 0; i < kEvents; ++i)
            while (!stream.try_push(Text{"t", i})) std::this_thread::yield();
    });
    for (int expected = 0; expected < kEvents;) {
        Event event;
        if (!stream.try_pop(event)) {
            std::this_thread::yield();
            continue;
        }
        ASSERT_EQ(std::get<Text>(event).output_tokens, expected++);
    }
    producer.join();
}

struct Touched : Ready {
    std::atomic<int> seen{0};
    void on_ready() override { ++seen; }
};

TEST(LoopInbox, CoalescesAndLosesNothing) {
    LoopInbox inbox;
    auto ready = std::make_shared<Touched>();
    std::atomic<int> written{0};
    std::atomic<bool> stop{false};
    int read = 0;
    std::thread consumer([&] {
        while (!stop || read < written) {
            inbox.drain([&](Ready& r) {
                r.on_ready();
                read = written;
            });
        }
    });
    for (int i = 0; i < 20000; ++i) {
        ++written;
        inbox.push(*ready);
    }
    stop = true;
    consumer.join();
    EXPECT_EQ(read, 20000);
    EXPECT_GT(ready->seen, 0);
}

TEST(LoopInbox, FreesWhatWasQueuedAtTheEnd) {
    std::weak_ptr<Touched> weak;
    {
        LoopInbox inbox;
        auto ready = std::make_shared<Touched>();
        weak = ready;
        EXPECT_TRUE(inbox.push(*ready));
        EXPECT_FALSE(inbox.push(*ready));
    }
    EXPECT_TRUE(weak.expired());
}

}  // namespace
}  // namespace zerohop
