// Breakpoints, dropped lines and tagged text, each on a Request alone.
#include "api/cache_request.h"

#include <gtest/gtest.h>

namespace zerohop::api {
namespace {

const std::vector<std::string> kPrefixes = {"x-anthropic-billing-header:", "# built "};

std::string places(const Request& request) {
    std::string out;
    for (const CacheBreakpoint& b : request.breakpoints)
        out += std::to_string(b.turn) + "." + std::to_string(b.part) + " ";
    return out;
}

std::string text_of(const std::vector<Turn>& turns) {
    std::string out;
    for (const Turn& turn : turns) {
        out += std::string(name_of(turn.role)).substr(0, 1);
        for (const std::string& part : turn.parts) out += "[" + part + "]";
    }
    return out;
}

TEST(DropLines, TakesWholeLinesOfSystemTurnsOnly) {
    const std::string header = "x-anthropic-billing-header: cc=1; n=2";
    const std::tuple<std::string, std::string, unsigned> rows[] = {
        {header + "\nYou are.\n", "You are.\n", 1},
        {header + "\r\nYou are.", "You are.", 1},
        {"You are.\n" + header, "You are.\n", 1},
        {"a\n" + header + "\n# built today\nb", "a\nb", 2},
        {"a " + header + "\nb", "a " + header + "\nb", 0},
        {" " + header, " " + header, 0},
        {"X-Anthropic-Billing-Header: 1\nb", "X-Anthropic-Billing-Header: 1\nb", 0},
        {"\n\n", "\n\n", 0},
        // A proxy joined the next block on: only the header's own part goes.
        {header + ";You are a pirate.", "You are a pirate.", 1},
        {"x-anthropic-billing-header: a=1; b=2; cch=a5145;You are a pirate.\nb",
         "You are a pirate.\nb", 1},
        {"x-anthropic-billing-header: a=1; cch=a5145; You are = a pirate; yes",
         " You are = a pirate; yes", 1},
        {"x-anthropic-billing-header: a=1; cch=a5145;\nb", "b", 1},
        {"x-anthropic-billing-header: a=1; cch=a5145; \nb", "b", 1},
        {"x-anthropic-billing-header: a=1; cch=a5145\nb", "b", 1},
        {"x-anthropic-billing-header:\nb", "b", 1},
    };
    for (const auto& [before, after, count] : rows) {
        Request request;
        request.turns = {{Role::kSystem, {before}}, {Role::kUser, {header + "\nhi"}}};
        EXPECT_EQ(drop_lines(request, kPrefixes), count) << before;
        EXPECT_EQ(request.turns[0].parts, std::vector<std::string>{after});
        EXPECT_EQ(request.turns[1].parts[0], header + "\nhi");
    }
}

TEST(DropLines, WhatIsEmptiedVanishesAndBreakpointsStayRight) {
    const std::string line = "x-anthropic-billing-header: 1";
    Request request;
    request.turns = {{Role::kSystem, {line, "a", line + "\n"}},
                     {Role::kUser, {"u"}},
                     {Role::kSystem, {line}},
                     {Role::kUser, {"v", "w"}},
                     {Role::kAssistant, {}},
                     {Role::kSystem, {"b"}}};
    request.breakpoints = {{0, 0, 9}, {0, 2, 8}, {2, 0, 7}, {3, 1, 6}};
    EXPECT_EQ(drop_lines(request, kPrefixes), 3U);
    EXPECT_EQ(text_of(request.turns), "s[a]u[u][v][w]as[b]");
    EXPECT_EQ(places(request), "0.0 1.0 1.2 ");  // the first had nothing before it
    EXPECT_EQ(request.breakpoints[0].ttl_ns, 8);

    request.turns = {{Role::kSystem, {line}}};
    request.breakpoints.clear();
    EXPECT_EQ(drop_lines(request, kPrefixes), 1U);
    EXPECT_TRUE(request.turns.empty());
    EXPECT_FALSE(make_warm_up(request, kShortTtl));
}

TEST(DropLines, NoRuleNoChange) {
    Request request;
    request.turns = {{Role::kSystem, {"x-anthropic-billing-header: 1\na"}}};
    EXPECT_EQ(drop_lines(request, {}), 0U);
    EXPECT_EQ(drop_lines(request, std::vector<std::string>{""}), 0U);
    EXPECT_EQ(text_of(request.turns), "s[x-anthropic-billing-header: 1\na]");
}

TEST(WarmUp, TagsBecomeTurns) {
    const std::pair<const char*, const char*> rows[] = {
        {"<system>You are a helpful AI assistant</system>", "s[You are a helpful AI assistant]"},
        {"<system>a</system>\n<user>b &lt; c</user><assistant></assistant>", "s[a]u[b < c]"},
        {"<user>a</user> <user>b</user>", "u[a][b]"},
        {"plain text", "u[plain text]"},
        {"<system>a</system> and more", "s[a]u[and more]"},
        {"<user>q</user><assistant>The", "u[q]a[The]"},
    };
    for (const auto& [text, expected] : rows) {
        std::vector<Turn> turns;
        EXPECT_TRUE(append_tagged(text, turns)) << text;
        EXPECT_EQ(text_of(turns), expected) << text;
    }
    for (const char* text : {"", " \n", "<assistant></assistant>"}) {
        std::vector<Turn> turns;
        EXPECT_FALSE(append_tagged(text, turns)) << text;
    }
}

TEST(WarmUp, EndsWithOneBreakpointAndGeneratesNothing) {
    Request request;
    request.max_tokens = 100;
    request.max_total_tokens = 50;
    request.turns = {{Role::kSystem, {"a", "b"}}};
    request.breakpoints = {{0, 0, kShortTtl}};
    ASSERT_TRUE(make_warm_up(request, kLongTtl));
    EXPECT_EQ(request.max_tokens, 0);
    EXPECT_EQ(output_cap(request, 10), 0);
    EXPECT_EQ(places(request), "0.1 ");
    EXPECT_EQ(request.breakpoints[0].ttl_ns, kLongTtl);
    EXPECT_TRUE(add_user_turn(request));
    EXPECT_EQ(text_of(request.turns), "s[a][b]u[]");
    EXPECT_EQ(places(request), "0.1 ");
    EXPECT_FALSE(add_user_turn(request));
}

}  // namespace
}  // namespace zerohop::api
