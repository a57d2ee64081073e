// The host tier with a real model: far more prefixes than the KV pool has room for.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "engine/testing/llama_kit.h"

namespace zerohop::engine {
namespace {

using namespace testkit;

// About 48 tokens, half of them the template's own beginning.
std::shared_ptr<Request> short_ask(unsigned n) { return ask_as("a", filler(16, 1000 + n), 1); }

TEST(LlamaTier, AThousandPrefixesAreFoundAgain) {
    NEED_MODEL();
    const unsigned kPrefixes = long_tests() ? 1000 : kSanitized ? 100 : 200;
    constexpr unsigned kAsked = 50, kAtOnce = 4;
    LlamaOptions options = base_options();
    options.threads = 2;
    options.kv_tokens = 1024;
    options.context_tokens = 1024;
    options.max_sequences = kAtOnce;
    options.side_prefill = false;  // what a token costs is measured here, beside other work too
    options.cache_host_bytes = 2LL << 30;
    auto engine = load(options);
    std::int64_t tokens = 0;
    for (unsigned i = 0; i < kPrefixes; i += kAtOnce) {
        std::vector<StreamPtr> streams;
        for (unsigned k = i; k < i + kAtOnce; ++k) streams.push_back(submit(*engine, short_ask(k)));
        for (const StreamPtr& stream : streams) {
            const Answer answer = wait_for(*stream);
            ASSERT_TRUE(answer.done) << i;
            tokens += answer.prepared;
        }
    }
    EXPECT_NEAR(static_cast<double>(tokens) / kPrefixes, 48, 6);
    EXPECT_GT(engine->stats_approx().host_bytes, 0U);
    EXPECT_LE(engine->stats_approx().pool_tokens, 1024U);
    // Nearly all are in host memory; one whose saving took long may not have been worth it.
    EXPECT_TRUE(eventually([&] {
        const auto list = engine->cached_approx();
        return list != nullptr && std::ranges::count_if(*list, [](const CacheEntry& entry) {
                                      return entry.in_host_memory;
                                  }) >= static_cast<std::ptrdiff_t>(kPrefixes * 9 / 10);
    }));

    std::mt19937 random(7);
    unsigned found = 0;
    for (unsigned k = 0; k < kAsked; ++k) {
        const unsigned i = static_cast<unsigned>(random() % kPrefixes);
        const Answer again = answer_of(*engine, short_ask(i));
        ASSERT_TRUE(again.done) << i;
        EXPECT_GT(again.done->usage.cache_read_tokens, 0) << i;
        if (again.done->usage.cache_read_tokens == again.prepared - 1) ++found;
    }
    EXPECT_GE(found, kAsked * 8 / 10);
}

// What heads have reserved (admit/soft_kv.h) is free before their prompts come.
TEST(LlamaTier, IdleCellsGiveWayToWhatHeadsReserve) {
    NEED_MODEL();
    LlamaOptions options = base_options();
    options.kv_tokens = 1024;
    options.context_tokens = 1024;
    options.cache_host_bytes = 1LL << 30;
    options.gauge = std::make_shared<sched::QueueGauge>();
    auto engine = load(options);
    ASSERT_TRUE(answer_of(*engine, ask_as("a", filler(300, 1), 1)).done);
    const auto idle_in_pool = [&] {
        const auto list = engine->cached_approx();
        return list != nullptr && std::ranges::any_of(*list, [](const CacheEntry& entry) {
                   return !entry.in_host_memory && entry.tokens > 300;
               });
    };
    const auto look = [&] {  // a turn of the engine, as each step is one
        engine->notify();
        return idle_in_pool();
    };
    ASSERT_TRUE(eventually(look));
    options.gauge->soft_kv_tokens = 512;
    EXPECT_TRUE(look());  // fits beside it
    options.gauge->soft_kv_tokens = 900;
    EXPECT_TRUE(eventually([&] { return !look(); }));
    options.gauge->soft_kv_tokens = 0;
    const Answer again = answer_of(*engine, ask_as("a", filler(300, 1), 1));
    ASSERT_TRUE(again.done);
    EXPECT_EQ(again.done->usage.cache_read_tokens, again.prepared - 1);  // from host memory
}

}  // namespace
}  // namespace zerohop::engine
