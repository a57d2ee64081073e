#include "engine/null_engine.h"

#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <thread>

#include "engine/testing/kit.h"

namespace zerohop::engine {
namespace {

std::unique_ptr<EnginePort> make(std::string_view config) {
    auto engine = make_null(config);
    if (!engine) ADD_FAILURE() << engine.error().detail;
    return engine ? std::move(*engine) : nullptr;
}

using testkit::Answer;

std::shared_ptr<Request> ask(std::string text, std::int32_t max_tokens = 1000) {
    return testkit::ask(std::move(text), max_tokens);
}

Answer wait_for(Stream& stream, int seconds = 20) { return testkit::wait_for(stream, seconds); }

Answer answer_of(EnginePort& engine, std::shared_ptr<Request> request) {
    return wait_for(*testkit::submit(engine, std::move(request)));
}

TEST(NullEngine, AnswersAsScripted) {
    auto engine = make("null:tokens=3,text=one two");
    const Answer answer = answer_of(*engine, ask("hello there"));
    EXPECT_EQ(answer.prepared, 2 + 4 + 3);
    EXPECT_EQ(answer.text, "one twoone");
    ASSERT_TRUE(answer.done);
    EXPECT_EQ(answer.done->reason, StopReason::kEndTurn);
    EXPECT_EQ(answer.done->usage.output_tokens, 3);
    EXPECT_EQ(answer.texts, 3);
}

TEST(NullEngine, TheFirstTextSaysWhenItsPromptWasDone) {
    auto engine = make("null:prefill_ms=5,tokens=2");
    const MonoNs asked = mono_now();
    const Answer answer = answer_of(*engine, ask("hello"));
    ASSERT_TRUE(answer.done);
    EXPECT_GE(answer.admitted_ns, asked);
    EXPECT_EQ(answer.prefill_done_ns, answer.admitted_ns + 5 * kNsPerMs);
    EXPECT_EQ(answer.admitted_ns, answer.done->admitted_ns);
    EXPECT_EQ(answer.prefill_done_ns, answer.done->prefill_done_ns);
}

TEST(NullEngine, DirectivesOverrideTheConfig) {
    auto engine = make("null");
    const Answer answer = answer_of(*engine, ask("null:tokens=2 end=max_tokens text=a b c"));
    EXPECT_EQ(answer.text, "a b");
    ASSERT_TRUE(answer.done);
    EXPECT_EQ(answer.done->reason, StopReason::kMaxTokens);
    EXPECT_EQ(answer_of(*engine, ask("null:tokens=x")).failed->code, Code::kInvalidRequest);
    EXPECT_FALSE(make_null("null:nonsense=1"));
    const Answer echo = answer_of(*engine, ask("null:echo=1 tokens=2"));
    EXPECT_EQ(echo.text, "[user]null:echo=1 tokens=2");
}

// Blocks and messages of one role are one turn; what each says stays apart.
TEST(NullEngine, ReadsWhatWasSent) {
    auto engine = make("null");
    auto request = ask("My code is 12");
    request->turns[0].parts.push_back("34 is my age");
    request->turns.push_back({Role::kAssistant, {"."}});
    request->turns.push_back({Role::kUser, {"null: echo=1 tokens=1 chunk=200"}});
    auto counting = std::make_shared<Request>(*request);
    counting->work = Work::kCount;
    const Answer answer = answer_of(*engine, request);
    EXPECT_EQ(answer.text,
              "[user]My code is 12\n34 is my age[assistant].[user]null: echo=1 tokens=1 chunk=200");
    auto counted = testkit::submit(*engine, counting);
    Event event;
    ASSERT_TRUE(counted->try_pop(event));
    EXPECT_EQ(std::get<Prepared>(event).input_tokens, answer.prepared);
    EXPECT_EQ(answer.prepared, 3 + 3 * 4 + 8 + 1 + 4);
    EXPECT_TRUE(request->turns.empty());  // read, and given back
}

TEST(NullEngine, CountsBeyondItsContext) {
    auto engine = make("null:context=20");
    std::string words;
    for (int i = 0; i < 100; ++i) words += "w ";
    auto request = ask(words);
    request->work = Work::kCount;
    auto stream = testkit::submit(*engine, request);
    Event event;
    ASSERT_TRUE(stream->try_pop(event));
    EXPECT_EQ(std::get<Prepared>(event).input_tokens, 107);
}

TEST(NullEngine, HonoursMaxTokensStopSequencesAndContext) {
    auto engine = make("null:tokens=100,context=20");
    EXPECT_EQ(answer_of(*engine, ask("x", 0)).done->usage.output_tokens, 0);
    EXPECT_EQ(answer_of(*engine, ask("x", 5)).done->reason, StopReason::kMaxTokens);
    const Answer full = answer_of(*engine, ask("x", 500));
    EXPECT_EQ(full.done->reason, StopReason::kContextWindow);
    EXPECT_EQ(full.done->usage.output_tokens, 12);
    auto request = ask("null:text=one END two");
    auto stopping = std::make_shared<Request>(*request);
    stopping->stop_sequences = {"nope", "END"};
    const Answer stopped = answer_of(*engine, stopping);
    EXPECT_EQ(stopped.text, "one ");
    EXPECT_EQ(stopped.done->reason, StopReason::kStopSequence);
    EXPECT_EQ(stopped.done->stop_sequence, "END");
    std::string longer;
    for (int i = 0; i < 30; ++i) longer += "w ";
    const Answer refused = answer_of(*engine, ask(longer));
    ASSERT_TRUE(refused.failed);
    EXPECT_EQ(refused.failed->detail, "prompt is too long: 37 tokens > 20 maximum");
}

TEST(NullEngine, FailsAsAsked) {
    auto engine = make("null");
    const Answer at_once = answer_of(*engine, ask("null:fail=overloaded retry_after_ms=2500"));
    EXPECT_EQ(at_once.prepared, -1);
    EXPECT_EQ(at_once.failed->code, Code::kOverloaded);
    EXPECT_EQ(at_once.failed->retry_after_ms, 2500);
    const Answer later = answer_of(*engine, ask("null:fail=internal fail_after=2"));
    EXPECT_EQ(later.texts, 2);
    EXPECT_EQ(later.failed->code, Code::kInternal);
}

TEST(NullEngine, CountsWithoutQueueing) {
    auto engine = make("null:delay_ms=1000,slots=1,queue=0");
    auto busy = std::make_shared<Stream>(nullptr, nullptr);
    engine->submit(ask("x"), busy);
    auto request = ask("a b c");
    request->work = Work::kCount;
    auto stream = std::make_shared<Stream>(nullptr, nullptr);
    engine->submit(request, stream);
    Event event;
    ASSERT_TRUE(stream->try_pop(event));
    EXPECT_EQ(std::get<Prepared>(event).input_tokens, 10);
    busy->cancel(CancelReason::kDisconnect);
}

TEST(NullEngine, QueueHasABound) {
    auto engine = make("null:delay_ms=50,tokens=1000,slots=1,queue=1,retry_after_ms=700,id=m");
    std::vector<StreamPtr> streams;
    for (int i = 0; i < 3; ++i) {
        streams.push_back(std::make_shared<Stream>(nullptr, nullptr));
        engine->submit(ask("x"), streams.back());
    }
    const Answer refused = wait_for(*streams.back());
    ASSERT_TRUE(refused.failed);
    EXPECT_EQ(refused.failed->code, Code::kOverloaded);
    EXPECT_EQ(refused.failed->retry_after_ms, 700);
    EXPECT_EQ(refused.failed->detail,
              "overloaded: the queue of model \"m\" is full; try again in 1 s");
    streams[0]->cancel(CancelReason::kDisconnect);
    streams[1]->cancel(CancelReason::kDisconnect);
    for (int i = 0; i < 200 && engine->stats_approx().cancelled < 2; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(engine->stats_approx().cancelled, 2U);
    EXPECT_TRUE(answer_of(*engine, ask("null:tokens=1")).done);
}

std::shared_ptr<Request> ask_as(std::string workspace, std::string text) {
    auto request = ask(std::move(text));
    request->principal.workspace = std::move(workspace);
    return request;
}

TEST(NullEngine, KeepsTheQueuesSharesAndTellsTheGauge) {
    auto gauge = std::make_shared<sched::QueueGauge>();
    auto made = make_null("null:delay_ms=1000,slots=1,queue=8,prefill_ms=250", {}, gauge);
    ASSERT_TRUE(made);
    EnginePort& engine = **made;
    EXPECT_EQ(gauge->max_requests, 8U);
    EXPECT_EQ(gauge->prefill_ms_approx(1000), 250);
    std::vector<StreamPtr> streams;
    const auto submit = [&](std::string workspace) {
        streams.push_back(std::make_shared<Stream>(nullptr, nullptr));
        engine.submit(ask_as(std::move(workspace), "x"), streams.back());
        return streams.back();
    };
    const auto queued = [&](std::uint32_t n) {
        for (int i = 0; i < 400 && gauge->requests != n; ++i)
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        EXPECT_EQ(gauge->requests, n);
    };
    for (int i = 0; i < 8; ++i) submit("noisy");  // one runs, seven wait: 7/8 of the queue
    queued(7);
    EXPECT_GT(gauge->lanes[0].high_start_ms, 0U);
    EXPECT_FALSE(gauge->lanes[0].full);
    const Answer refused = wait_for(*submit("noisy"));
    ASSERT_TRUE(refused.failed);
    EXPECT_EQ(refused.failed->code, Code::kOverloaded);
    EXPECT_NE(refused.failed->detail.find("\"noisy\""), std::string::npos);
    submit("quiet");
    queued(8);
    EXPECT_TRUE(gauge->lanes[0].full);
    for (const StreamPtr& stream : streams) stream->cancel(CancelReason::kDisconnect);
    queued(0);
    for (int i = 0; i < 400 && gauge->lanes[0].high_start_ms != 0; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(gauge->lanes[0].high_start_ms, 0U);  // nothing runs: nobody waits
}

TEST(NullEngine, SaysPreparedWhenQueued) {
    auto engine = make("null:delay_ms=1000,slots=1");
    auto running = std::make_shared<Stream>(nullptr, nullptr);
    engine->submit(ask("x"), running);
    auto waiting = std::make_shared<Stream>(nullptr, nullptr);
    engine->submit(ask("x"), waiting);
    Event event;
    while (!waiting->try_pop(event)) std::this_thread::yield();
    EXPECT_TRUE(std::holds_alternative<Prepared>(event));
    EXPECT_TRUE(waiting->queued_approx());
    running->cancel(CancelReason::kDisconnect);
    while (!waiting->try_pop(event)) std::this_thread::yield();
    EXPECT_TRUE(std::holds_alternative<Text>(event));
    EXPECT_FALSE(waiting->queued_approx());
}

TEST(NullEngine, CancelEndsALongWaitWithinATick) {
    auto engine = make("null:prefill_ms=60000");
    auto stream = std::make_shared<Stream>(nullptr, nullptr);
    engine->submit(ask("x"), stream);
    Event event;
    while (!stream->try_pop(event)) std::this_thread::yield();
    stream->cancel(CancelReason::kDeadline);
    EXPECT_EQ(wait_for(*stream, 2).failed->code, Code::kTimeout);
}

TEST(NullEngine, DeadlineEndsIt) {
    auto engine = make("null:prefill_ms=60000");
    auto request = ask("x");
    request->deadline_ns = mono_now() + 20 * kNsPerMs;
    EXPECT_EQ(answer_of(*engine, request).failed->code, Code::kTimeout);
}

TEST(NullEngine, AFullRingPausesThatSequenceOnly) {
    auto engine = make("null:tokens=500");
    auto slow = std::make_shared<Stream>(nullptr, nullptr);
    engine->submit(ask("x"), slow);
    for (int i = 0; i < 400 && engine->stats_approx().paused == 0; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(engine->stats_approx().paused, 1U);
    auto quick = std::make_shared<Stream>(nullptr, nullptr);
    engine->submit(ask("y"), quick);
    EXPECT_EQ(wait_for(*quick).done->usage.output_tokens, 500);
    const Answer late = wait_for(*slow);
    EXPECT_EQ(late.done->usage.output_tokens, 500);
    EXPECT_EQ(late.texts, 500);
    EXPECT_EQ(engine->stats_approx().paused, 0U);
}

TEST(NullEngine, DrainRefusesAndStopFailsWhatRuns) {
    auto engine = make("null:delay_ms=50,tokens=10000");
    auto running = std::make_shared<Stream>(nullptr, nullptr);
    engine->submit(ask("x"), running);
    engine->drain();
    EXPECT_EQ(answer_of(*engine, ask("y")).failed->code, Code::kUnavailable);
    engine->stop();
    EXPECT_EQ(wait_for(*running).failed->code, Code::kUnavailable);
    EXPECT_EQ(answer_of(*engine, ask("y")).failed->code, Code::kUnavailable);
}

TEST(NullEngine, ManyRequestsFromManyThreads) {
    auto engine = make("null:tokens=1,queue=100000");
    constexpr int kThreads = 4, kEach = 5000;
    std::atomic<int> done{0};
    const auto begin = std::chrono::steady_clock::now();
    std::vector<std::thread> threads;
    threads.reserve(kThreads);
    for (int t = 0; t < kThreads; ++t) {
        threads.emplace_back([&] {
            for (int i = 0; i < kEach; i += 50) {
                std::vector<StreamPtr> streams;
                streams.reserve(50);
                for (int k = 0; k < 50; ++k) {
                    streams.push_back(std::make_shared<Stream>(nullptr, nullptr));
                    engine->submit(ask("x"), streams.back());
                }
                for (const StreamPtr& stream : streams) done += wait_for(*stream).done ? 1 : 0;
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    EXPECT_EQ(done, kThreads * kEach);
    std::printf("%.0f requests/s\n", kThreads * kEach / took.count());
}

}  // namespace
}  // namespace zerohop::engine
