// What an exchange tells its admission, and what the three versions make of one request.
#include <gtest/gtest.h>

#include "api/testing/service.h"

namespace zerohop::api {
namespace {

struct Told {
    std::vector<std::string> calls;
    std::optional<Error> refuse_model, refuse_charge;
    Admission::Terms terms;
    std::int64_t remaining = 100;
    std::int32_t cache_read = 0;
};

struct RecordingAdmission final : Admission {
    explicit RecordingAdmission(Told& told) : told_(told) {}
    Status check_model(std::string_view name) override {
        told_.calls.push_back("model " + std::string(name));
        if (told_.refuse_model) return std::unexpected(*told_.refuse_model);
        return {};
    }
    Terms terms() const override { return told_.terms; }
    Status charge(std::int32_t input, std::int32_t max_output, MonoNs, WallNs) override {
        told_.calls.push_back("charge " + std::to_string(input) + " " + std::to_string(max_output));
        if (told_.refuse_charge) return std::unexpected(*told_.refuse_charge);
        open_ = true;
        told_.remaining -= input;
        return {};
    }
    void settle(const Usage& used, bool completed, MonoNs) override {
        if (!std::exchange(open_, false)) return;
        told_.calls.push_back("settle " + std::to_string(used.input_tokens) + " " +
                              std::to_string(used.output_tokens) + (completed ? " completed" : ""));
        told_.cache_read = used.cache_read_tokens;
    }
    void refund_request(MonoNs) override { told_.calls.emplace_back("refund"); }
    void append_rate_limits(MonoNs, WallNs, std::vector<wire::Header>& out) const override {
        out.push_back(
            {"anthropic-ratelimit-input-tokens-remaining", std::to_string(told_.remaining)});
    }

