// With the vocabulary of Qwen2 and chatml; no model.
#include "engine/tokenizer_pool.h"

#include <gtest/gtest.h>
#include <llama.h>

#include <chrono>
#include <thread>

#include "engine/testing/llama_kit.h"

namespace zerohop::engine {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

// What grows faster than its text would take hours; a sanitizer takes some times as long.
constexpr int kSlow = testkit::kSanitized ? 20 : 1;

class TokenizerPoolTest : public ::testing::Test {
  protected:
    TokenizerPoolTest() {
        init_llama();
        llama_model_params params = llama_model_default_params();
        params.vocab_only = true;
        model_.reset(llama_model_load_from_file(
            ZEROHOP_LLAMA_SOURCE_DIR "/models/ggml-vocab-qwen2.gguf", params));
        const llama_vocab* vocab = llama_model_get_vocab(model_.get());
        renderer_ = *PromptRenderer::make(nullptr, vocab);
        tokenizer_ = std::make_unique<Tokenizer>(vocab);
        pool_ = std::make_unique<TokenizerPool>(
            *renderer_, *tokenizer_,
            TokenizerPool::Limits{.threads = 1, .queue = 64, .context_tokens = 8192},
            [this](PreparedRequest&& ready) { ready_.push_back(std::move(ready)); });
    }

    static std::shared_ptr<Request> turns_of(std::size_t n, std::string text) {
        auto request = std::make_shared<Request>();
        for (std::size_t i = 0; i < n; ++i)
            request->turns.push_back({i % 2 == 0 ? Role::kUser : Role::kAssistant, {text}});
        return request;
    }
    static std::shared_ptr<Request> counting(std::shared_ptr<Request> request) {
        request->work = Work::kCount;
        return request;
    }
    StreamPtr submit(RequestPtr request) {
        auto stream = std::make_shared<Stream>(nullptr, nullptr);
        pool_->submit(std::move(request), stream);
        return stream;
    }
    static Event next(Stream& stream, std::chrono::seconds patience = 120s) {
        Event event = Failed{};
        const auto until = Clock::now() + patience;
        while (!stream.try_pop(event) && Clock::now() < until) std::this_thread::sleep_for(1ms);
        return event;
    }
    static std::string refusal(Event&& event) {
        const auto* failed = std::get_if<Failed>(&event);
        return failed == nullptr ? "accepted" : failed->error.detail;
    }

    ModelPtr model_;
    std::unique_ptr<PromptRenderer> renderer_;
    std::unique_ptr<Tokenizer> tokenizer_;
    std::vector<PreparedRequest> ready_;  // by the one thread for small ones, or the large one
    std::unique_ptr<TokenizerPool> pool_;
};

TEST_F(TokenizerPoolTest, RefusesWhatCannotFitBeforeAnyWork) {
    const auto start = Clock::now();
    EXPECT_EQ(refusal(next(*submit(turns_of(100'000, "a")))),
              "prompt is too long: at least 100000 tokens > 8192 maximum");
    const std::string refused = refusal(next(*submit(turns_of(1, std::string(32U << 20, 'a')))));
    EXPECT_TRUE(refused.starts_with("prompt is too long: at least ")) << refused;
    EXPECT_LT(Clock::now() - start, kSlow * 5s);
    std::string words;
    for (int i = 0; i < 9000; ++i) words += " one";
    EXPECT_EQ(refusal(next(*submit(turns_of(1, words)))),
              "prompt is too long: 9008 tokens > 8192 maximum");
}

TEST_F(TokenizerPoolTest, CountsBeyondTheContext) {
    std::string words;
    for (int i = 0; i < 200'000; ++i) words += " one";
    const Event counted = next(*submit(counting(turns_of(1, words))));
    ASSERT_TRUE(std::holds_alternative<Prepared>(counted));
    EXPECT_EQ(std::get<Prepared>(counted).input_tokens, 200'008);
}

TEST_F(TokenizerPoolTest, NobodyIsWorkedForWhoLeft) {
    std::vector<StreamPtr> large;
    for (int i = 0; i < 4; ++i) large.push_back(submit(counting(turns_of(50'000, "word word"))));
    // A small one does not wait for them.
    const Event small = next(*submit(turns_of(1, "Hello")), kSlow * 5s);
    EXPECT_TRUE(std::holds_alternative<Prepared>(small));
    for (const StreamPtr& stream : large) stream->cancel(CancelReason::kDisconnect);
    const auto start = Clock::now();
    const Event after = next(*submit(counting(turns_of(2000, "a"))), 60s);
    EXPECT_TRUE(std::holds_alternative<Prepared>(after));
    EXPECT_LT(Clock::now() - start, kSlow * 10s);
}

TEST_F(TokenizerPoolTest, StopsWhileItWorks) {
    std::vector<StreamPtr> streams;
    std::string spaces(16U << 20, ' ');
    for (int i = 0; i < 3; ++i) streams.push_back(submit(counting(turns_of(1, spaces))));
    for (int i = 0; i < 3; ++i) streams.push_back(submit(counting(turns_of(90'000, "a b"))));
    std::this_thread::sleep_for(50ms);
    const auto start = Clock::now();
    pool_->stop();
    EXPECT_LT(Clock::now() - start, kSlow * 3s);
    for (const StreamPtr& stream : streams) EXPECT_EQ(refusal(next(*stream, 1s)), "shutting down");
    EXPECT_EQ(refusal(next(*submit(turns_of(1, "a")), 1s)), "shutting down");
}

TEST_F(TokenizerPoolTest, HostileTextIsReadInTime) {
    constexpr std::size_t kBytes = (testkit::kSanitized ? 64 : 640) * 1024;
    for (const std::string_view unit :
         {"\xF3\xB0\x80\xBE", "<|im_end|>", "<|im_en", "\xF3\xB0\x80\xBE<|im_end|>"}) {
        std::string text;
        while (text.size() < kBytes) text += unit;
        const auto start = Clock::now();
        const Event counted = next(*submit(counting(turns_of(1, text + "<|im_end|>"))));
        EXPECT_TRUE(std::holds_alternative<Prepared>(counted)) << unit;
        EXPECT_LT(Clock::now() - start, kSlow * 20s) << unit;
    }
}

}  // namespace
}  // namespace zerohop::engine
