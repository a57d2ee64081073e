// An exchange from its head to its last byte: answers, streams, time, slow readers, cancelling.
#include "api/messages_exchange.h"

#include <gtest/gtest.h>

#include <thread>

#include "api/gzip.h"
#include "api/testing/service.h"

namespace zerohop::api {
namespace {

// --- non-streamed
// ---------------------------------------------------------------------------------

TEST_F(ServiceTest, WholeAnswer) {
    auto& r = post(body_of(R"(,"temperature":0)"), "/v1/messages?beta=true");
    ASSERT_EQ(engine_.submitted, 1);
    EXPECT_EQ(engine_.request->principal.workspace, "w1");
    push(Prepared{12});
    EXPECT_EQ(engine_.request->received_ns, loop_.now());
    loop_.advance_ms(30);
    push(Text{"Hel", 1});
    push(Text{"lo", 2});
    EXPECT_EQ(r.heads, 0);
    Done done = done_event(StopReason::kEndTurn, 12, 2);
    done.admitted_ns = engine_.request->received_ns + 10 * kNsPerMs;
    done.prefill_done_ns = done.first_token_ns = engine_.request->received_ns + 30 * kNsPerMs;
    push(done);
    EXPECT_EQ(r.head.status, 200);
    EXPECT_TRUE(r.finished);
    EXPECT_EQ(r.header("content-type"), "application/json");
    EXPECT_EQ(r.header("request-id"), engine_.request->id);
    EXPECT_EQ(r.header("x-anthropic-trace-id"), engine_.request->trace_id);
    EXPECT_EQ(r.header("anthropic-ratelimit-requests-limit"), "10");
    EXPECT_EQ(r.header("server-timing"),
              "dispatch;dur=0.000, queue;dur=10.000, prefill;dur=20.000, ttft;dur=30.000, "
              "total;dur=30.000");
    const json message = json::parse(r.body);
    EXPECT_TRUE(message["id"].get<std::string>().starts_with("msg_"));
    EXPECT_EQ(message["content"][0]["text"], "Hello");
    EXPECT_EQ(message["model"], "m");
    EXPECT_EQ(engine_.stream->cancelled(), CancelReason::kNone);
    exchange_.reset();
    EXPECT_EQ(engine_.stream->cancelled(), CancelReason::kNone);
    EXPECT_EQ(loop_.timers(), 0U);
    EXPECT_EQ(policy_.live, 0);
}

TEST_F(ServiceTest, LargeJsonIsGzippedWhenAsked) {
    for (const bool asked : {true, false}) {
        auto head = head_of("POST", "/v1/messages");
        if (asked) set(head, "accept-encoding", "gzip, deflate");
        auto& r = send(head);
        exchange_->on_body(body_of(""));
        exchange_->on_body_end();
        push(Text{std::string(5000, 'x'), 1});
        push(done_event(StopReason::kEndTurn, 1, 1));
        EXPECT_EQ(r.header("content-encoding"), asked ? "gzip" : "(absent)");
        EXPECT_EQ(r.header("vary"), "accept-encoding");
        EXPECT_EQ(r.head.content_length, static_cast<std::int64_t>(r.body.size()));
        Gunzip gunzip;
        std::string plain = asked ? "" : r.body;
        if (asked) {
            EXPECT_LT(r.body.size(), 1000U);
            gunzip.feed(r.body, [&](std::string_view piece) {
                plain += piece;
                return true;
            });
        }
        EXPECT_EQ(json::parse(plain)["content"][0]["text"].get<std::string>().size(), 5000U);
    }
}

TEST_F(ServiceTest, BodiesBeyondTheirMemoryAreRefused) {
    MemoryBudget budget(100'000, 100'000);
    options_.body_budget = &budget;
    FakeResponder holder_responder(loop_);
    auto& first = send(head_of("POST", "/v1/messages"));  // makes the service
    (void)first;
    const auto holder = service_->on_head(head_of("POST", "/v1/messages"), holder_responder);
    holder->on_body(std::string(60'000, ' '));

    // Its declared length does not fit: refused at the head.
    auto head = head_of("POST", "/v1/messages");
    head.content_length = 50'000;
    auto& declared = send(head);
    error_of(declared, 529, "overloaded_error");
    EXPECT_EQ(declared.header("retry-after"), "1");
    EXPECT_EQ(declared.continues, 0);

    // It declared none: refused where it no longer fits.
    auto& grown = send(head_of("POST", "/v1/messages"));
    for (int i = 0; i < 5 && grown.heads == 0; ++i) exchange_->on_body(std::string(10'000, ' '));
    error_of(grown, 529, "overloaded_error");

    // A small one is served meanwhile, and the rest is free once the large one is gone.
    post(body_of(""));
    EXPECT_EQ(engine_.submitted, 1);
    holder->on_disconnect();
    exchange_.reset();
    EXPECT_GT(budget.used_bytes(), 0);  // an engine has the request, and its turns
    EXPECT_LT(budget.used_bytes(), 1000);
    drop_turns(*engine_.request);
    EXPECT_EQ(budget.used_bytes(), 0);
}

// What waits in an engine's queue is paid for like what is still coming in.
TEST_F(ServiceTest, WaitingRequestsKeepTheirMemoryCharged) {
    MemoryBudget budget(4'000'000, 4'000'000);
    options_.body_budget = &budget;
    std::vector<RequestPtr> waiting;
    const std::string text(900'000, 'a');
    const std::string body =
        R"({"model":"m","max_tokens":16,"messages":[{"role":"user","content":")" + text + R"("}]})";
    for (const char* encoding : {"", "gzip"}) {
        const std::string sent = *encoding == 0 ? body : gzip_compress(body).value();
        int refused = 0;
        for (int i = 0; i < 8; ++i) {
            auto head = head_of("POST", "/v1/messages");
            if (*encoding != 0) set(head, "content-encoding", encoding);
            auto& r = send(head);
            exchange_->on_body(sent);
            if (r.heads == 0) exchange_->on_body_end();
            wait_for_worker(r, static_cast<int>(waiting.size()) + 1);
            if (r.heads > 0) {
                error_of(r, 529, "overloaded_error");
                EXPECT_EQ(r.header("retry-after"), "1");
                ++refused;
            } else {
                waiting.push_back(engine_.request);
            }
            EXPECT_LE(budget.used_bytes(), 4'000'000);
        }
        EXPECT_GE(refused, 4) << encoding;
        EXPECT_GE(waiting.size(), 2U) << encoding;
        waiting.clear();
        engine_.request.reset();
        engine_.submitted = 0;
        exchange_.reset();
        EXPECT_EQ(budget.used_bytes(), 0);
    }
}

TEST_F(ServiceTest, LargeBodiesAreReadElsewhere) {
    const std::string body =
        R"({"model":"m","max_tokens":16,"messages":[{"role":"user","content":")" +
        std::string(kLargeBody, 'a') + R"("}]})";
    post(body);
    EXPECT_EQ(engine_.submitted, 0);  // not on this thread
    wait_for_worker(*responder_, 1);
    ASSERT_EQ(engine_.submitted, 1);
    EXPECT_EQ(engine_.request->turns.at(0).parts.at(0).size(), kLargeBody);
    // Errors come back the same way, and who left meanwhile is not waited for.
    auto& r = post(body.substr(0, body.size() - 1));
    wait_for_worker(r, 2);
    EXPECT_EQ(error_of(r, 400, "invalid_request_error"), "body: not valid JSON");
    post(body);
    exchange_->on_disconnect();
    exchange_.reset();
    service_->stop();
    loop_.run();
    EXPECT_EQ(engine_.submitted, 1);
    auto& late = post(body);
    error_of(late, 529, "overloaded_error");
}

TEST_F(ServiceTest, EveryRequestLeavesOneAccessRecord) {
    struct Sink final : AccessSink {
        void record(const AccessRecord& r) noexcept override { records.push_back(r); }
        std::vector<AccessRecord> records;
    } sink;
    options_.access = &sink;
    post_stream();
    push(Prepared{12});
    loop_.advance_ms(30);
    push(Text{"secret", 1});
    push(done_event(StopReason::kEndTurn, 12, 1));
    EXPECT_TRUE(sink.records.empty());  // the exchange has not ended
    const std::size_t sent = responder_->body.size();
    exchange_.reset();
    ASSERT_EQ(sink.records.size(), 1U);
    const AccessRecord whole = sink.records[0];
    EXPECT_EQ(whole.status, 200);
    EXPECT_TRUE(whole.complete);
    EXPECT_EQ(whole.path, "/v1/messages");
    EXPECT_EQ(whole.model, "m");
    EXPECT_EQ(whole.workspace, "w1");
    EXPECT_EQ(whole.input_tokens, 12);
    EXPECT_EQ(whole.output_tokens, 1);
    EXPECT_EQ(whole.bytes_out, sent);
    EXPECT_EQ(whole.first_token_ns - whole.received_ns, 30 * kNsPerMs);
    EXPECT_EQ(whole.request_id, responder_->header("request-id"));

    post_stream();  // its client goes away before the head
    exchange_->on_disconnect();
    exchange_.reset();
    ASSERT_EQ(sink.records.size(), 2U);
    EXPECT_EQ(sink.records[1].status, 0);
    EXPECT_FALSE(sink.records[1].complete);
    EXPECT_TRUE(sink.records[1].request_id.starts_with("req_"));
    EXPECT_EQ(engine_.stream->cancelled(), CancelReason::kDisconnect);

    get("/v1/nowhere?q=secret");
    exchange_.reset();
    ASSERT_EQ(sink.records.size(), 3U);
    EXPECT_EQ(sink.records[2].status, 404);
    EXPECT_EQ(sink.records[2].path, "/v1/nowhere");
}

TEST_F(ServiceTest, ErrorsBeforeTheHeadKeepTheirStatus) {
    for (const char* stream : {"false", "true"}) {
        auto& r = post(body_of(std::string(R"(,"stream":)") + stream));
        push(Failed{Error{.code = Code::kOverloaded,
                          .detail = "the queue is full",
                          .origin = "engine",
                          .retry_after_ms = 2500}});
        EXPECT_EQ(error_of(r, 529, "overloaded_error"), "the queue is full");
        EXPECT_EQ(r.header("retry-after"), "3");
        EXPECT_EQ(r.header("retry-after-ms"), "2500");
        EXPECT_EQ(engine_.stream->cancelled(), CancelReason::kNone);
    }
    auto& bad = post("{not json");
    error_of(bad, 400, "invalid_request_error");
    auto& late = post(body_of(R"(,"stream":true)"));
    push(Prepared{3});
    push(Failed{Error{.code = Code::kInvalidRequest, .detail = "9 > 8", .origin = "engine"}});
    EXPECT_EQ(error_of(late, 400, "invalid_request_error"), "9 > 8");
}

TEST_F(ServiceTest, AnswerMayComeBeforeSubmitReturns) {
    engine_.at_once = std::make_unique<Event>(
        Failed{Error{.code = Code::kUnavailable, .detail = "draining", .origin = "engine"}});
    auto& r = post(body_of(""));
    loop_.run();
    error_of(r, 503, "api_error");
}

TEST_F(ServiceTest, WholeAnswerKeepsAliveWithWhiteSpace) {
    auto& r = post(body_of(""));
    push(Prepared{5});
    push(Text{"a", 1});
    loop_.advance_ms(239'999);
    EXPECT_EQ(r.heads, 0);
    loop_.advance_ms(1);
    EXPECT_EQ(r.head.status, 200);
    EXPECT_EQ(r.head.content_length, -1);
    EXPECT_EQ(r.body, " ");
    loop_.advance_ms(20'000);
    EXPECT_EQ(r.body, "   ");
    push(Text{"b", 2});
    push(done_event(StopReason::kEndTurn, 5, 2));
    EXPECT_EQ(r.heads, 1);
    EXPECT_TRUE(r.finished);
    EXPECT_EQ(json::parse(r.body)["content"][0]["text"], "ab");
    EXPECT_EQ(loop_.timers(), 0U);
}

TEST_F(ServiceTest, WholeAnswerThatFailsAfterItsHeadIsCut) {
    auto& r = post(body_of(""));
    loop_.advance_ms(240'000);
    push(Failed{Error{.code = Code::kInternal, .detail = "broken", .origin = "engine"}});
    EXPECT_TRUE(r.aborted);
    EXPECT_FALSE(r.finished);
    EXPECT_EQ(r.heads, 1);
}

TEST_F(ServiceTest, KeepAliveCanBeSwitchedOff) {
    options_.whole_keepalive_ms = 0;
    auto& r = post(body_of(""));
    loop_.advance_ms(500'000);
    EXPECT_EQ(r.heads, 0);
    EXPECT_EQ(loop_.timers(), 0U);
}

TEST_F(ServiceTest, CountTokens) {
    auto& r = post(R"({"model":"claude","messages":[{"role":"user","content":"hi"}]})",
                   "/v1/messages/count_tokens?beta=true");
    EXPECT_EQ(engine_.request->work, Work::kCount);
    push(Prepared{42});
    EXPECT_EQ(r.body, R"({"input_tokens":42})");
    EXPECT_EQ(r.head.status, 200);
    EXPECT_TRUE(r.finished);
    EXPECT_EQ(engine_.stream->cancelled(), CancelReason::kNone);
    error_of(post(body_of(""), "/v1/messages/count_tokens"), 400, "invalid_request_error");
}

// --- streamed
// -------------------------------------------------------------------------------------

TEST_F(ServiceTest, StreamsInOrder) {
    auto& r = post_stream();
    push(Prepared{12});
    EXPECT_EQ(r.heads, 0);  // nothing is promised before the first token
    push(Text{"Hel", 1});
    EXPECT_EQ(r.head.status, 200);
    EXPECT_EQ(r.head.content_length, -1);
    EXPECT_EQ(r.header("content-type"), "text/event-stream; charset=utf-8");
    EXPECT_EQ(r.header("cache-control"), "no-cache");
    EXPECT_EQ(r.header("content-encoding"), "(absent)");
    EXPECT_EQ(r.header("request-id"), engine_.request->id);
    EXPECT_EQ(r.writes, 1);
    push(Text{"lo", 2});
    EXPECT_EQ(r.writes, 2);
    EXPECT_FALSE(r.finished);
    push(done_event(StopReason::kEndTurn, 12, 2));
    EXPECT_TRUE(r.finished);
    const auto events = parse_sse(r.body);
    EXPECT_EQ(names_of(events),
              "message_start content_block_start content_block_delta content_block_delta "
              "content_block_stop message_delta message_stop ");
    EXPECT_EQ(events[0].data["message"]["usage"]["input_tokens"], 12);
    EXPECT_EQ(deltas(), "Hello");
    EXPECT_EQ(engine_.stream->cancelled(), CancelReason::kNone);
    EXPECT_EQ(loop_.timers(), 0U);
}

TEST_F(ServiceTest, StreamsSayWhereTheTimeWent) {
    auto& r = post_stream();
    const MonoNs asked = engine_.request->received_ns;
    push(Prepared{12});
    loop_.advance_ms(30);
    push(Text{"Hel", 1, asked + 10 * kNsPerMs, asked + 29 * kNsPerMs});
    EXPECT_EQ(r.header("server-timing"),
              "dispatch;dur=0.000, queue;dur=10.000, prefill;dur=19.000, ttft;dur=30.000");

    auto& silent = post_stream();  // its first token ends it
    Done done = done_event(StopReason::kEndTurn, 12, 0);
    done.admitted_ns = engine_.request->received_ns + 1 * kNsPerMs;
    done.prefill_done_ns = done.first_token_ns = engine_.request->received_ns + 3 * kNsPerMs;
    push(done);
    EXPECT_EQ(silent.header("server-timing"),
              "dispatch;dur=0.000, queue;dur=1.000, prefill;dur=2.000, ttft;dur=3.000");
}

TEST_F(ServiceTest, OneWakeUpIsOneWrite) {
    auto& r = post_stream();
    engine_.stream->try_push(Prepared{1});
    for (int i = 0; i < 50; ++i) engine_.stream->try_push(Text{"x", i + 1});
    engine_.stream->try_push(done_event(StopReason::kMaxTokens, 1, 50));
    loop_.run();
    EXPECT_EQ(r.writes, 1);
    EXPECT_EQ(deltas(), std::string(50, 'x'));
}

TEST_F(ServiceTest, HeadLeavesAfterTheDelayAndPingsFollow) {
    auto& r = post_stream();
    loop_.advance_ms(9'999);
    EXPECT_EQ(r.heads, 0);
    loop_.advance_ms(1);
    EXPECT_EQ(r.heads, 1);
    EXPECT_EQ(r.header("server-timing"), "dispatch;dur=0.000");  // no more is known
    EXPECT_EQ(names_of(parse_sse(r.body)), "ping ");
    push(Prepared{7});
    EXPECT_EQ(names_of(parse_sse(r.body)), "ping ");  // what is cached of it is not known yet
    loop_.advance_ms(25'000);
    EXPECT_EQ(names_of(parse_sse(r.body)), "ping ping ping ");
    push(Text{"a", 1});
    loop_.advance_ms(9'000);
    push(Text{"b", 2});  // resets the silence
    loop_.advance_ms(9'999);
    EXPECT_EQ(names_of(parse_sse(r.body)),
              "ping ping ping message_start content_block_start content_block_delta "
              "content_block_delta ");
    loop_.advance_ms(1);
    push(Failed{Error{.code = Code::kInternal, .detail = "injected", .origin = "engine"}});
    const auto events = parse_sse(r.body);
    EXPECT_EQ(names_of(events),
              "ping ping ping message_start content_block_start content_block_delta "
              "content_block_delta ping error ");
    EXPECT_EQ(events.back().data["error"]["type"], "api_error");
    EXPECT_EQ(events.back().data["request_id"], r.header("request-id"));
    EXPECT_TRUE(r.finished);
    EXPECT_EQ(r.body.find("message_stop"), std::string::npos);
}

TEST_F(ServiceTest, HeadDelayOfZeroSendsTheHeadAtOnce) {
    options_.header_delay_ms = 0;
    auto& r = post_stream();
    loop_.advance_ms(0);
    EXPECT_EQ(r.head.status, 200);
    push(Failed{Error{.code = Code::kOverloaded, .detail = "full", .origin = "engine"}});
    EXPECT_EQ(names_of(parse_sse(r.body)), "ping error ");
}

TEST_F(ServiceTest, MessageStartAndMessageDeltaTellTheSameSplit) {
    auto& r = post_stream();
    push(Prepared{1517});
    loop_.advance_ms(10'000);
    EXPECT_EQ(names_of(parse_sse(r.body)), "ping ");
    Done done = done_event(StopReason::kEndTurn, 1517, 1, 1500);
    done.usage.cache_write_5m_tokens = 16;
    push(Text{"a", 1, 0, 0, done.usage});
    push(done);
    const auto events = parse_sse(r.body);
    ASSERT_EQ(events.size(), 7U) << names_of(events);
    const json begin = events[1].data["message"]["usage"];
    const json end = events[5].data["usage"];
    EXPECT_EQ(begin["output_tokens"], 0);
    for (const char* key : {"input_tokens", "cache_read_input_tokens",
                            "cache_creation_input_tokens", "cache_creation"})
        EXPECT_EQ(begin[key], end[key]) << key;
    EXPECT_EQ(begin["input_tokens"], 1);
    EXPECT_EQ(begin["cache_read_input_tokens"], 1500);
}

TEST_F(ServiceTest, StreamWithoutText) {
    auto& r = post_stream();
    push(Prepared{7});
    push(done_event(StopReason::kMaxTokens, 7, 0));
    EXPECT_EQ(names_of(parse_sse(r.body)), "message_start message_delta message_stop ");
    EXPECT_TRUE(r.finished);
}

TEST_F(ServiceTest, SlowReaderPausesItsOwnStream) {
    auto& r = post_stream();
    r.hold = true;
    push(Prepared{1});
    int pushed = 0;
    const std::string piece(8 * 1024, 'y');
    while (push(Text{piece, pushed + 1})) ++pushed;
    EXPECT_LT(r.body.size(), MessagesExchange::kMaxBuffered + 2 * piece.size());
    EXPECT_GT(pushed, 100);  // the ring took the rest
    const int notified = engine_.notified;
    loop_.advance_ms(60'000);
    EXPECT_EQ(r.body.find("ping"), std::string::npos);  // no pings on top of unread bytes
    r.held = 0;
    exchange_->on_writable();
    EXPECT_GT(r.body.size(), MessagesExchange::kMaxBuffered);
    EXPECT_LT(r.held, MessagesExchange::kMaxBuffered + 2 * piece.size());
    r.hold = false;
    r.held = 0;
    exchange_->on_writable();
    EXPECT_GT(engine_.notified, notified);  // room again
    EXPECT_EQ(deltas().size(), piece.size() * static_cast<std::size_t>(pushed));
}

TEST_F(ServiceTest, EndReachesASlowReaderWithoutFurtherEvents) {
    auto& r = post_stream();
    r.hold = true;
    push(Text{std::string(70'000, 'z'), 1});
    push(Text{"tail", 2});
    push(done_event(StopReason::kEndTurn, 1, 2));
    EXPECT_FALSE(r.finished);
    r.hold = false;
    r.held = 0;
    exchange_->on_writable();
    EXPECT_TRUE(r.finished);
    EXPECT_TRUE(deltas().ends_with("tail"));
}

// --- cancelling
// -----------------------------------------------------------------------------------

TEST_F(ServiceTest, DisconnectCancelsInEveryPhase) {
    post(body_of(""));
    exchange_->on_disconnect();
    EXPECT_EQ(engine_.stream->cancelled(), CancelReason::kDisconnect);
    EXPECT_EQ(loop_.timers(), 0U);

    auto& r = post_stream();
    push(Text{"a", 1});
    engine_.stream->try_push(Text{"b", 2});  // signalled, not handled yet
    exchange_->on_disconnect();
    const std::size_t size = r.body.size();
    loop_.run();
    EXPECT_EQ(r.body.size(), size);
    EXPECT_EQ(engine_.stream->cancelled(), CancelReason::kDisconnect);
    EXPECT_EQ(loop_.timers(), 0U);

    send(head_of("POST", "/v1/messages"));
    exchange_->on_body("{");
    exchange_->on_disconnect();
    exchange_->on_body_end();
    EXPECT_EQ(engine_.submitted, 2);
    EXPECT_EQ(responder_->heads, 0);
}

TEST_F(ServiceTest, DestructionCancelsAndALateWakeUpIsHarmless) {
    post_stream();
    push(Text{"a", 1});
    engine_.stream->try_push(Text{"b", 2});
    exchange_.reset();
    EXPECT_EQ(engine_.stream->cancelled(), CancelReason::kDisconnect);
    loop_.run();
    engine_.stream->try_push(done_event(StopReason::kEndTurn, 1, 2));
    loop_.run();
    loop_.advance_ms(100'000);
    EXPECT_EQ(policy_.live, 0);
}

TEST_F(ServiceTest, DeadlineIs504OrAnErrorEvent) {
    options_.deadline_ms = 5'000;
    auto& r = post(body_of(""));
    EXPECT_EQ(engine_.request->deadline_ns, engine_.request->received_ns + 5 * kNsPerSec);
    loop_.advance_ms(5'000);
    error_of(r, 504, "timeout_error");
    EXPECT_EQ(engine_.stream->cancelled(), CancelReason::kDeadline);
    auto& s = post_stream();
    push(Text{"a", 1});
    loop_.advance_ms(5'000);
    EXPECT_EQ(parse_sse(s.body).back().data["error"]["type"], "timeout_error");
    EXPECT_TRUE(s.finished);
    push(Failed{Error{.code = Code::kTimeout, .detail = "late", .origin = "engine"}});
    EXPECT_EQ(names_of(parse_sse(s.body)),
              "message_start content_block_start content_block_delta error ");
    EXPECT_EQ(loop_.timers(), 0U);
}

TEST_F(ServiceTest, ThreadsAreRefusedWithTheCodeSdksLookFor) {
    auto& r = post(body_of(R"(,"thread":{"type":"create"})"));
    error_of(r, 400, "invalid_request_error");
    const json details = json::parse(r.body)["error"]["details"];
    EXPECT_EQ(details["error_code"], "thread_unsupported_request");
    EXPECT_EQ(details["unsupported"], json::array());
}

// The engine's thread signals while the exchange ends on the loop's thread. For TSan and ASan.
TEST(Wakeups, RaceWithTheEnd) {
    for (int round = 0; round < 200; ++round) {
        FakeLoop loop;
        FakeEngine engine("m");
        ServiceOptions options;
        options.models = {{.id = "m", .engine = &engine}};
        Service service(options);
        FakeResponder responder(loop);
        wire::RequestHead head;
        head.method = "POST";
        head.target = "/v1/messages";
        head.headers = {{"anthropic-version", "2023-06-01"}, {"content-type", "application/json"}};
        auto exchange = service.on_head(head, responder);
        exchange->on_body(
            R"({"model":"m","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"x"}]})");
        exchange->on_body_end();
        std::thread producer([stream = engine.stream] {
            for (int i = 0; i < 200 && stream->cancelled() == CancelReason::kNone; ++i)
                stream->try_push(Text{"t", i});
        });
        for (int i = 0; i < round % 20; ++i) loop.run();
        exchange.reset();
        loop.run();
        producer.join();
        loop.run();
    }
}

}  // namespace
}  // namespace zerohop::api
