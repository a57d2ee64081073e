// What every EnginePort promises (request/engine_port.h), on the scripted engine and on a real one.
#include "request/engine_port.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <thread>

#include "engine/null_engine.h"
#include "engine/testing/kit.h"
#include "engine/testing/llama_kit.h"
#include "engine/testing/tiny_model.h"

namespace zerohop::engine {
namespace {

using namespace testkit;
using namespace std::chrono_literals;

struct Wishes {
    int slots = 4, queue = 16;
    int step_ms = 0;  // a token takes at least this
    sched::OccupancyLimits occupancy = {};
};

std::unique_ptr<EnginePort> make_scripted(const Wishes& wishes) {
    auto engine = make_null(
        "null:tokens=100000,text=abc,prefill_ms=" + std::to_string(wishes.step_ms) +
            ",delay_ms=" + std::to_string(wishes.step_ms) +
            ",slots=" + std::to_string(wishes.slots) + ",queue=" + std::to_string(wishes.queue),
        {}, nullptr, wishes.occupancy);
    if (!engine) ADD_FAILURE() << engine.error().detail;
    return engine ? std::move(*engine) : nullptr;
}

std::unique_ptr<EnginePort> make_real(const Wishes& wishes) {
    LlamaOptions options = base_options();
    options.path = tiny_model_path();
    options.kv_tokens = TinyModel::kContext;
    options.max_sequences = wishes.slots;
    options.queue_requests = wishes.queue;
    options.occupancy = wishes.occupancy;
    options.drafts = false;        // a step is a token
    options.side_prefill = false;  // that phase: engine_phase_test.cc
    if (wishes.step_ms > 0)
        options.on_step = [ms = wishes.step_ms](const StepRecord& record) {
            if (!record.tokens.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(ms));
        };
    return load(options);
}

struct Kind {
    const char* name;
    std::unique_ptr<EnginePort> (*make)(const Wishes&);
};

class Port : public testing::TestWithParam<Kind> {
  protected:
    void make(const Wishes& wishes) { engine_ = GetParam().make(wishes); }
    StreamPtr send(std::string text, std::int32_t max_tokens = 24) {
        return submit(*engine_, ask(std::move(text), max_tokens));
    }
    // Holds a slot until it is cancelled.
    StreamPtr occupy() {
        const StreamPtr stream = send("x", 5000);
        EXPECT_TRUE(eventually([&] { return engine_->stats_approx().running > 0; }));
        return stream;
    }
    bool idle() const {
        const EngineStats stats = engine_->stats_approx();
        return stats.running + stats.waiting + stats.paused == 0 && stats.kv_tokens_used == 0;
    }
    // Nothing is left, nothing is computed for nobody, and the next one is served.
    void expect_clean() {
        EXPECT_TRUE(eventually([&] { return idle(); }));
        std::this_thread::sleep_for(30ms);
        const std::uint64_t steps = engine_->stats_approx().steps;
        std::this_thread::sleep_for(100ms);
        EXPECT_LE(engine_->stats_approx().steps, steps + 1) << "it spins";
        EXPECT_TRUE(answer_of(*engine_, ask("next", 3)).done);
    }
    static void expect_nothing_more(Stream& stream) {
        Event event;
        EXPECT_FALSE(stream.try_pop(event)) << event.index();
    }

