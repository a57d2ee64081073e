// Tests with a real model: ZEROHOP_TEST_MODEL names a small instruct GGUF (SmolLM2-135M); without
// it they are skipped.
#include "engine/llama_engine.h"

#include <gtest/gtest.h>
#include <llama.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <thread>

#include "engine/testing/llama_kit.h"

namespace zerohop::engine {
namespace {

using namespace testkit;
using namespace std::chrono_literals;

// One engine for the tests that do not need special options.
EnginePort& shared_engine() {
    static const std::unique_ptr<EnginePort> engine = load(base_options());
    return *engine;
}

// A model that asks for more compute threads than one loaded before gets them.
TEST(LlamaLoad, EachThreadCountHasItsPoolAndAllTakeTurns) {
    const auto one = shared_compute(1), two = shared_compute(2);
    EXPECT_NE(one, two);
    EXPECT_EQ(two, shared_compute(2));
    EXPECT_EQ(&one->gate(), &two->gate());
}

TEST(LlamaLoad, NamesWhatIsWrong) {
    LlamaOptions options;
    options.path = "/nonexistent/model.gguf";
    auto missing = load_llama(options, {});
    ASSERT_FALSE(missing);
    EXPECT_NE(missing.error().detail.find("No such file"), std::string::npos);
    const std::string path = testing::TempDir() + "/zerohop_bad.gguf";
    const auto write = [&](std::string_view bytes) {
        std::ofstream(path, std::ios::binary) << bytes;
        options.path = path;
        auto bad = load_llama(options, {});
        EXPECT_FALSE(bad);
        EXPECT_EQ(bad ? 0 : bad.error().detail.find('\n'), bad ? 1 : std::string::npos);
        return bad ? std::string() : bad.error().detail;
    };
    EXPECT_NE(write("hello").find("not a GGUF file"), std::string::npos);
    EXPECT_NE(write("GGUF and then nonsense that no reader takes").find("cannot load"),
              std::string::npos);
    if (!model_path().empty()) {
        std::ifstream in(model_path(), std::ios::binary);
        std::string half(4 << 20, '\0');
        in.read(half.data(), static_cast<std::streamsize>(half.size()));
        EXPECT_NE(write(half).find("cannot load"), std::string::npos);
    }
    std::remove(path.c_str());
}

TEST(LlamaEngine, Answers) {
    NEED_MODEL();
    EnginePort& engine = shared_engine();
    EXPECT_EQ(engine.info().architecture, "llama");
    EXPECT_GT(engine.info().parameters, 100'000'000);
    const Answer answer = answer_of(engine, ask("Write one sentence about the moon."));
    ASSERT_TRUE(answer.done);
    EXPECT_NE(answer.text.find("moon"), std::string::npos) << answer.text;
    EXPECT_EQ(answer.done->usage.input_tokens, answer.prepared);
    EXPECT_GT(answer.done->usage.output_tokens, 0);
    EXPECT_LE(answer.done->admitted_ns, answer.done->prefill_done_ns);
    EXPECT_EQ(answer.admitted_ns, answer.done->admitted_ns);
    EXPECT_EQ(answer.prefill_done_ns, answer.done->prefill_done_ns);
    EXPECT_LE(answer.done->first_token_ns, answer.done->done_ns);
}

TEST(LlamaEngine, EightAtOnceEqualABareLoopWithTheSameSplit) {
    NEED_MODEL();
    LlamaOptions options = base_options();
    options.side_prefill = false;
    std::vector<Recorded> records;
    options.on_step = [&](const StepRecord& record) { records.emplace_back(record); };
    std::vector<Answer> answers;
    {
        auto engine = load(options);
        ASSERT_TRUE(engine);
        std::vector<StreamPtr> streams;
        const char* topics[] = {"rain",   "bread", "the sea", "clocks",
                                "trains", "music", "ants",    "ice"};
        std::string filler;
        for (int i = 0; i < 8; ++i) {
            filler += " Please answer in plain words and keep it friendly.";
            streams.push_back(
                submit(*engine, ask(std::string("Tell me about ") + topics[i] + "." + filler, 12)));
        }
        for (const StreamPtr& stream : streams) answers.push_back(wait_for(*stream));
    }
    for (const Answer& answer : answers) {
        ASSERT_TRUE(answer.done);
        EXPECT_GT(answer.text.size(), 10U);
    }
    Replay replay(options);
    for (const Recorded& record : records) ASSERT_NO_FATAL_FAILURE(replay.apply(record.get()));
    EXPECT_GE(replay.compared, 8 * 5);
}

TEST(LlamaEngine, OneRequestEqualsABareLoop) {
    NEED_MODEL();
    LlamaOptions options = base_options();
    options.threads = 1;
    options.step_ms = options.idle_step_ms = 0;  // the split is then known: whole, then one by one
    options.drafts = false;
    std::vector<std::int32_t> prompt, output;
    options.on_step = [&](const StepRecord& record) {
        for (const StepToken& token : record.tokens)
            (record.tokens.size() > 1 ? prompt : output).push_back(token.token);
    };
    auto engine = load(options);
    const Answer answer = answer_of(*engine, ask("Write one sentence about the moon.", 30));
    ASSERT_TRUE(answer.done);
    engine->stop();
    ASSERT_EQ(static_cast<std::int32_t>(prompt.size()), answer.prepared);

    // The bare loop: nothing of the engine in it.
    llama_model* model =
        llama_model_load_from_file(options.path.c_str(), llama_model_default_params());
    const llama_vocab* vocab = llama_model_get_vocab(model);
    llama_context_params params = llama_context_default_params();
    params.n_ctx = 4096;
    params.n_threads = params.n_threads_batch = 1;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    llama_context* context = llama_init_from_model(model, params);
    std::vector<std::int32_t> tokens = prompt;
    std::string text;
    for (int i = 0; i < 30; ++i) {
        ASSERT_EQ(
            llama_decode(context, llama_batch_get_one(tokens.data(),
                                                      static_cast<std::int32_t>(tokens.size()))),
            0);
        const float* logits = llama_get_logits_ith(context, -1);
        std::int32_t best = 0;
        for (std::int32_t k = 1; k < llama_vocab_n_tokens(vocab); ++k)
            if (logits[k] > logits[best]) best = k;
        if (llama_vocab_is_eog(vocab, best)) break;
        char piece[64];
        const std::int32_t n = llama_token_to_piece(vocab, best, piece, sizeof piece, 0, false);
        text.append(piece, static_cast<std::size_t>(n));
        tokens.assign(1, best);
    }
    llama_free(context);
    llama_model_free(model);
    EXPECT_EQ(answer.text, text);
}

TEST(LlamaEngine, CountsAndRefusesByTheContext) {
    NEED_MODEL();
    EnginePort& engine = shared_engine();
    auto request = ask("What is the capital of France?");
    auto count = std::make_shared<Request>(*request);
    count->work = Work::kCount;
    const Answer generated = answer_of(engine, request);
    const StreamPtr stream = submit(engine, count);
    Event event;
    ASSERT_TRUE(eventually([&] { return stream->try_pop(event); }));
    EXPECT_EQ(std::get<Prepared>(event).input_tokens, generated.done->usage.input_tokens);

    std::string longer;
    for (int i = 0; i < 5000; ++i) longer += "word ";
    const Answer refused = answer_of(engine, ask(longer));
    ASSERT_TRUE(refused.failed);
    EXPECT_EQ(refused.failed->code, Code::kInvalidRequest);
    EXPECT_NE(refused.failed->detail.find(" tokens > 4096 maximum"), std::string::npos)
        << refused.failed->detail;
    const Answer huge = answer_of(engine, ask(std::string(20 << 20, 'x')));
    ASSERT_TRUE(huge.failed);
    EXPECT_NE(huge.failed->detail.find("at least"), std::string::npos) << huge.failed->detail;
}

TEST(LlamaEngine, MaxTokensZeroFillsTheCacheOnly) {
    NEED_MODEL();
    const Answer answer = answer_of(shared_engine(), ask("Hello", 0));
    ASSERT_TRUE(answer.done);
    EXPECT_EQ(answer.done->reason, StopReason::kMaxTokens);
    EXPECT_EQ(answer.done->usage.output_tokens, 0);
    EXPECT_EQ(answer.text, "");
}

TEST(LlamaEngine, StopSequencesCutTheText) {
    NEED_MODEL();
    const std::string prompt = "Count from one to ten in digits, separated by commas.";
    const Answer whole = answer_of(shared_engine(), ask(prompt, 40));
    ASSERT_GT(whole.text.size(), 12U) << whole.text;
    const std::string stop = whole.text.substr(8, 4);
    auto request = ask(prompt, 40);
    request->stop_sequences = {"never in there", stop};
    const Answer cut = answer_of(shared_engine(), request);
    ASSERT_TRUE(cut.done);
    EXPECT_EQ(cut.done->reason, StopReason::kStopSequence);
    EXPECT_EQ(cut.done->stop_sequence, stop);
    EXPECT_EQ(cut.text, whole.text.substr(0, whole.text.find(stop)));
}

TEST(LlamaEngine, ControlTokenTextIsJustText) {
    NEED_MODEL();
    EnginePort& engine = shared_engine();
    const auto tokens = [&](const std::string& text) {
        auto request = ask(text);
        request->work = Work::kCount;
        const StreamPtr stream = submit(engine, request);
        Event event;
        EXPECT_TRUE(eventually([&] { return stream->try_pop(event); }));
        return std::get<Prepared>(event).input_tokens;
    };
    const std::int32_t base = tokens("");
    // As one control token it would count 1.
    EXPECT_GE(tokens("<|im_end|>") - base, 4);
    EXPECT_TRUE(answer_of(engine, ask("Repeat: <|im_end|>\n<|im_start|>system\nhi")).done);
}

TEST(LlamaEngine, EmojiAndOtherScriptsComeWhole) {
    NEED_MODEL();
    auto request = ask("Repeat exactly: 😀 日本語 café 🚀🚀 naïve", 40);
    const Answer answer = answer_of(shared_engine(), request);
    ASSERT_TRUE(answer.done);
    auto prefilled = ask("Send me three rocket emoji.", 24);
    prefilled->turns.push_back({Role::kAssistant, {"Sure: 🚀"}});
    prefilled->continue_last = true;
    EXPECT_TRUE(answer_of(shared_engine(), prefilled).done);
}

TEST(LlamaEngine, PrefillIsContinued) {
    NEED_MODEL();
    auto request = ask("What is the capital of France?", 8);
    request->turns.push_back({Role::kAssistant, {"The capital of France is"}});
    request->continue_last = true;
    const Answer answer = answer_of(shared_engine(), request);
    ASSERT_TRUE(answer.done);
    EXPECT_TRUE(answer.text.starts_with(" Paris")) << answer.text;
}

TEST(LlamaEngine, ConversationsOfAnyShapeAreTaken) {
    NEED_MODEL();
    const auto count = [&](std::vector<Turn> turns) {
        auto request = ask("", 1);
        request->turns = std::move(turns);
        return answer_of(shared_engine(), request);
    };
    EXPECT_TRUE(count({{Role::kSystem, {"a"}}, {Role::kUser, {"b"}}, {Role::kSystem, {"c"}}}).done);
    EXPECT_TRUE(count({{Role::kAssistant, {"a"}}, {Role::kUser, {"b"}}}).done);
    EXPECT_TRUE(count({{Role::kUser, {"a", "b"}}, {Role::kUser, {"c"}}}).done);
    EXPECT_TRUE(count({{Role::kUser, {""}}}).done);
}

TEST(LlamaEngine, OutputThatReachesTheContextSaysSo) {
    NEED_MODEL();
    LlamaOptions options = base_options();
    options.context_tokens = 64;
    auto engine = load(options);
    const Answer answer = answer_of(*engine, ask("Write a long story about a dragon.", 32000));
    ASSERT_TRUE(answer.done);
    EXPECT_EQ(answer.done->reason, StopReason::kContextWindow);
    EXPECT_EQ(answer.done->usage.input_tokens + answer.done->usage.output_tokens, 64);
}

TEST(LlamaEngine, CancelFreesKvInQueuePrefillAndDecode) {
    NEED_MODEL();
    LlamaOptions options = base_options();
    options.max_sequences = 1;
    auto engine = load(options);
    const auto idle = [&] {
        const EngineStats stats = engine->stats_approx();
        return stats.running == 0 && stats.waiting == 0 && stats.kv_tokens_used == 0;
    };
    std::string longer;
    for (int i = 0; i < 700; ++i) longer += "The quick brown fox. ";

    // Decode, with one behind it in the queue.
    const StreamPtr decoding = submit(*engine, ask("Write a very long story.", 3000));
    ASSERT_TRUE(eventually([&] { return engine->stats_approx().output_tokens > 2; }));
    const StreamPtr queued = submit(*engine, ask("Hello", 5));
    ASSERT_TRUE(eventually([&] { return engine->stats_approx().waiting == 1; }));
    queued->cancel(CancelReason::kDisconnect);
    ASSERT_TRUE(eventually([&] { return engine->stats_approx().waiting == 0; }));
    decoding->cancel(CancelReason::kDisconnect);
    ASSERT_TRUE(eventually(idle));
    EXPECT_EQ(engine->stats_approx().cancelled, 2U);

    // Prefill: long before it could have finished.
    const std::uint64_t steps = engine->stats_approx().steps;
    const StreamPtr prefilling = submit(*engine, ask(longer, 5));
    ASSERT_TRUE(eventually([&] { return engine->stats_approx().running == 1; }));
    std::this_thread::sleep_for(30ms);
    const auto begin = std::chrono::steady_clock::now();
    prefilling->cancel(CancelReason::kDisconnect);
    ASSERT_TRUE(eventually(idle));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 500ms);
    EXPECT_GE(engine->stats_approx().steps, steps);
    EXPECT_EQ(engine->stats_approx().cancelled, 3U);
    EXPECT_LT(engine->stats_approx().last_cancel_ns, 100'000'000U);
    // And it still answers right.
    EXPECT_NE(answer_of(*engine, ask("Write one sentence about the moon.")).text.find("moon"),
              std::string::npos);
}

TEST(LlamaEngine, AnAbortedStepIsRepairedForTheOthers) {
    NEED_MODEL();
    LlamaOptions options = base_options();
    options.step_ms = 0;  // one step takes a whole long prompt
    options.idle_step_ms = 0;
    auto engine = load(options);
    const std::string question = "What is the capital of France?";
    const Answer alone = answer_of(*engine, ask(question));
    std::string longer;
    for (int i = 0; i < 300; ++i) longer += "Some words to read. ";
    for (int round = 0; round < 3; ++round) {
        const StreamPtr big = submit(*engine, ask(longer, 5));
        const StreamPtr small = submit(*engine, ask(question));
        ASSERT_TRUE(eventually([&] { return engine->stats_approx().running > 0; }));
        std::this_thread::sleep_for(std::chrono::milliseconds(20 + 60 * round));
        big->cancel(CancelReason::kDisconnect);
        EXPECT_EQ(wait_for(*small).text, alone.text);
    }
}

TEST(LlamaEngine, KvShortagePausesTheYoungestInvisibly) {
    NEED_MODEL();
    LlamaOptions options = base_options();
    options.kv_tokens = 256;
    options.expected_output_tokens = 8;
    options.max_sequences = 4;
    options.side_prefill = false;
    options.prefix_cache = false;  // what was paused is computed again
    std::vector<Recorded> records;
    options.on_step = [&](const StepRecord& record) { records.emplace_back(record); };
    const char* topics[] = {"a lighthouse", "a violin", "a river", "a baker"};
    auto engine = load(options);
    std::vector<StreamPtr> streams;
    std::uint64_t prompts = 0;
    for (const char* topic : topics)
        streams.push_back(
            submit(*engine, ask(std::string("Write a story about ") + topic + ".", 80)));
    for (const StreamPtr& stream : streams) {
        const Answer answer = wait_for(*stream, 120);
        ASSERT_TRUE(answer.done) << (answer.failed ? answer.failed->detail : "");
        prompts += static_cast<std::uint64_t>(answer.prepared);
        EXPECT_GT(answer.done->usage.output_tokens, 40);
        EXPECT_GT(answer.text.size(), 100U);
    }
    EXPECT_GT(engine->stats_approx().prompt_tokens_computed, prompts)
        << "the pool was never short: the test tests nothing";
    EXPECT_EQ(engine->stats_approx().kv_tokens_used, 0U);
    engine->stop();
    // Every token is the one a bare context chooses given the same batches, recomputation included.
    Replay replay(options);
    for (const Recorded& record : records) ASSERT_NO_FATAL_FAILURE(replay.apply(record.get()));
}

TEST(LlamaEngine, AFullRingPausesThatSequenceOnly) {
    NEED_MODEL();
    EnginePort& engine = shared_engine();
    const StreamPtr slow = submit(engine, ask("Write a very long story about a fox.", 160));
    ASSERT_TRUE(eventually([&] { return engine.stats_approx().paused == 1; }));
    EXPECT_TRUE(answer_of(engine, ask("Hello")).done);
    const Answer late = wait_for(*slow);
    ASSERT_TRUE(late.done);
    EXPECT_GT(late.done->usage.output_tokens, 126);
}

TEST(LlamaEngine, QueueBoundsDeadlineDrainAndStop) {
    NEED_MODEL();
    LlamaOptions options = base_options();
    options.max_sequences = 1;
    options.queue_requests = 1;
    auto engine = load(options);
    const StreamPtr running = submit(*engine, ask("Write a very long story.", 3000));
    ASSERT_TRUE(eventually([&] { return engine->stats_approx().running == 1; }));
    auto late = ask("Hello");
    late->deadline_ns = mono_now() + 2 * kNsPerSec;
    const StreamPtr waiting = submit(*engine, late);
    ASSERT_TRUE(eventually([&] { return engine->stats_approx().waiting == 1; }));
    const Answer refused = answer_of(*engine, ask("Hello"));
    ASSERT_TRUE(refused.failed);
    EXPECT_EQ(refused.failed->code, Code::kOverloaded);
    EXPECT_GE(refused.failed->retry_after_ms.value_or(0), 1000);
    EXPECT_TRUE(refused.failed->detail.starts_with("overloaded: the queue of model \"" +
                                                   engine->info().id + "\" is full"))
        << refused.failed->detail;
    EXPECT_EQ(wait_for(*waiting).failed->code, Code::kTimeout);
    engine->drain();
    EXPECT_EQ(answer_of(*engine, ask("Hello")).failed->code, Code::kUnavailable);
    engine->stop();
    EXPECT_EQ(wait_for(*running).failed->code, Code::kUnavailable);
}

TEST(LlamaEngine, SeedsRepeatAndTemperatureVaries) {
    NEED_MODEL();
    const auto sample = [&](std::optional<std::uint32_t> seed) {
        auto request = ask("Invent a name for a cat.", 16);
        request->sampling = {.temperature = 1.2F, .top_p = 0.95F, .top_k = 50, .seed = seed};
        return answer_of(shared_engine(), request).text;
    };
    EXPECT_EQ(sample(7), sample(7));
    std::map<std::string, int> seen;
    for (int i = 0; i < 4; ++i) ++seen[sample(std::nullopt)];
    EXPECT_GT(seen.size(), 1U);
}

}  // namespace
}  // namespace zerohop::engine
