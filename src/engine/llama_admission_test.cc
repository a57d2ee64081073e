// Who gets a slot and who stands still, with a real model.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "engine/llama_test_kit.h"

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

// A promise is held against what is left to compute of a prompt: refused cold, kept once cached.
TEST(LlamaAdmission, APromiseCountsOnlyWhatIsNotCached) {
    NEED_MODEL();
    LlamaOptions options = base_options();
    options.gauge = std::make_shared<admit::QueueGauge>();
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

}  // namespace
}  // namespace zerohop::engine
