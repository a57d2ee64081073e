#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <random>

namespace zerohop::engine {
namespace {

std::map<std::int32_t, int> draw(SamplerParams params, const std::vector<float>& logits,
                                 int times) {
    params.seed = 42;
    Sampler sampler(params);
    std::map<std::int32_t, int> seen;
    for (int i = 0; i < times; ++i) {
        std::vector<float> row = logits;
        ++seen[sampler.sample(row, {})];
    }
    return seen;
}

TEST(Sampler, ZeroTemperatureTakesTheLargestAndTheFirstOfEquals) {
    EXPECT_EQ(draw({.temperature = 0}, {1, 5, 5, 2}, 1).begin()->first, 1);
    const float nan = std::numeric_limits<float>::quiet_NaN();
    EXPECT_EQ(draw({.temperature = 0}, {nan, 1, nan, 3}, 1).begin()->first, 3);
}

TEST(Sampler, DrawsByTheSoftmax) {
    std::vector<float> logits(1000, -50.0F);
    logits[10] = std::log(0.5F);
    logits[20] = std::log(0.3F);
    logits[999] = std::log(0.2F);
    constexpr int kTimes = 20000;
    auto seen = draw({.temperature = 1}, logits, kTimes);
    // Chi-square with 2 degrees of freedom; 13.8 has p = 0.001.
    double chi = 0;
    for (const auto& [token, p] : std::map<int, double>{{10, .5}, {20, .3}, {999, .2}})
        chi += std::pow(seen[token] - p * kTimes, 2) / (p * kTimes);
    EXPECT_LT(chi, 13.8);
    EXPECT_EQ(seen.size(), 3U);
}

TEST(Sampler, TemperatureSharpens) {
    const std::vector<float> logits{2.0F, 1.0F};
    const double warm = draw({.temperature = 1}, logits, 20000)[0] / 20000.0;
    const double cold = draw({.temperature = 0.5F}, logits, 20000)[0] / 20000.0;
    EXPECT_NEAR(warm, 1 / (1 + std::exp(-1.0)), 0.015);
    EXPECT_NEAR(cold, 1 / (1 + std::exp(-2.0)), 0.015);
}

TEST(Sampler, TopKAndTopPCutTheTail) {
    std::vector<float> logits;
    for (int i = 0; i < 100; ++i) logits.push_back(static_cast<float>((i * 37) % 100) * 0.1F);
    const auto top3 = draw({.temperature = 5, .top_k = 3}, logits, 2000);
    EXPECT_EQ(top3.size(), 3U);
    for (const auto& [token, n] : top3) EXPECT_GE(logits[static_cast<std::size_t>(token)], 9.65F);
    const std::vector<float> skewed{std::log(0.6F), std::log(0.3F), std::log(0.1F)};
    EXPECT_EQ(draw({.temperature = 1, .top_p = 0.5F}, skewed, 500).size(), 1U);
    EXPECT_EQ(draw({.temperature = 1, .top_p = 0.7F}, skewed, 500).size(), 2U);
    EXPECT_EQ(draw({.temperature = 1, .min_p = 0.4F}, skewed, 500).size(), 2U);
    EXPECT_EQ(draw({.temperature = 1, .top_p = 1e-6F}, skewed, 500).size(), 1U);
}

TEST(Sampler, SameSeedSameTokensOtherSeedOthers) {
    const std::vector<float> logits(50, 0.0F);
    const auto run = [&](std::uint64_t seed) {
        Sampler sampler({.temperature = 1, .seed = seed});
        std::vector<std::int32_t> out;
        for (int i = 0; i < 20; ++i) {
            std::vector<float> row = logits;
            out.push_back(sampler.sample(row, {}));
        }
        return out;
    };
    EXPECT_EQ(run(1), run(1));
    EXPECT_NE(run(1), run(2));
}

TEST(Sampler, RepeatPenaltyLowersWhatWasSaid) {
    Sampler sampler({.temperature = 0, .repeat_penalty = 2, .penalty_last_n = 2});
    std::vector<float> row{3.0F, 2.0F};
    const std::vector<std::int32_t> history{1, 0};
    EXPECT_EQ(sampler.sample(row, std::span(history).last(1)), 1);
    std::vector<float> again{3.0F, 2.0F};
    EXPECT_EQ(sampler.sample(again, {}), 0);
}

TEST(Sampler, KnowsWhatIsNoNumber) {
    constexpr float kInf = std::numeric_limits<float>::infinity();
    std::vector<float> logits(100, -3.0F);
    EXPECT_TRUE(are_numbers(logits));
    logits[7] = -kInf;  // a token that is ruled out
    EXPECT_TRUE(are_numbers(logits));
    logits[99] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_FALSE(are_numbers(logits));
    logits[99] = kInf;
    EXPECT_FALSE(are_numbers(logits));
    EXPECT_FALSE(are_numbers(std::vector<float>(5, -kInf)));
    EXPECT_FALSE(are_numbers({}));
}

}  // namespace
}  // namespace zerohop::engine
