// A request's phases inside LlamaEngine, with a tiny model and steps as slow as a test wants them:
// each can be left at any moment, and none holds up others for ever.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <random>
#include <thread>
#include <vector>

#include "engine/testing/llama_kit.h"
#include "engine/testing/tiny_model.h"

namespace zerohop::engine {
namespace {

using namespace testkit;
using namespace std::chrono_literals;

std::string letters(std::size_t count, unsigned seed) {
    std::mt19937 random(seed);
    std::string text;
    while (text.size() < count) text.push_back(static_cast<char>('a' + random() % 26));
    return text;
}

std::shared_ptr<Request> ask_of(const char* workspace, std::string text, std::int32_t tokens,
                                Priority priority = Priority::kNormal) {
    auto request = ask(std::move(text), tokens);
    request->principal.workspace = workspace;
    request->priority = priority;
    return request;
}

LlamaOptions tiny_options() {
    LlamaOptions options = base_options();
    options.path = tiny_model_path();
    options.kv_tokens = TinyModel::kContext;
    options.drafts = false;
    options.side_prefill = false;
    return options;
}

class Phases : public testing::Test {
  protected:
    void start(LlamaOptions options, int step_ms) {
        step_ms_ = step_ms;
        options.on_step = [this](const StepRecord& record) {
            if (!record.tokens.empty()) std::this_thread::sleep_for(1ms * step_ms_.load());
        };
        engine_ = load(options);
    }
    EngineStats stats() const { return engine_->stats_approx(); }
    StreamPtr send(const char* workspace, std::string text, std::int32_t tokens,
                   Priority priority = Priority::kNormal) {
        return submit(*engine_, ask_of(workspace, std::move(text), tokens, priority));
    }
    // Decodes, and is read, until it is cancelled; it begins with about so many tokens of KV.
    StreamPtr occupy(const char* workspace, std::size_t tokens, unsigned seed) {
        const std::uint32_t before = stats().running;
        const StreamPtr stream = send(workspace, letters(tokens, seed), 8000);
        EXPECT_TRUE(eventually([&] { return stats().running > before; }));
        readers_.emplace_back([stream](const std::stop_token& stop) {
            for (Event event; !stop.stop_requested(); std::this_thread::sleep_for(2ms))
                while (stream->try_pop(event)) {
                }
        });
        return stream;
    }
    void expect_idle() {
        EXPECT_TRUE(eventually([&] {
            return stats().running + stats().waiting + stats().paused == 0 &&
                   stats().kv_tokens_used == 0;
        }));
        const std::uint64_t steps = stats().steps;
        std::this_thread::sleep_for(50ms);
        EXPECT_LE(stats().steps, steps + 1) << "it spins";
    }

