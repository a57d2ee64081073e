// What a request's skeleton does to its answer: nothing, unless a header asks.
#include "api/skeleton_step.h"

#include <gtest/gtest.h>

#include "api/testing/service.h"
#include "skeleton/corpus.h"

namespace zerohop::api {
namespace {

Request request_of(std::string text) {
    Request request;
    request.id = "req_1";
    request.turns.push_back({Role::kSystem, {"Be brief."}});
    request.turns.push_back({Role::kUser, {std::move(text)}});
    return request;
}

TEST(SkeletonStep, WordsDoNotCountStructureDoes) {
    SkeletonStep step;
    const auto a = step.read(request_of("<doc>one</doc> What is it?"), false);
    const auto b = step.read(request_of("<doc>other words</doc> Why?"), false);
    const auto c = step.read(request_of("<doc>one</doc>\n- a\n- b\n"), false);
    ASSERT_TRUE(a && b && c);
    EXPECT_EQ(a->whole, b->whole);
    EXPECT_NE(a->whole, c->whole);
    EXPECT_EQ(a->system_tools, c->system_tools);
    EXPECT_EQ(a->header, "key=" + a->whole.hex() + ";complexity=3;volatile=0");
}

// The caches must keep apart what an anchor tells apart, whichever key of the chain they find.
TEST(SkeletonStep, AnchorsArePartOfEveryKeyOfTheCaches) {
    SkeletonStep step;
    const auto keys = [&](std::string first, std::string last) {
        Request request = request_of(std::move(first));
        request.turns.push_back({Role::kAssistant, {"Yes."}});
        request.turns.push_back({Role::kUser, {std::move(last)}});
        return step.read(request, false)->structure;
    };
    const std::string a = "<semantic_anchor>AAPL</semantic_anchor>";
    const std::string b = "<semantic_anchor>MSFT</semantic_anchor>";
    const auto none = keys("x", "y"), one = keys(a, "y"), other = keys(b, "y"), both = keys(a, b);
    for (std::size_t i = 0; i < one.size(); ++i) {
        EXPECT_FALSE(one[i].empty());
        EXPECT_EQ(one[i], keys(a, "z")[i]);
        EXPECT_NE(one[i], other[i]);
        EXPECT_NE(one[i], none[i]);
        EXPECT_NE(one[i], both[i]);
        EXPECT_NE(keys(b, a)[i], both[i]);
        for (std::size_t j = 0; j < i; ++j) EXPECT_NE(one[i], one[j]);
    }
    const auto plain = step.read(request_of("x"), false);
    EXPECT_EQ(plain->structure[0].hi, plain->whole.high);
    EXPECT_EQ(plain->structure[0].lo, plain->whole.low);
}

TEST(SkeletonStep, ErrorsAreCountedAndFailOnlyWhenAsked) {
    SkeletonStep step;
    const std::string bad = "<doc>never closed & raw";
    EXPECT_TRUE(step.read(request_of(bad), false));
    const auto refused = step.read(request_of(bad), true);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kInvalidRequest);
    EXPECT_NE(refused.error().detail.find("SKELETON_PARSE_ERROR"), std::string::npos);
    EXPECT_NE(refused.error().detail.find("line 1"), std::string::npos);
    EXPECT_GE(step.errors(skeleton::Problem::kUnclosedTag), 1U);
}

TEST_F(ServiceTest, SkeletonHeaderComesWhenAsked) {
    for (const std::string name : {"x-anthropic-debug", "x-zerohop-debug", ""}) {
        auto head = head_of("POST", "/v1/messages");
        if (!name.empty()) set(head, name, "Skeleton");
        auto& r = send(head);
        exchange_->on_body(body_of(""));
        exchange_->on_body_end();
        push(Text{"x", 1});
        push(done_event(StopReason::kEndTurn, 1, 1));
        EXPECT_EQ(r.head.status, 200);
        EXPECT_EQ(r.header("x-anthropic-skeleton").starts_with("key="), !name.empty()) << name;
        EXPECT_EQ(r.header("x-anthropic-skeleton").ends_with(";dropped=0"), !name.empty()) << name;
    }
}

TEST_F(ServiceTest, StrictSkeletonRefusesWhatItCannotRead) {
    auto head = head_of("POST", "/v1/messages");
    set(head, "x-anthropic-skeleton", "strict");
    auto& r = send(head);
    exchange_->on_body(
        R"({"model":"m","max_tokens":5,"messages":[{"role":"user","content":"<a>b"}]})");
    exchange_->on_body_end();
    EXPECT_NE(error_of(r, 400, "invalid_request_error").find("SKELETON_PARSE_ERROR"),
              std::string::npos);
    EXPECT_EQ(engine_.submitted, 0);
}

TEST(SkeletonStep, SaysHowMuchMemoryItTakesAtMost) {
    constexpr std::size_t kBytes = 256 * 1024;
    const auto check = [](std::string_view name, const std::vector<std::string>& parts) {
        Request request;
        request.turns = {{Role::kUser, parts}};
        std::vector<skeleton::Block> blocks;
        for (const std::string& part : parts) blocks.push_back({.text = part});
        const std::vector<skeleton::Message> messages{
            {.role = skeleton::Role::kUser, .blocks = blocks}};
        skeleton::Arena arena;
        (void)skeleton::analyze({.messages = messages}, arena);
        constexpr std::size_t kAlways = 64 * 1024;
        EXPECT_LE(arena.bytes(), SkeletonStep::scratch_bytes(request) + kAlways) << name;
    };
    for (const std::string_view kind : skeleton::corpus::kHostile)
        check(kind, {skeleton::corpus::hostile(kind, kBytes)});
    for (const std::string_view unit :
         {"<a/>", "<a></a>", "# a\n", "```\n```\n", "{}\n", "[1]\n", "- a\n", "|a|\n|-|\n"}) {
        std::string text;
        while (text.size() < kBytes) text += unit;
        check(unit, {text});
    }
    check("blocks", std::vector<std::string>(20'000, "a"));
}

}  // namespace
}  // namespace zerohop::api
