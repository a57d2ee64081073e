// What contexts are said to take, and that memory follows use, with a real model.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "engine/testing/llama_kit.h"
#include "engine/tuner.h"

namespace zerohop::engine {
namespace {

using namespace testkit;

std::int64_t resident_mib() {
    std::ifstream in("/proc/self/statm");
    std::int64_t size = 0, resident = 0;
    in >> size >> resident;
    return (resident * sysconf(_SC_PAGESIZE)) >> 20;
}

TEST(LlamaMemory, CountsWhatASavedSequenceTakes) {
    NEED_MODEL();
    const auto model = Model::load(base_options(), {});
    ASSERT_TRUE(model);
    for (const char* type : {"f16", "q8_0"}) {
        const Layout layout{.kv_type = type};
        const KvBytes bytes = kv_bytes(**model, layout);
        ASSERT_GT(bytes.per_token, 0);
        constexpr std::int32_t kFilled = 40;
        const ContextPtr context =
            make_context(**model, layout, {.cells = 512, .batch = kFilled, .ubatch = kFilled});
        ASSERT_NE(context, nullptr);
        Batch batch(kFilled);
        for (std::int32_t i = 0; i < kFilled; ++i) batch.add(100 + i, i, 0, false);
        ASSERT_EQ(llama_decode(context.get(), batch.get()), 0);
        const auto counted = static_cast<double>(bytes.per_sequence + kFilled * bytes.per_token);
        const auto taken = static_cast<double>(llama_state_seq_get_size(context.get(), 0));
        EXPECT_NEAR(counted / taken, 1, 0.02) << type;
    }
}

TEST(LlamaMemory, AVastContextIsNotPlannedUnasked) {
    NEED_MODEL();
    LlamaOptions options = base_options();
    options.kv_tokens = 0;
    const auto model = Model::load(options, {});
    ASSERT_TRUE(model);
    const_cast<Model&>(**model).trained_context = 1 << 20;
    EXPECT_EQ(wanted_context(**model, options), kMostContext);
    const Result<ContextPlan> plan = plan_context(**model, options, {});
    ASSERT_TRUE(plan);
    EXPECT_LE(plan->cells, 2 * kMostContext);
    options.context_tokens = 1 << 18;
    EXPECT_EQ(wanted_context(**model, options), 1 << 18);
}

TEST(LlamaMemory, PagesComeBackWithoutWork) {
    NEED_MODEL();
    LlamaOptions options = base_options();
    options.kv_tokens = 1 << 16;  // 1.4 GiB if all of it were touched
    options.context_tokens = 4096;
    options.cache_host_bytes = 1LL << 30;
    options.give_back_s = 1;
    const std::int64_t without = resident_mib();
    auto engine = load(options);
    const auto quiet = [&] {  // what it takes once it has given back
        std::int64_t last = -1;
        EXPECT_TRUE(eventually([&] {
            const std::int64_t now = engine->stats_approx().pool_tokens == 0 ? resident_mib() : -1;
            const bool same = now >= 0 && now == last;
            last = now;
            std::this_thread::sleep_for(std::chrono::milliseconds(300));
            return same;
        }));
        return last;
    };
    const auto host_mib = [&] {
        return static_cast<std::int64_t>(engine->stats_approx().host_bytes >> 20);
    };
    ASSERT_TRUE(answer_of(*engine, ask_as("a", "Hello", 4)).done);  // the weights come in
    const std::int64_t before = quiet() - host_mib();
    EXPECT_LT(before - without, 400);
    const Answer answer = answer_of(*engine, ask_as("a", filler(300, 1), 4));
    ASSERT_TRUE(answer.done);
    ASSERT_GT(answer.prepared, 300);
    const std::int64_t after = quiet();
    EXPECT_GT(host_mib(), 5);
    EXPECT_LE(after, before + host_mib() + 8);
    // It is still there.
    const Answer again = answer_of(*engine, ask_as("a", filler(300, 1), 4));
    ASSERT_TRUE(again.done);
    EXPECT_EQ(again.done->usage.cache_read_tokens, again.prepared - 1);
}

}  // namespace
}  // namespace zerohop::engine