    std::atomic<int> step_ms_{0};
    std::unique_ptr<EnginePort> engine_;
    std::vector<std::jthread> readers_;
};

// A client that left while its long prompt was tokenized, or computed beside the others, used to
// leave the engine with a chunk it began for ever.
TEST_F(Phases, ALongPromptCanBeLeftAtAnyMoment) {
    LlamaOptions options = tiny_options();
    options.side_prefill = true;
    options.step_ms = 1;  // every prompt is long
    start(options, 0);
    std::mt19937 random(11);
    for (unsigned i = 0; i < 40; ++i) {
        auto request = ask_of("a", letters(6000, i), 4);
        if (i % 4 == 3) request->deadline_ns = mono_now() + random() % 20 * kNsPerMs;
        const StreamPtr stream = submit(*engine_, request);
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
        if (i % 4 != 3) stream->cancel(CancelReason::kDisconnect);
        if (i % 5 == 0) expect_idle();  // a lost one would be found by the next one's cancel
    }
    expect_idle();
    EXPECT_TRUE(wait_for(*send("b", letters(6000, 99), 4), 20).done);
}

TEST_F(Phases, StopAbortsAPromptBesideTheOthers) {
    LlamaOptions options = tiny_options();
    options.side_prefill = true;
    options.step_ms = 1;
    start(options, 0);
    std::vector<StreamPtr> streams;
    for (unsigned i = 0; i < 4; ++i) streams.push_back(send("a", letters(7000, i), 4));
    std::this_thread::sleep_for(20ms);
    engine_->stop();
    for (const StreamPtr& stream : streams) {
        const Answer answer = wait_for(*stream, 1);
        EXPECT_TRUE(answer.done || answer.failed->code == Code::kUnavailable);
    }
}

TEST_F(Phases, WhoWaitsForASharedBeginningMayLeaveAndPaysNothing) {
    LlamaOptions options = tiny_options();
    options.batch_tokens = 64;
    start(options, 20);
    const std::string text = letters(4000, 1);
    const StreamPtr first = send("a", text, 4);
    ASSERT_TRUE(eventually([&] { return stats().running == 1; }));
    const StreamPtr second = send("a", text + "x", 4);
    auto late = ask_of("a", text + "y", 4);
    late->deadline_ns = mono_now() + 150 * kNsPerMs;
    const StreamPtr third = submit(*engine_, late);
    ASSERT_TRUE(eventually([&] { return stats().waiting == 2; }));
    second->cancel(CancelReason::kDisconnect);
    EXPECT_EQ(wait_for(*third, 2).failed->code, Code::kTimeout);
    EXPECT_TRUE(eventually([&] { return stats().waiting == 0; }));
    EXPECT_EQ(stats().running, 1U) << "the first was done too early: the test tests nothing";
    EXPECT_TRUE(second->queued_approx());
    EXPECT_TRUE(third->queued_approx());
    step_ms_ = 0;
    EXPECT_TRUE(wait_for(*first).done);
    expect_idle();
}

TEST_F(Phases, WhoWaitsForRoomHoldsUpNobodyForLongAndPaysNothing) {
    LlamaOptions options = tiny_options();
    options.kv_tokens = 2048;
    options.occupancy.head_of_line_ns = 3 * kNsPerSec;
    start(options, 10);
    const StreamPtr holder = occupy("a", 1300, 1);
    const MonoNs begin = mono_now();
    const StreamPtr big = send("b", letters(1200, 2), 4);
    ASSERT_TRUE(eventually([&] { return stats().paused == 1; }));
    EXPECT_TRUE(wait_for(*send("c", letters(40, 3), 4, Priority::kHigh), 3).done);
    EXPECT_LT(mono_now() - begin, 3 * kNsPerSec) << "high priority waited for it";
    EXPECT_TRUE(wait_for(*send("d", letters(40, 4), 4), 10).done);
    EXPECT_EQ(stats().paused, 1U);
    EXPECT_TRUE(big->queued_approx());
    big->cancel(CancelReason::kDisconnect);
    EXPECT_TRUE(eventually([&] { return stats().paused == 0; }));
    EXPECT_TRUE(big->queued_approx());
    holder->cancel(CancelReason::kDisconnect);
    expect_idle();
}

// Those that pass it cannot keep it waiting for ever.
TEST_F(Phases, WhoWasPassedForLongGetsItsRoom) {
    LlamaOptions options = tiny_options();
    options.kv_tokens = 2048;
    options.occupancy.head_of_line_ns = 100 * kNsPerMs;
    options.occupancy.passed_ns = 1500 * kNsPerMs;
    start(options, 10);
    const StreamPtr old = occupy("a", 500, 1), holder = occupy("a", 600, 2);
    const StreamPtr big = send("b", letters(1000, 3), 4);
    ASSERT_TRUE(eventually([&] { return stats().paused == 1; }));
    const StreamPtr passed = occupy("c", 20, 4);
    holder->cancel(CancelReason::kDisconnect);
    std::vector<StreamPtr> more;
    for (unsigned i = 0; i < 3; ++i) more.push_back(send("c", letters(200, 10 + i), 8000));
    EXPECT_TRUE(wait_for(*big, 10).done);
    EXPECT_FALSE(old->queued_approx());
    more.push_back(passed);
    more.push_back(old);
    for (const StreamPtr& stream : more) stream->cancel(CancelReason::kDisconnect);
    expect_idle();
}

// One workspace's requests that find no room are not all taken from the queue to wait for it.
TEST_F(Phases, ManyThatFindNoRoomLeaveTheQueueToOthers) {
    LlamaOptions options = tiny_options();
    options.kv_tokens = 2048;
    options.occupancy.head_of_line_ns = 100 * kNsPerMs;
    start(options, 10);
    const StreamPtr holder = occupy("a", 1300, 1);
    std::vector<StreamPtr> big;
    for (unsigned i = 0; i < 12; ++i) big.push_back(send("b", letters(1200, 20 + i), 4));
    ASSERT_TRUE(eventually([&] { return stats().paused == sched::kMostForRoom; }));
    for (unsigned i = 0; i < 3; ++i) EXPECT_TRUE(wait_for(*send("c", letters(40, i), 4), 5).done);
    EXPECT_EQ(stats().paused, sched::kMostForRoom);
    EXPECT_EQ(stats().waiting, 12 - sched::kMostForRoom);
    holder->cancel(CancelReason::kDisconnect);
    step_ms_ = 0;
    for (const StreamPtr& stream : big) EXPECT_TRUE(wait_for(*stream).done);
    expect_idle();
}

// Others' high prompts do not keep the low one standing still whose work a high one waits for.
TEST_F(Phases, ALowOneIsLiftedByTheHighOneThatWaitsForIt) {
    LlamaOptions options = tiny_options();
    options.batch_tokens = 64;
    start(options, 10);
    const std::string text = letters(2000, 1);
    const StreamPtr low = send("a", text, 4, Priority::kLow);
    ASSERT_TRUE(eventually([&] { return stats().running == 1; }));
    std::vector<std::jthread> others;
    for (unsigned t = 0; t < 3; ++t)
        others.emplace_back([&, t](const std::stop_token& stop) {
            for (unsigned i = 0; !stop.stop_requested(); ++i)
                (void)wait_for(*send("b", letters(1200, 1000 * t + i), 1, Priority::kHigh));
        });
    ASSERT_TRUE(eventually([&] { return stats().running >= 3; }));
    const StreamPtr high = send("a", text + "x", 4, Priority::kHigh);
    ASSERT_TRUE(eventually([&] { return stats().waiting == 1; }))
        << "it does not wait for the low one";
    EXPECT_TRUE(wait_for(*high, 15).done);
    step_ms_ = 0;
    others.clear();
    EXPECT_TRUE(wait_for(*low).done);
}

// Erasing leaves nothing that an earlier answer could be told by.
TEST_F(Phases, ErasingForgetsDraftsAndWhatRunsLeavesNothing) {
    LlamaOptions options = tiny_options();
    options.drafts = options.drafts_always = true;
    start(options, 0);
    const auto request = [&] {
        auto r = ask_of("a", letters(300, 1), 60);
        r->structure[0] = {.lo = 1, .hi = 2};
        return r;
    };
    const auto accepted = [&](const std::shared_ptr<Request>& r) {
        const std::uint64_t before = stats().drafts_accepted;
        EXPECT_TRUE(answer_of(*engine_, r).done);
        return stats().drafts_accepted - before;
    };
    const std::uint64_t first = accepted(request());
    EXPECT_GT(accepted(request()), first) << "drafts are not tried: the test tests nothing";
    engine_->forget_cached("another", 0);
    EXPECT_GT(accepted(request()), first);
    engine_->forget_cached("a", 0);
    EXPECT_EQ(accepted(request()), first);

    engine_->forget_cached("a", 0);
    step_ms_ = 5;
    const std::uint64_t tokens = stats().output_tokens;
    const StreamPtr running = submit(*engine_, request());
    ASSERT_TRUE(eventually([&] { return stats().output_tokens > tokens + 2; }));
    engine_->forget_cached("a", 0);
    EXPECT_TRUE(wait_for(*running).done);
    step_ms_ = 0;
    const std::uint64_t before = stats().drafts_accepted;
    const Answer after = answer_of(*engine_, request());
    ASSERT_TRUE(after.done);
    EXPECT_EQ(stats().drafts_accepted - before, first);
    EXPECT_EQ(after.done->usage.cache_read_tokens, 0);
}

}  // namespace
}  // namespace zerohop::engine
