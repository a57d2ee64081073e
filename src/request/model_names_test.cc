#include "request/model_names.h"

#include <gtest/gtest.h>

namespace zerohop {
namespace {

TEST(ModelNames, ExactBeforePatternsAndTheMostSpecificOfThose) {
    ModelNames names;
    names.add("Big", {"claude-*", "latest"}, false);
    names.add("small", {"claude-*-haiku", "*", "claude-opus-*"}, false);
    names.add("third", {"*-sonnet", "claude-*x"}, false);
    const std::pair<const char*, std::size_t> rows[] = {
        {"big", 0},      {"LATEST", 0},          {"claude-sonnet-4", 0},
        {"claude-", 0},  {"claude-3-haiku", 1},  {"Claude-Opus-4", 1},
        {"claude-x", 2}, {"claude-opus-x", 1},   {"gpt-4o", 1},
        {"a-sonnet", 2}, {"claude-4-sonnet", 0},  // 7 and 7 letters: the longer beginning
        {"third", 2},    {"claude-*", 0},        {"", 1}};
    for (const auto& [name, model] : rows) EXPECT_EQ(names.find(name), model) << name;
}

TEST(ModelNames, OnlyTheFallbackHasWhatNobodyHas) {
    ModelNames names;
    names.add("a", {"a-*"}, false);
    EXPECT_EQ(names.find("b"), ModelNames::kNone);
    names.add("c", {}, true);
    EXPECT_EQ(names.find("b"), 1U);
    EXPECT_EQ(names.find(std::string(1 << 20, 'a')), 1U);
    EXPECT_EQ(names.find_named("b"), ModelNames::kNone);
    EXPECT_EQ(names.find_named("a-b"), 0U);
    EXPECT_EQ(names.find_named("a-" + std::string(200, 'b')), ModelNames::kNone);
}

TEST(ModelNames, Patterns) {
    const std::pair<const char*, const char*> yes[] = {
        {"*", ""}, {"*", "x"}, {"a*", "A"}, {"*b*", "abc"}, {"a*c", "abbcc"}, {"**a**b", "xaxb"}};
    const std::pair<const char*, const char*> no[] = {
        {"a*", "ba"}, {"*b", "bc"}, {"a*c", "ab"}, {"a*a", "a"}, {"", "a"}};
    for (const auto& [pattern, name] : yes) EXPECT_TRUE(matches_pattern(pattern, name)) << pattern;
    for (const auto& [pattern, name] : no) EXPECT_FALSE(matches_pattern(pattern, name)) << pattern;
    std::string many;
    for (int i = 0; i < 63; ++i) many += "a*";
    EXPECT_FALSE(matches_pattern(many + "b", std::string(128, 'a')));
}

}  // namespace
}  // namespace zerohop
