// What the queue tells of itself: to streams whether they wait, to the gauge how long a
// high-priority request would.
#include "sched/wait_queue.h"

#include <gtest/gtest.h>

#include "request/stream.h"

namespace zerohop::sched {
namespace {

constexpr MonoNs kStart = 1000 * kNsPerSec;

struct Job {
    StreamPtr stream = std::make_shared<Stream>(nullptr, nullptr);
};
using JobPtr = std::shared_ptr<Job>;

FairItem item(std::uint64_t handle, Priority priority, MonoNs first_token, MonoNs work) {
    return {.handle = handle,
            .workspace = "w",
            .priority = priority,
            .tokens = 10,
            .expected_work_ns = work,
            .first_token_ns = first_token,
            .arrived_ns = kStart};
}

class WaitQueueTest : public ::testing::Test {
  protected:
    void make(std::uint32_t slots, bool stepped, std::vector<std::uint32_t> reserved = {}) {
        queue_ = std::make_unique<WaitQueue<JobPtr>>(
            WaitQueue<JobPtr>::Options{.bounds = {.max_requests = max_requests_},
                                       .gauge = gauge_,
                                       .reserved = std::move(reserved),
                                       .slots = slots,
                                       .stepped = stepped});
    }
    JobPtr push(Priority priority, std::int64_t first_ms, std::int64_t work_ms,
                std::uint8_t lane = 0) {
        auto job = std::make_shared<Job>();
        JobPtr given = job;
        EXPECT_TRUE(queue_->push(item(++handle_, priority, first_ms * kNsPerMs, work_ms * kNsPerMs),
                                 lane, std::move(given), now_));
        return job;
    }
    void start(std::uint8_t lane = 0) {
        ASSERT_NE(queue_->next(now_, false), nullptr);
        queue_->take(now_);
        queue_->note_running(lane, 1);
        queue_->next(now_, false);
    }
    std::uint32_t wait_ms(std::size_t lane = 0) const { return gauge_->lanes[lane].high_start_ms; }

    std::shared_ptr<QueueGauge> gauge_ = std::make_shared<QueueGauge>();
    std::unique_ptr<WaitQueue<JobPtr>> queue_;
    std::uint32_t max_requests_ = 256;
    std::uint64_t handle_ = 0;
    MonoNs now_ = kStart;
};

TEST_F(WaitQueueTest, HighWaitsForTheSlotThatIsFreeFirst) {
    make(2, false);
    EXPECT_EQ(wait_ms(), 0U);
    push(Priority::kNormal, 0, 300);
    start();
    EXPECT_EQ(wait_ms(), 0U);
    push(Priority::kNormal, 0, 200);
    start();
    EXPECT_EQ(wait_ms(), 200U);
    now_ += 50 * kNsPerMs;
    queue_->next(now_, false);
    EXPECT_EQ(wait_ms(), 150U);
    now_ += 160 * kNsPerMs;  // longer than expected
    queue_->next(now_, false);
    EXPECT_EQ(wait_ms(), 90U);  // then the other's end
    now_ -= 160 * kNsPerMs;
    queue_->next(now_, false);
    push(Priority::kNormal, 0, 400);  // is not before a high one
    EXPECT_EQ(wait_ms(), 150U);
    push(Priority::kHigh, 0, 400);  // is
    EXPECT_EQ(wait_ms(), 250U);
    queue_->note_running(0, -1);
    queue_->note_running(0, -1);
    queue_->erase_if([](const JobPtr&) { return true; });
    queue_->next(now_, false);
    EXPECT_EQ(wait_ms(), 0U);
}

// Each with its own bounds: one that is full is full for its lanes alone.
TEST_F(WaitQueueTest, QueuesAreFullApart) {
    max_requests_ = 2;
    make(4, true, {0, 1, 0});
    const auto full = [&](std::size_t lane) { return gauge_->lanes[lane].full.load(); };
    push(Priority::kHigh, 0, 100, 0);
    EXPECT_FALSE(full(0));
    push(Priority::kHigh, 0, 100, 2);
    EXPECT_TRUE(full(0) && full(2));
    EXPECT_FALSE(full(1));
    EXPECT_GE(gauge_->lanes[0].retry_after_ms, 1000);
    push(Priority::kHigh, 0, 100, 1);
    push(Priority::kHigh, 0, 100, 1);
    EXPECT_TRUE(full(1));
    EXPECT_EQ(gauge_->requests, 4U);
    EXPECT_EQ(gauge_->tokens, 40U);
    queue_->erase_if([](const JobPtr&) { return true; });
    queue_->next(now_, false);
    EXPECT_FALSE(full(0) || full(1) || full(2));
    EXPECT_EQ(gauge_->requests, 0U);
}

TEST_F(WaitQueueTest, LowGivesWayWhereThereArePreemptions) {
    for (const bool stepped : {true, false}) {
        make(1, stepped);
        push(Priority::kLow, 0, 1000);
        start();
        EXPECT_EQ(wait_ms(), stepped ? 0U : 1000U);
    }
}

TEST_F(WaitQueueTest, PromptsBeforeItAndTheStepCount) {
    make(4, true);
    push(Priority::kNormal, 80, 1000);
    start();
    EXPECT_EQ(wait_ms(), 80U);
    now_ += 30 * kNsPerMs;
    queue_->next(now_, false);  // it has run a step of 30 ms
    EXPECT_EQ(wait_ms(), 50U + 30U);
    push(Priority::kHigh, 15, 100);
    EXPECT_EQ(wait_ms(), 50U + 30U + 15U);
    push(Priority::kNormal, 500, 1000);
    EXPECT_EQ(wait_ms(), 50U + 30U + 15U);
}

TEST_F(WaitQueueTest, AReservedLaneWaitsForItsOwnOnly) {
    make(4, false, {0, 1});
    for (int i = 0; i < 4; ++i) push(Priority::kNormal, 0, 500);
    for (int i = 0; i < 3; ++i) start();
    push(Priority::kHigh, 0, 100, 1);
    start(1);
    EXPECT_EQ(wait_ms(1), 100U);
    EXPECT_EQ(wait_ms(0), 500U);
    queue_->note_running(1, -1);
    queue_->next(now_, false);
    EXPECT_EQ(wait_ms(1), 0U);
    EXPECT_EQ(wait_ms(0), 500U);  // the reserved slot is not the others'
}

}  // namespace
}  // namespace zerohop::sched
