#include "engine/prompt_guard.h"

#include <gtest/gtest.h>

#include <chrono>

namespace zerohop::engine {
namespace {

constexpr std::string_view kOpen = "\xF3\xB0\x80\xBE";

SpecialTokens chatml() { return SpecialTokens({{"<|im_end|>", 7}, {"<|im_end", 9}, {"<s>", 8}}); }

std::string repeated(std::string_view unit, std::size_t bytes) {
    std::string out;
    while (out.size() < bytes) out += unit;
    return out;
}

std::string text_of(const Prompt& prompt) {
    std::string out;
    for (const PromptSpan& span : prompt) out += span.text;
    return out;
}

TEST(SpecialTokens, LongestAtEachPlace) {
    const SpecialTokens specials = chatml();
    SpecialMatch match;
    ASSERT_TRUE(specials.find("a<|im_end|>", 0, match));
    EXPECT_EQ(match.token, 7);
    EXPECT_EQ(match.begin, 1U);
    EXPECT_EQ(match.end, 11U);
    ASSERT_TRUE(specials.find("<|im_<|im_end", 0, match));
    EXPECT_EQ(match.token, 9);
    EXPECT_EQ(match.begin, 5U);
    EXPECT_FALSE(specials.find("<|im_en", 0, match));
    EXPECT_FALSE(specials.find("<s>", 1, match));
}

TEST(PromptGuard, HidesAndReveals) {
    const SpecialTokens specials = chatml();
    const std::string open(kOpen);
    for (const std::string& text :
         {std::string(), std::string("plain"), "a<s>b" + open + "c<|im_end|>" + open,
          open + open + "<s><s>", "<s>" + open + "7\xF3\xB0\x80\xBF"}) {
        PromptGuard guard(specials);
        const std::string hidden = guard.hide(text);
        EXPECT_FALSE(specials.contains_any(hidden)) << text;
        EXPECT_EQ(text_of(guard.reveal({{hidden, true}})), text);
        // Cut in half by a template, it stays text.
        const Prompt cut = guard.reveal({{hidden.substr(0, hidden.size() / 2), false}});
        EXPECT_EQ(cut.empty(), false);
    }
}

// The text of one control token among many placeholders' beginnings,
// and many control tokens without one.
TEST(PromptGuard, CostsNoMoreThanItsTextIsLong) {
    const SpecialTokens specials = chatml();
    const auto start = std::chrono::steady_clock::now();
    constexpr std::size_t kBytes = 4U << 20;
    for (const std::string& text :
         {repeated(kOpen, kBytes) + "<|im_end|>", repeated("<|im_end|>", kBytes),
          "<s>" + repeated("<|im_en", kBytes),
          repeated(kOpen, kBytes / 2) + repeated("<s>", kBytes)}) {
        PromptGuard guard(specials);
        EXPECT_EQ(text_of(guard.reveal({{guard.hide(text), true}})).size(), text.size());
    }
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

}  // namespace
}  // namespace zerohop::engine