    std::unique_ptr<EnginePort> engine_;
};

TEST_P(Port, SaysPreparedThenTextThenDoneAndNothingMore) {
    make({});
    const StreamPtr stream = send("hello");
    const Answer answer = wait_for(*stream);
    ASSERT_TRUE(answer.done);
    EXPECT_GT(answer.prepared, 0);
    EXPECT_EQ(answer.prepared, answer.done->usage.input_tokens);
    EXPECT_EQ(answer.done->usage.output_tokens, 24);
    EXPECT_EQ(answer.done->reason, StopReason::kMaxTokens);
    EXPECT_LE(answer.done->admitted_ns, answer.done->prefill_done_ns);
    EXPECT_LE(answer.done->prefill_done_ns, answer.done->first_token_ns);
    EXPECT_LE(answer.done->first_token_ns, answer.done->done_ns);
    expect_clean();
    expect_nothing_more(*stream);
}

TEST_P(Port, PreparedComesBeforeTheQueueAndNothingIsPaidInIt) {
    make({.slots = 1, .step_ms = 2});
    const StreamPtr running = occupy();
    const StreamPtr waiting = send("y", 2);
    Event event;
    ASSERT_TRUE(eventually([&] { return waiting->try_pop(event); }));
    EXPECT_TRUE(std::holds_alternative<Prepared>(event));
    ASSERT_TRUE(eventually([&] { return engine_->stats_approx().waiting == 1; }));
    EXPECT_TRUE(waiting->queued_approx());
    running->cancel(CancelReason::kDisconnect);
    EXPECT_TRUE(wait_for(*waiting).done);
    EXPECT_FALSE(waiting->queued_approx());
}

TEST_P(Port, MaxTokensZeroGeneratesNothing) {
    make({});
    const Answer answer = answer_of(*engine_, ask("hello", 0));
    ASSERT_TRUE(answer.done);
    EXPECT_EQ(answer.done->reason, StopReason::kMaxTokens);
    EXPECT_EQ(answer.done->usage.output_tokens, 0);
    EXPECT_EQ(answer.texts, 0);
}

TEST_P(Port, CountingEndsWithPrepared) {
    make({.slots = 1, .queue = 1, .step_ms = 5});
    const StreamPtr running = occupy();
    auto request = ask("a b c");
    request->work = Work::kCount;
    const StreamPtr stream = submit(*engine_, request);
    Event event;
    ASSERT_TRUE(eventually([&] { return stream->try_pop(event); }));
    EXPECT_GT(std::get<Prepared>(event).input_tokens, 0);
    expect_nothing_more(*stream);
    running->cancel(CancelReason::kDisconnect);
    expect_clean();
}

TEST_P(Port, TooLongAPromptIsRefusedWithBothNumbers) {
    make({});
    std::string text;
    while (text.size() < 20'000) text += "w ";
    const Answer answer = answer_of(*engine_, ask(text));
    ASSERT_TRUE(answer.failed);
    EXPECT_EQ(answer.failed->code, Code::kInvalidRequest);
    EXPECT_NE(answer.failed->detail.find("8192"), std::string::npos) << answer.failed->detail;
}

// Most of them while it is tokenized: the engine is told of the cancel before it knows the request.
TEST_P(Port, ACancelAtAnyMomentIsSeen) {
    make({.slots = 2});
    std::string text;
    while (text.size() < 6000) text += "quick brown fox ";
    const auto long_one = [&](int i) {
        auto request = ask(std::to_string(i) + text, 5000);
        request->breakpoints.assign(4, {.turn = 0, .part = 0, .ttl_ns = 1});  // tokenized 5 times
        return submit(*engine_, request);
    };
    MonoNs took = kNsPerSec;  // until Prepared, at best
    for (int i = 0; i < 5; ++i) {
        const MonoNs begin = mono_now();
        const StreamPtr stream = long_one(i);
        Event event;
        while (!stream->try_pop(event)) std::this_thread::yield();
        took = std::min(took, mono_now() - begin);
        stream->cancel(CancelReason::kDisconnect);
        ASSERT_TRUE(eventually([&] { return idle(); }));
    }
    std::mt19937 random(3);
    for (int i = 0; i < 100; ++i) {
        const StreamPtr stream = long_one(100 + i);
        const MonoNs until = mono_now() + took * static_cast<MonoNs>(random() % 125) / 100;
        while (mono_now() < until) std::this_thread::yield();
        stream->cancel(CancelReason::kDisconnect);
        std::this_thread::sleep_for(std::chrono::nanoseconds(2 * took));  // it has arrived
        ASSERT_TRUE(eventually([&] { return idle(); })) << "try " << i;
    }
    expect_clean();
}

TEST_P(Port, ACancelInTheQueueIsSeenAndPaysNothing) {
    make({.slots = 1, .step_ms = 2});
    const StreamPtr running = occupy();
    std::mt19937 random(5);
    for (int i = 0; i < 20; ++i) {
        const StreamPtr waiting = send("waits", 5000);
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
        waiting->cancel(CancelReason::kDisconnect);
        ASSERT_TRUE(eventually([&] { return engine_->stats_approx().waiting == 0; }));
        Event event;
        if (waiting->try_pop(event)) {
            EXPECT_TRUE(waiting->queued_approx());
        }
    }
    running->cancel(CancelReason::kDisconnect);
    expect_clean();
}

TEST_P(Port, ACancelWhileItsRingIsFullIsSeen) {
    make({});
    const StreamPtr full = send("x", 5000);
    ASSERT_TRUE(eventually([&] { return engine_->stats_approx().paused == 1; }));
    full->cancel(CancelReason::kDisconnect);
    expect_clean();
}

TEST_P(Port, ACancelWhileItsEndWaitsForRoomIsSeen) {
    make({});
    // The ring holds 126 texts: the rest waits, and the end behind it.
    const StreamPtr full = send("x", 128);
    ASSERT_TRUE(eventually([&] { return engine_->stats_approx().paused == 1; }));
    full->cancel(CancelReason::kDisconnect);
    expect_clean();
}

TEST_P(Port, DeadlinesEndWhatWaitsAndWhatRuns) {
    make({.slots = 1, .step_ms = 2});
    auto runs = ask("x", 5000);
    runs->deadline_ns = mono_now() + 600 * kNsPerMs;
    const StreamPtr running = submit(*engine_, runs);
    ASSERT_TRUE(eventually([&] { return engine_->stats_approx().running == 1; }));
    auto waits = ask("y");
    waits->deadline_ns = mono_now() + 100 * kNsPerMs;
    const Answer waited = answer_of(*engine_, waits);
    ASSERT_TRUE(waited.failed);
    EXPECT_EQ(waited.failed->code, Code::kTimeout);
    EXPECT_EQ(waited.texts, 0);
    const Answer ran = wait_for(*running);
    ASSERT_TRUE(ran.failed);
    EXPECT_EQ(ran.failed->code, Code::kTimeout);
    EXPECT_GT(ran.texts, 0);
    auto late = ask("z");
    late->deadline_ns = mono_now() - 1;
    EXPECT_EQ(answer_of(*engine_, late).failed->code, Code::kTimeout);
    expect_clean();
    expect_nothing_more(*running);
}

TEST_P(Port, WhatIsBeyondTheQueueFailsWithATime) {
    make({.slots = 1, .queue = 1, .step_ms = 2});
    const StreamPtr running = occupy();
    const StreamPtr waiting = send("y", 2);
    ASSERT_TRUE(eventually([&] { return engine_->stats_approx().waiting == 1; }));
    const StreamPtr third = send("z");
    const Answer refused = wait_for(*third);
    ASSERT_TRUE(refused.failed);
    EXPECT_EQ(refused.failed->code, Code::kOverloaded);
    EXPECT_GE(refused.failed->retry_after_ms.value_or(0), 1000);
    running->cancel(CancelReason::kDisconnect);
    EXPECT_TRUE(wait_for(*waiting).done);
    expect_clean();
    expect_nothing_more(*third);
}

TEST_P(Port, StopEndsEverythingOnceAndSoon) {
    make({.slots = 2, .step_ms = 2});
    std::vector<StreamPtr> streams;
    for (int i = 0; i < 6; ++i) streams.push_back(send("x" + std::to_string(i), 5000));
    ASSERT_TRUE(eventually([&] {
        const EngineStats stats = engine_->stats_approx();
        return stats.running == 2 && stats.waiting == 4;
    }));
    engine_->drain();
    EXPECT_EQ(wait_for(*send("late")).failed->code, Code::kUnavailable);
    const MonoNs begin = mono_now();
    engine_->stop();
    EXPECT_LT(mono_now() - begin, 2 * kNsPerSec);
    for (const StreamPtr& stream : streams) {
        const Answer answer = wait_for(*stream, 1);
        ASSERT_TRUE(answer.failed);
        EXPECT_EQ(answer.failed->code, Code::kUnavailable);
        expect_nothing_more(*stream);
    }
    EXPECT_EQ(wait_for(*send("later")).failed->code, Code::kUnavailable);
}

TEST_P(Port, StopEndsRequestsThatArrive) {
    make({});
    std::atomic<bool> go_on{true};
    std::vector<StreamPtr> streams;
    std::thread client([&] {
        while (go_on) {
            streams.push_back(send("some words to read", 2));
            std::this_thread::sleep_for(200us);
        }
    });
    std::this_thread::sleep_for(50ms);
    engine_->stop();
    std::this_thread::sleep_for(5ms);
    go_on = false;
    client.join();
    for (const StreamPtr& stream : streams) {
        const Answer answer = wait_for(*stream, 1);
        EXPECT_TRUE(answer.done || answer.failed);
        expect_nothing_more(*stream);
    }
}

TEST_P(Port, ASlowReaderGivesItsPlaceToThoseWhoWaitAndLosesNothing) {
    make({.slots = 1, .occupancy = {.slow_reader_ns = 200 * kNsPerMs}});
    const Answer whole = answer_of(*engine_, ask("tell me", 400));
    const StreamPtr slow = send("tell me", 400);
    ASSERT_TRUE(eventually([&] { return engine_->stats_approx().paused == 1; }));
    std::this_thread::sleep_for(300ms);
    EXPECT_EQ(engine_->stats_approx().running, 1U) << "nobody waits: it keeps its place";
    const MonoNs begin = mono_now();
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(answer_of(*engine_, ask("short", 3)).done);
    EXPECT_LT(mono_now() - begin, 5 * kNsPerSec);
    const Answer late = wait_for(*slow);
    ASSERT_TRUE(late.done);
    EXPECT_EQ(late.done->usage.output_tokens, 400);
    EXPECT_EQ(late.text, whole.text);
    expect_clean();
}

TEST_P(Port, ReadersThatTakeALittleNowAndThenDoNotHoldAllPlaces) {
    make({.slots = 2, .occupancy = {.slow_reader_ns = 200 * kNsPerMs}});
    std::vector<StreamPtr> slow;
    for (int i = 0; i < 6; ++i) slow.push_back(send("hostile" + std::to_string(i), 5000));
    std::atomic<bool> go_on{true};
    std::thread reader([&] {
        while (go_on) {
            for (const StreamPtr& stream : slow)
                for (int i = 0; i < 70; ++i)
                    if (Event event; !stream->try_pop(event)) break;
            std::this_thread::sleep_for(100ms);
        }
    });
    auto request = ask("normal", 20);
    request->principal.workspace = "another";
    EXPECT_TRUE(wait_for(*submit(*engine_, request), 10).done);
    go_on = false;
    reader.join();
    for (const StreamPtr& stream : slow) stream->cancel(CancelReason::kDisconnect);
    expect_clean();
}

TEST_P(Port, AReaderThatTakesNothingAtAllFails) {
    make({.slots = 2, .occupancy = {.stalled_reader_ns = 300 * kNsPerMs}});
    const StreamPtr runs = send("x", 5000), ends = send("y", 128);
    ASSERT_TRUE(eventually([&] { return engine_->stats_approx().paused == 2; }));
    expect_clean();
    for (const StreamPtr& stream : {runs, ends}) {
        const Answer answer = wait_for(*stream, 1);
        ASSERT_TRUE(answer.failed);
        EXPECT_EQ(answer.failed->code, Code::kTimeout);
        EXPECT_GT(answer.texts, 100);
        expect_nothing_more(*stream);
    }
}

INSTANTIATE_TEST_SUITE_P(Engines, Port,
                         testing::Values(Kind{"null", make_scripted}, Kind{"llama", make_real}),
                         [](const auto& kind) { return std::string(kind.param.name); });

}  // namespace
}  // namespace zerohop::engine
