// What a request's skeleton does to its answer: nothing, unless a header asks.
#include "api/skeleton_step.h"

#include <gtest/gtest.h>

#include "api/test_service.h"

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

}  // namespace
}  // namespace zerohop::api