  private:
    Told& told_;
    bool open_ = false;
};

struct RecordingPolicy final : HeadPolicy {
    Result<HeadDecision> decide(const wire::RequestHead&, Asks) override {
        HeadDecision decision;
        decision.admission = std::make_unique<RecordingAdmission>(told);
        decision.admission->append_rate_limits(0, 0, decision.response_headers);
        return decision;
    }
    Told told;
};

class AdmissionTest : public ServiceTest {
  protected:
    AdmissionTest() { options_.head_policy = &recording_; }
    Told& told() { return recording_.told; }
    FakeResponder& post_under(std::string_view version, std::string_view members) {
        auto head = head_of("POST", "/v1/messages");
        set(head, "anthropic-version", std::string(version));
        send(head);
        exchange_->on_body(R"({"model":"m","messages":[{"role":"user","content":"hi"}])" +
                           std::string(members) + "}");
        exchange_->on_body_end();
        return *responder_;
    }
    std::size_t deltas_sent() const {
        std::size_t n = 0;
        for (const auto& event : parse_sse(responder_->body))
            n += event.name == "content_block_delta";
        return n;
    }
    RecordingPolicy recording_;
};

Done done_after(std::int32_t input, std::int32_t output) {
    Done done;
    done.usage = {.input_tokens = input, .cache_read_tokens = 0, .output_tokens = output};
    return done;
}

using Calls = std::vector<std::string>;

TEST_F(AdmissionTest, ChargesThePromptAndSettlesTheAnswer) {
    auto& r = post(body_of(""));
    push(Prepared{12});
    push(Text{"Hello", 2});
    push(done_after(12, 2));
    EXPECT_EQ(told().calls, (Calls{"model m", "charge 12 16", "settle 12 2 completed"}));
    EXPECT_EQ(r.header("anthropic-ratelimit-input-tokens-remaining"), "88");
    EXPECT_EQ(
        std::ranges::count_if(
            r.head.headers,
            [](const auto& h) { return h.name == "anthropic-ratelimit-input-tokens-remaining"; }),
        1);
}

TEST_F(AdmissionTest, RefusedChargeIsA429BeforeAnyTextAndEndsTheWork) {
    told().refuse_charge = Error{.code = Code::kRateLimited, .detail = "limit", .origin = "t"};
    told().refuse_charge->headers = {{"x-should-retry", "false"},
                                     {"anthropic-ratelimit-input-tokens-remaining", "0"}};
    auto& r = post_stream();
    push(Prepared{12});
    EXPECT_EQ(error_of(r, 429, "rate_limit_error"), "limit");
    EXPECT_EQ(r.header("x-should-retry"), "false");
    EXPECT_EQ(r.header("retry-after"), "1");
    EXPECT_EQ(r.header("anthropic-ratelimit-input-tokens-remaining"), "0");
    EXPECT_EQ(engine_.stream->cancelled(), CancelReason::kDisconnect);
    EXPECT_EQ(told().calls, (Calls{"model m", "charge 12 16"}));
}

TEST_F(AdmissionTest, CancelledPaysForWhatItUsedAndTurnedAwayPaysNothing) {
    post_stream();
    push(Prepared{12});
    push(Text{"Hello", 3});
    exchange_->on_disconnect();
    post_stream();
    push(Prepared{7});
    push(Failed{Error{.code = Code::kOverloaded, .detail = "full", .origin = "t"}});
    EXPECT_EQ(told().calls, (Calls{"model m", "charge 12 16", "settle 12 3", "model m",
                                   "charge 7 16", "settle 0 0"}));
}

TEST_F(AdmissionTest, WhatWasReadFromTheCacheIsTold) {
    post(body_of(""));
    push(Prepared{12});
    push(done_event(StopReason::kEndTurn, 12, 2, 11));
    EXPECT_EQ(told().cache_read, 11);
    post_stream();
    push(Prepared{12});
    push(Text{.delta = "Hello", .output_tokens = 3, .usage = {.cache_read_tokens = 9}});
    exchange_->on_disconnect();  // nor does an answer that is cut short pay for it
    EXPECT_EQ(told().cache_read, 9);
}

TEST_F(AdmissionTest, RequestsRefusedForWhatTheySayAreNotCharged) {
    post("{");
    post(R"({"model":"none","max_tokens":16,"messages":[{"role":"user","content":"hi"}]})");
    post(body_of(""));
    push(Failed{Error{.code = Code::kInvalidRequest, .detail = "too long", .origin = "t"}});
    post_under("2020-01-01", "");
    EXPECT_EQ(told().calls, (Calls{"refund", "refund", "model m", "refund", "refund"}));
    told().calls.clear();
    post(body_of(""));
    push(Failed{Error{.code = Code::kOverloaded, .detail = "full", .origin = "t"}});
    post(body_of(""));
    exchange_->on_disconnect();
    EXPECT_EQ(told().calls, (Calls{"model m", "model m"}));
}

TEST_F(AdmissionTest, CancelledWhileItWaitedPaysNothing) {
    post_stream();
    engine_.stream->set_queued(true);
    push(Prepared{12});
    exchange_->on_disconnect();
    post_stream();
    engine_.stream->set_queued(true);
    push(Prepared{7});
    engine_.stream->set_queued(false);  // it got a slot: its prompt is computed
    exchange_->on_disconnect();
    EXPECT_EQ(told().calls, (Calls{"model m", "charge 12 16", "settle 0 0", "model m",
                                   "charge 7 16", "settle 7 0"}));
}

TEST_F(AdmissionTest, AnotherModelThanTheHeadsIsRefusedUnsent) {
    told().refuse_model = Error{.code = Code::kPermission, .detail = "not yours", .origin = "t"};
    error_of(post(body_of("")), 403, "permission_error");
    EXPECT_EQ(engine_.stream, nullptr);
}

TEST_F(AdmissionTest, TermsReachTheRequest) {
    told().terms = {.lane = 2, .priority = Priority::kHigh, .expected_output = 500};
    post(body_of(""));
    const Request& request = *engine_.request;
    EXPECT_EQ(request.lane, 2);
    EXPECT_EQ(request.priority, Priority::kHigh);
    EXPECT_EQ(request.expected_output, 16);  // never more than max_tokens
}

// --- one request under the three versions -------------------------------------------------------

TEST_F(AdmissionTest, MaxTokensByVersion) {
    for (const std::string_view version : {"2023-06-01", "2026-10-21"}) {
        post_under(version, R"(,"max_tokens":16)");
        EXPECT_EQ(engine_.request->max_tokens, 16);
        EXPECT_EQ(engine_.request->max_total_tokens, 0);
        EXPECT_EQ(error_of(post_under(version, R"(,"max_tokens":16,"max_output_tokens":5)"), 400,
                           "invalid_request_error"),
                  "max_output_tokens: unknown field");
        push(Prepared{16});
    }
    post_under("2024-07-15", R"(,"max_tokens":16)");
    EXPECT_EQ(engine_.request->max_total_tokens, 16);
    EXPECT_EQ(output_cap(*engine_.request, 10), 6);
    auto& r = *responder_;
    push(Prepared{16});
    const std::string told_so = error_of(r, 400, "invalid_request_error");
    EXPECT_NE(told_so.find("max_tokens: 16 "), std::string::npos) << told_so;
    EXPECT_NE(told_so.find("is 16 tokens"), std::string::npos) << told_so;
    post_under("2024-07-15", R"(,"max_output_tokens":5)");
    EXPECT_EQ(engine_.request->max_tokens, 5);
    EXPECT_EQ(engine_.request->max_total_tokens, 0);
    post_under("2024-07-15", R"(,"max_output_tokens":5,"max_tokens":16)");
    EXPECT_EQ(output_cap(*engine_.request, 10), 5);
    EXPECT_EQ(output_cap(*engine_.request, 14), 2);
    error_of(post_under("2024-07-15", ""), 400, "invalid_request_error");
}

TEST_F(AdmissionTest, StopSequencesByVersion) {
    constexpr std::string_view kObject =
        R"(,"max_tokens":99,"stop_sequences":["a",{"type":"text","text":"\n"}])";
    for (const std::string_view version : {"2023-06-01", "2026-10-21"})
        EXPECT_TRUE(error_of(post_under(version, kObject), 400, "invalid_request_error")
                        .starts_with("stop_sequences.1"));
    post_under("2024-07-15", kObject);
    EXPECT_EQ(engine_.request->stop_sequences, (std::vector<std::string>{"a", "\n"}));
    EXPECT_EQ(engine_.request->stop_rule, StopRule::kWholeToken);
    for (const std::string_view bad :
         {R"([{"type":"text"}])", R"([{"type":"json","text":"a"}])", R"([""])", R"([5])",
          R"([{"type":"text","text":"a","more":1}])"})
        EXPECT_TRUE(error_of(post_under("2024-07-15",
                                        R"(,"max_tokens":99,"stop_sequences":)" + std::string(bad)),
                             400, "invalid_request_error")
                        .starts_with("stop_sequences.0"))
            << bad;
}

TEST_F(AdmissionTest, SmallPiecesAreMergedUnlessToldNot) {
    constexpr std::string_view kStream = R"(,"max_tokens":99,"stream":true)";
    const std::pair<std::string_view, std::optional<bool>> rows[] = {{"2023-06-01", {}},
                                                                     {"2026-10-21", {}},
                                                                     {"2024-07-15", {}},
                                                                     {"2024-07-15", false},
                                                                     {"2023-06-01", true}};
    for (const auto& [version, hint] : rows) {
        told().terms.buffering = hint;
        post_under(version, kStream);
        push(Prepared{1});
        for (int i = 1; i <= 5; ++i) push(Text{"piece ", i});
        const bool merged = hint.value_or(version == "2024-07-15");
        EXPECT_EQ(deltas_sent(), merged ? 0U : 5U) << version;
        loop_.advance_ms(40);
        EXPECT_EQ(deltas_sent(), merged ? 1U : 5U) << version;
        push(Text{std::string(1024, 'x'), 6});  // a KiB leaves at once
        EXPECT_EQ(deltas_sent(), merged ? 2U : 6U) << version;
        push(Text{"end", 7});
        push(done_after(1, 7));
        EXPECT_EQ(deltas_sent(), merged ? 3U : 7U) << version;
        EXPECT_EQ(deltas().size(), 5 * 6 + 1024 + 3U);
        EXPECT_EQ(loop_.timers(), 0U);
    }
}

}  // namespace
}  // namespace zerohop::api
