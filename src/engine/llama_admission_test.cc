// Who gets a slot and who stands still, with a real model.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <vector>

#include "engine/testing/llama_kit.h"

namespace zerohop::engine {
namespace {

using namespace testkit;

std::shared_ptr<Request> ask_for(const char* workspace, std::string text, std::int32_t tokens,
                                 Priority priority = Priority::kNormal) {
    auto request = ask(std::move(text), tokens);
    request->principal.workspace = workspace;
    request->priority = priority;
    return request;
}

// The place that "a" leaves is kept for it, but not for ever: also when nobody decodes who would
// make the engine look.
TEST(LlamaAdmission, AKeptPlaceIsGivenAwayInTheEnd) {
    NEED_MODEL();
    LlamaOptions options = base_options();
    options.max_sequences = 2;
    auto engine = load(options);
    const StreamPtr unread =
        submit(*engine, ask_for("b", "Write a very long story about a river.", 600));
    ASSERT_TRUE(eventually([&] { return engine->stats_approx().paused == 1; }));
    const StreamPtr short_one = submit(*engine, ask_for("a", "Say yes.", 4));
    ASSERT_TRUE(eventually([&] { return engine->stats_approx().running == 2; }));
    const StreamPtr next = submit(*engine, ask_for("b", "Say no.", 4));
    EXPECT_TRUE(wait_for(*short_one).done);
    EXPECT_TRUE(wait_for(*next, 10).done);
    unread->cancel(CancelReason::kDisconnect);
}

// A workspace whose long answers hold all slots gives one to another that waits; they go on after.
TEST(LlamaAdmission, ACrowdWithLongAnswersGivesOthersTheirShare) {
    NEED_MODEL();
    LlamaOptions options = base_options();
    options.max_sequences = 3;
    options.threads = 2;
    options.occupancy.crowded_out_ns = 50 * kNsPerMs;
    auto engine = load(options);
    std::vector<StreamPtr> crowd;
    crowd.reserve(3);
    for (const char* of : {"river", "winter", "market"})
        crowd.push_back(submit(
            *engine, ask_for("b", std::string("Write a very long story about a ") + of, 120)));
    ASSERT_TRUE(eventually([&] { return engine->stats_approx().output_tokens > 10; }));
    const Answer one = answer_of(*engine, ask_for("a", "Say yes.", 4));
    ASSERT_TRUE(one.done);
    for (const StreamPtr& stream : crowd) {
        const Answer answer = wait_for(*stream);
        ASSERT_TRUE(answer.done);
        EXPECT_EQ(answer.done->usage.output_tokens, 120);
        EXPECT_LT(one.done->done_ns, answer.done->done_ns);
    }
}

// The same for KV: a prompt that finds none takes it from the crowd, though that came first.
TEST(LlamaAdmission, ACrowdThatHoldsAllKvGivesOthersTheirShare) {
    NEED_MODEL();
    LlamaOptions options = base_options();
    options.max_sequences = 4;
    options.kv_tokens = 512;
    options.threads = 2;
    options.side_prefill = false;
    options.occupancy.crowded_out_ns = 50 * kNsPerMs;
    auto engine = load(options);
    std::vector<StreamPtr> crowd;
    crowd.reserve(3);
    for (unsigned i = 0; i < 3; ++i)
        crowd.push_back(submit(
            *engine, ask_for("b", filler(80, i) + "Write a very long story about this.", 60)));
    ASSERT_TRUE(eventually([&] { return engine->stats_approx().running == 3; }));
    const Answer one = answer_of(*engine, ask_for("a", filler(150, 9), 4));
    ASSERT_TRUE(one.done);
    for (const StreamPtr& stream : crowd) {
        const Answer answer = wait_for(*stream);
        ASSERT_TRUE(answer.done);
        EXPECT_LT(one.done->done_ns, answer.done->done_ns);
    }
}

// A promise is held against what is left to compute of a prompt: refused cold, kept once cached.
TEST(LlamaAdmission, APromiseCountsOnlyWhatIsNotCached) {
    NEED_MODEL();
    LlamaOptions options = base_options();
    options.gauge = std::make_shared<sched::QueueGauge>();
    auto engine = load(options);
    EXPECT_TRUE(options.gauge->engine_keeps_promises);
    std::string text;
    for (int i = 0; i < 300; ++i) text += "word ";
    const auto high = [&] {
        auto request = ask_for("a", text, 2, Priority::kHigh);
        request->promise = {.lane = "fast", .within_ms = 1};
        return request;
    };
    // The first one measures what a token takes: before it nothing is known and nobody refused.
    EXPECT_TRUE(answer_of(*engine, ask_for("b", text, 2)).done);
    const double token_ns = options.gauge->prefill_token_ns;
    ASSERT_GT(300 * token_ns, 1e6);
    const Answer cold = answer_of(*engine, high());
    ASSERT_TRUE(cold.failed);
    EXPECT_EQ(cold.failed->code, Code::kRateLimited);
    EXPECT_NE(cold.failed->detail.find("lane \"fast\" promises"), std::string::npos);
    EXPECT_TRUE(answer_of(*engine, ask_for("a", text, 2)).done);
    options.gauge->prefill_token_ns = 1e5;  // on any machine: the rest of it within 1 ms, all not
    EXPECT_TRUE(answer_of(*engine, high()).done);
}

// Prompts are computed in the order of their places, which are given fairly: a workspace that has
// queued many for long does not stand before one that came later a second time.
TEST(LlamaAdmission, APlaceIsWorthAsMuchToWhoCameLater) {
    NEED_MODEL();
    for (const bool side : {false, true}) {
        LlamaOptions options = base_options();
        options.max_sequences = 4;
        options.threads = 2;
        options.prefix_cache = false;
        options.side_prefill = side;
        options.step_ms = 5;  // a prompt takes many steps, or the side
        auto engine = load(options);
        std::vector<StreamPtr> crowd;
        crowd.reserve(8);
        for (unsigned i = 0; i < 8; ++i)
            crowd.push_back(submit(*engine, ask_for("b", filler(50, i), 2)));
        ASSERT_TRUE(eventually([&] { return engine->stats_approx().running == 4; }));
        const Answer late = answer_of(*engine, ask_for("a", filler(50, 9), 2));
        ASSERT_TRUE(late.done);
        std::ptrdiff_t before = 0;
        for (const StreamPtr& stream : crowd) {
            const Answer answer = wait_for(*stream);
            ASSERT_TRUE(answer.done);
            before += answer.done->prefill_done_ns < late.done->prefill_done_ns ? 1 : 0;
        }
        EXPECT_LE(before, 5) << (side ? "beside" : "in steps");
    }
}

// While a high-priority prompt is computed, low priority gets no token; then it goes on.
TEST(LlamaAdmission, LowStandsStillForAHighPrompt) {
    NEED_MODEL();
    LlamaOptions options = base_options();
    options.side_prefill = false;
    options.batch_tokens = 64;  // the prompt takes many steps
    std::string calls;          // P: tokens of a prompt, D: decoding only; read after stop()
    std::atomic<bool> high_asked{false};
    options.on_step = [&](const StepRecord& step) {
        if (!high_asked || step.tokens.empty()) return;
        const bool decodes =
            std::ranges::all_of(step.tokens, [](const StepToken& t) { return t.logits; });
        calls += decodes ? 'D' : 'P';
    };
    auto engine = load(options);
    const StreamPtr low =
        submit(*engine, ask_for("b", "Write a long story about a winter.", 100, Priority::kLow));
    ASSERT_TRUE(eventually([&] { return engine->stats_approx().output_tokens > 2; }));
    high_asked = true;
    std::string text;
    for (int i = 0; i < 300; ++i) text += "word ";
    const Answer high = answer_of(*engine, ask_for("a", text, 1, Priority::kHigh));
    EXPECT_TRUE(high.done);
    EXPECT_TRUE(wait_for(*low).done);
    engine->stop();
    const std::size_t first = calls.find('P'), last = calls.rfind('P');
    ASSERT_NE(first, std::string::npos);
    EXPECT_GE(last - first, 3U) << calls;
    EXPECT_EQ(calls.substr(first, last - first).find('D'), std::string::npos) << calls;
    EXPECT_NE(calls.find('D', last), std::string::npos) << calls;
}

// While a lane with a cap has a prompt to compute, another lane's prompt gets no more than the cap
// of a step, though it came first and is the shorter one.
TEST(LlamaAdmission, PromptsBesideACappedLaneGetItsCap) {
    NEED_MODEL();
    constexpr std::size_t kCap = 16;
    auto caps = std::make_shared<sched::LaneCaps>();
    caps->set(1, kCap);
    LlamaOptions options = base_options();
    options.side_prefill = false;
    options.prefix_cache = false;
    options.batch_tokens = 64;
    options.step_ms = options.idle_step_ms =
        60'000;  // room for both in a step, however slow the machine is
    options.lane_caps = caps;
    std::atomic<bool> begun{false};
    std::vector<std::map<std::int32_t, std::size_t>> calls;  // tokens by sequence; after stop()
    options.on_step = [&](const StepRecord& step) {
        if (step.tokens.empty()) return;
        auto& call = calls.emplace_back();
        for (const StepToken& token : step.tokens) ++call[token.sequence];
        begun = true;
    };
    auto engine = load(options);
    const StreamPtr other = submit(*engine, ask_for("b", filler(350, 1), 1));
    ASSERT_TRUE(eventually([&] { return begun.load(); }));
    auto capped = ask_for("a", filler(450, 2), 1);
    capped->lane = 1;
    EXPECT_TRUE(answer_of(*engine, capped).done);
    EXPECT_TRUE(wait_for(*other).done);
    engine->stop();
    const std::int32_t first = calls.front().begin()->first;
    EXPECT_EQ(calls.front().at(first), 64U);  // alone it has the whole step
    const auto has_capped = [&](const auto& call) { return call.size() > call.count(first); };
    EXPECT_GE(std::ranges::count_if(calls, has_capped), 7);
    for (const auto& call : calls) {
        if (!has_capped(call)) continue;
        ASSERT_TRUE(call.contains(first));  // it goes on, slowly
        EXPECT_LE(call.at(first), kCap);
    }
    EXPECT_EQ(calls.back(), (std::map<std::int32_t, std::size_t>{{first, calls.back().at(first)}}));
}

}  // namespace
}  // namespace zerohop::engine
