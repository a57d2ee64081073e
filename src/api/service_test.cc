// The service over fakes: routes and head checks.
#include "api/service.h"

#include <gtest/gtest.h>

#include "api/gzip.h"
#include "api/testing/service.h"

namespace zerohop::api {
namespace {

// --- routes and head checks
// -----------------------------------------------------------------------

TEST_F(ServiceTest, UnknownPathsGetHelpfulErrors) {
    const std::pair<const char*, const char*> rows[] = {
        {"/metrics", "'/metrics': no such path"},
        {"/v1/v1/messages",
         "'/v1/v1/messages' has /v1 twice: the SDK adds it, so set the base URL without /v1"},
        {"/v1/files/abc/content", "/v1/files is not served here"},
        {"/v1/messages/batches", "/v1/messages/batches is not served here"},
        {"/v1/skills", "/v1/skills is not served here"},
        {"/v1/chat/completions", "/v1/chat/completions is not served here"},
        {"/v1/complete", "the legacy text completions are not served; use POST /v1/messages"},
        {"/v1/models/org/name", "no such path; a model id that contains '/' must be sent with %2F"},
        {"/messages", "'/messages': no such path; did you mean '/v1/messages'?"},
    };
    for (const auto& [path, message] : rows) {
        SCOPED_TRACE(path);
        EXPECT_EQ(error_of(send(head_of("POST", path)), 404, "not_found_error"), message);
    }
    EXPECT_EQ(policy_.asked, 0);
}

TEST_F(ServiceTest, WrongMethodsAre405WithAllow) {
    auto& r = get("/v1/messages?beta=true");
    EXPECT_EQ(error_of(r, 405, "invalid_request_error"), "'GET' is not allowed here; use POST");
    EXPECT_EQ(r.header("allow"), "POST");
    auto& models = send(head_of("POST", "/v1/models"));
    error_of(models, 405, "invalid_request_error");
    EXPECT_EQ(models.header("allow"), "GET, HEAD");
    error_of(send(head_of("OPTIONS", "/v1/messages")), 405, "invalid_request_error");
    auto& head_only = send(head_of("HEAD", "/v1/messages"));
    EXPECT_EQ(head_only.head.status, 405);
    EXPECT_EQ(head_only.body, "");
}

TEST_F(ServiceTest, HealthNeedsNoKey) {
    policy_.refusal = Error{.code = Code::kAuthentication, .detail = "no", .origin = "t"};
    EXPECT_EQ(get("/healthz").head.status, 200);
    EXPECT_EQ(get("/readyz").body, R"({"status":"ready"})");
    ready_ = false;
    EXPECT_EQ(get("/readyz").head.status, 503);
    ready_ = true;
    draining_ = true;
    EXPECT_EQ(get("/readyz").head.status, 503);
    EXPECT_EQ(get("/readyz").body, R"({"status":"draining"})");
    EXPECT_EQ(get("/healthz").head.status, 200);
    auto& r = send(head_of("HEAD", "/healthz"));
    EXPECT_EQ(r.body, "");
    EXPECT_EQ(r.head.content_length, 15);
    EXPECT_TRUE(r.finished);
}

TEST_F(ServiceTest, ReadinessTellsLoadOnLoopbackOnly) {
    auto head = head_of("GET", "/readyz");
    for (const std::string peer : {"127.0.0.1", "::1", "::ffff:127.0.0.1"}) {
        head.peer = peer;
        const std::string body = send(head).body;
        EXPECT_NE(body.find(R"("models":[{"id":")"), std::string::npos) << body;
        EXPECT_NE(body.find(R"("running":0)"), std::string::npos) << body;
    }
    head.authority = "evil.example:8080";  // whatever its address is
    EXPECT_EQ(send(head).body, R"({"status":"ready"})");
    head.authority = "localhost";
    head.peer = "192.0.2.1";
    EXPECT_EQ(send(head).body, R"({"status":"ready"})");
    head.peer = "127.0.0.1";
    service_.reset();
    options_.readyz_details = false;
    EXPECT_EQ(send(head).body, R"({"status":"ready"})");
}

TEST_F(ServiceTest, PolicyRefusesBeforeTheBody) {
    policy_.refusal = Error{.code = Code::kAuthentication, .detail = "bad key", .origin = "auth"};
    auto head = head_of("POST", "/v1/messages");
    head.content_length = std::int64_t{33} << 20;
    remove(head, "anthropic-version");
    auto& r = send(head);
    EXPECT_EQ(error_of(r, 401, "authentication_error"), "bad key");
    EXPECT_EQ(r.header("retry-after-ms"), "1");
    EXPECT_EQ(r.continues, 0);
    exchange_->on_body("ignored");
    exchange_->on_body_end();
    EXPECT_EQ(r.heads, 1);
    error_of(get("/v1/models"), 401, "authentication_error");
}

TEST_F(ServiceTest, DrainingIs503) {
    draining_ = true;
    auto& r = post(body_of(""));
    error_of(r, 503, "api_error");
    EXPECT_EQ(r.header("retry-after"), "1");
    EXPECT_EQ(r.header("x-should-retry"), "true");
    EXPECT_EQ(engine_.submitted, 0);
}

TEST_F(ServiceTest, SizeBeforeVersionBeforeContentType) {
    auto head = head_of("POST", "/v1/messages");
    head.content_length = (std::int64_t{32} << 20) + 1;
    remove(head, "anthropic-version");
    remove(head, "content-type");
    EXPECT_EQ(error_of(send(head), 413, "request_too_large"),
              "body: larger than the limit of 33554432 bytes");
    head.content_length = std::int64_t{32} << 20;
    EXPECT_EQ(error_of(send(head), 400, "invalid_request_error"),
              "anthropic-version: header is required; known versions: 2023-06-01, 2026-10-21, "
              "2024-07-15");
    set(head, "anthropic-version", "2020-01-01");
    EXPECT_EQ(
        error_of(send(head), 400, "invalid_request_error"),
        "anthropic-version: '2020-01-01' is not known; known versions: 2023-06-01, 2026-10-21, "
        "2024-07-15");
    set(head, "anthropic-version", "2023-06-01");
    EXPECT_EQ(error_of(send(head), 415, "invalid_request_error"),
              "content-type: header is required and must be application/json");
    set(head, "content-type", "text/plain");
    EXPECT_EQ(error_of(send(head), 415, "invalid_request_error"),
              "content-type: must be application/json, not 'text/plain'");
    set(head, "content-type", "Application/JSON ; charset=utf-8");
    EXPECT_EQ(send(head).heads, 0);
    EXPECT_EQ(responder_->continues, 1);
    set(head, "content-encoding", "br");
    error_of(send(head), 400, "invalid_request_error");
    EXPECT_EQ(json::parse(responder_->body)["error"]["details"]["error_code"],
              "request_body_encoding_unsupported");
    EXPECT_EQ(responder_->continues, 0);
}

TEST_F(ServiceTest, EveryAnswerContinuesTheCallersTrace) {
    const std::string parent = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7";
    const auto traced = [&](std::string method, std::string target, std::string flags) {
        auto head = head_of(std::move(method), std::move(target));
        set(head, "traceparent", "00-" + parent + "-" + flags);
        return head;
    };
    const auto check = [](const FakeResponder& r, int status, std::string_view flags) {
        EXPECT_EQ(r.head.status, status);
        const std::string ours = r.header("traceparent");
        EXPECT_EQ(ours.substr(0, 36), "00-" + r.header("x-anthropic-trace-id") + "-") << ours;
        EXPECT_EQ(ours.substr(52), "-" + std::string(flags));
    };
    check(send(traced("GET", "/v1/models", "00")), 200, "00");
    check(send(traced("GET", "/healthz", "01")), 200, "01");
    check(send(traced("GET", "/nowhere", "01")), 404, "01");
    check(send(traced("GET", "/v1/messages", "01")), 405, "01");
    policy_.refusal = Error{.code = Code::kAuthentication, .detail = "no", .origin = "t"};
    check(send(traced("POST", "/v1/messages", "01")), 401, "01");
    policy_.refusal.reset();
    send(traced("POST", "/v1/messages", "01"));
    exchange_->on_body("{");
    exchange_->on_body_end();
    check(*responder_, 400, "01");
    send(traced("POST", "/v1/messages", "01"));
    exchange_->on_body(body_of(""));
    exchange_->on_body_end();
    EXPECT_EQ(engine_.request->trace_parent, parent);
    push(done_event(StopReason::kEndTurn, 1, 1));
    check(*responder_, 200, "01");
    auto head = traced("GET", "/v1/models", "01");
    head.headers.push_back({"traceparent", "00-" + parent + "-00"});  // which one?
    EXPECT_EQ(send(head).header("traceparent"), "(absent)");
    set(head, "traceparent", "00-zz");
    EXPECT_EQ(send(head).header("traceparent"), "(absent)");
}

TEST_F(ServiceTest, HeadersOfOneValueAreSaidOnce) {
    for (const char* name :
         {"anthropic-version", "content-type", "content-encoding", "x-anthropic-skeleton"}) {
        auto head = head_of("POST", "/v1/messages");
        if (!head.has(name)) set(head, name, "gzip");
        const std::string value(head.header(name));
        head.headers.push_back({name, value});
        EXPECT_EQ(send(head).heads, 0) << name;
        head.headers.push_back({name, value == "2026-10-21" ? "2023-06-01" : "identity"});
        EXPECT_EQ(error_of(send(head), 400, "invalid_request_error"),
                  std::string(name) + ": was sent twice with different values; send one");
    }
    auto models = head_of("GET", "/v1/models");
    models.headers.push_back({"anthropic-version", "2023-06-01"});
    error_of(send(models), 400, "invalid_request_error");
}

TEST_F(ServiceTest, BytesThatAreNotUtf8DoNotReachTheAnswer) {
    auto head = head_of("POST", "/v1/messages");
    set(head, "anthropic-version", "\xff\xfe");
    error_of(send(head), 400, "invalid_request_error");  // parses the body: it is valid JSON
    error_of(get("/v1/models/%ff%fe"), 404, "not_found_error");
    error_of(get("/v1/models?after_id=%ff"), 400, "invalid_request_error");
    error_of(get("/\xc3("), 404, "not_found_error");
}

TEST_F(ServiceTest, ChunkedBodyOverTheCapIs413Once) {
    options_.body_cap_bytes = 100;
    send(head_of("POST", "/v1/messages"));
    exchange_->on_body(std::string(60, ' '));
    EXPECT_EQ(responder_->heads, 0);
    exchange_->on_body(std::string(60, ' '));
    error_of(*responder_, 413, "request_too_large");
    exchange_->on_body(std::string(60, ' '));
    exchange_->on_body_end();
    exchange_->on_disconnect();
    EXPECT_EQ(responder_->heads, 1);
}

TEST_F(ServiceTest, GzipBodyIsRead) {
    auto head = head_of("POST", "/v1/messages");
    set(head, "content-encoding", "GZIP");
    send(head);
    exchange_->on_body(gzip_compress(body_of("")).value());
    exchange_->on_body_end();
    EXPECT_EQ(engine_.submitted, 1);
}

// Pages of other sites, which browsers let send what needs no preflight, and everything once a name
// of theirs leads here.
TEST_F(ServiceTest, AForeignOriginChangesNothing) {
    options_.answer_token = [](const Admission&, std::string_view) { return std::string("{}"); };
    int reloads = 0;
    options_.reload = [&](const auto& done) {
        ++reloads;
        done(std::vector<std::string>());
    };
    options_.cors_origins = {"https://app.example"};
    policy_.admin = true;
    const auto ask = [&](const char* method, const char* target, const std::string& origin) {
        auto head = head_of(method, target);
        set(head, "content-type", "text/plain");
        set(head, "origin", origin);
        return head;
    };
    const std::pair<const char*, const char*> routes[] = {
        {"POST", "/v1/messages"},   {"POST", "/v1/messages/count_tokens"},
        {"POST", "/v1/auth/token"}, {"POST", "/v1/config/reload"},
        {"DELETE", "/v1/cache"},    {"POST", "/v1/cache/warmup"},
        {"DELETE", "/v1/cache/0-7"}};
    for (const auto& [method, target] : routes) {
        for (const char* origin :
             {"http://evil.example", "null", "http://localhost.evil.example:8080", "",
              "http://evil.example:8080", "https://app.example.evil", "localhost:8080"}) {
            auto& r = send(ask(method, target, origin));
            EXPECT_NE(error_of(r, 403, "permission_error").find("api.cors_origins"),
                      std::string::npos)
                << target;
            EXPECT_EQ(r.header("access-control-allow-origin"), "(absent)");
            exchange_->on_body_end();
        }
        auto two = ask(method, target, "http://localhost:8080");
        two.headers.push_back({"origin", "http://evil.example"});
        error_of(send(two), 403, "permission_error");
        for (const char* origin : {"http://localhost:8080", "http://127.0.0.1:3000",
                                   "http://[::1]:5173", "https://app.example"}) {
            auto& r = send(ask(method, target, origin));
            EXPECT_NE(r.head.status, 403) << target << " " << origin;
            if (r.heads > 0) {
                EXPECT_EQ(r.header("access-control-allow-origin"), origin);
            }
        }
    }
    EXPECT_EQ(reloads, 0);  // no body has ended
    // Under a name of its own only its own pages are on the same machine.
    auto head = ask("POST", "/v1/config/reload", "http://localhost:3000");
    head.authority = "llm.example";
    error_of(send(head), 403, "permission_error");
    set(head, "origin", "https://LLM.example");
    send(head);
    exchange_->on_body_end();
    loop_.run();
    EXPECT_EQ(reloads, 1);
    auto models = ask("GET", "/v1/models", "http://evil.example");
    EXPECT_EQ(send(models).head.status, 200);  // which the page cannot read
    EXPECT_EQ(responder_->header("access-control-allow-origin"), "(absent)");
}

TEST_F(ServiceTest, PagesOfThisMachineMayUseIt) {
    auto head = head_of("OPTIONS", "/v1/messages");
    set(head, "origin", "http://localhost:3000");
    set(head, "access-control-request-headers",
        "anthropic-dangerous-direct-browser-access,x-api-key");
    EXPECT_EQ(send(head).head.status, 204);
    EXPECT_EQ(responder_->header("access-control-allow-origin"), "http://localhost:3000");
    head.authority = "llm.example";
    EXPECT_EQ(send(head).head.status, 405);
}

TEST_F(ServiceTest, ProbesAreAnsweredAndToldNothing) {
    policy_.refusal = Error{.code = Code::kAuthentication, .detail = "no", .origin = "t"};
    for (const char* method : {"GET", "HEAD"})
        for (const char* path : {"/", "/health", "/healthz", "/v1", "/v1/", "/api/hello"}) {
            auto head = head_of(method, path);
            head.authority = "evil.example";
            EXPECT_EQ(send(head).head.status, 200) << path;
            EXPECT_EQ(responder_->body, *method == 'G' ? R"({"status":"ok"})" : "") << path;
        }
    EXPECT_EQ(policy_.asked, 0);
    error_of(send(head_of("POST", "/")), 405, "invalid_request_error");
}

TEST_F(ServiceTest, CorsOnlyWhenConfigured) {
    auto head = head_of("OPTIONS", "/v1/messages");
    set(head, "origin", "https://app.example");
    set(head, "access-control-request-headers", "authorization,x-stainless-os");
    error_of(send(head), 405, "invalid_request_error");
    service_.reset();
    options_.cors_origins = {"https://app.example"};
    auto& r = send(head);
    EXPECT_EQ(r.head.status, 204);
    EXPECT_TRUE(r.finished);
    EXPECT_EQ(r.header("access-control-allow-origin"), "https://app.example");
    EXPECT_EQ(r.header("access-control-allow-headers"), "authorization,x-stainless-os");
    EXPECT_EQ(r.header("vary"), "origin");
    EXPECT_EQ(policy_.asked, 0);  // a preflight carries no key
    set(head, "origin", "https://evil.example");
    EXPECT_EQ(send(head).head.status, 405);
    EXPECT_EQ(responder_->header("access-control-allow-origin"), "(absent)");
    auto models = head_of("GET", "/v1/models");
    set(models, "origin", "https://app.example");
    EXPECT_NE(send(models).header("access-control-expose-headers").find("request-id"),
              std::string::npos);
}

// --- models
// ---------------------------------------------------------------------------------------

TEST_F(ServiceTest, ModelsServeBothDialects) {
    auto head = head_of("GET", "/v1/models");
    auto& r = send(head);
    EXPECT_EQ(r.head.status, 200);
    EXPECT_EQ(r.header("x-request-id"), r.header("request-id"));
    EXPECT_EQ(r.header("anthropic-ratelimit-requests-limit"), "10");
    EXPECT_EQ(policy_.live, 1);
    const json list = json::parse(r.body);
    EXPECT_EQ(list["object"], "list");
    EXPECT_EQ(list["has_more"], false);
    EXPECT_EQ(list["first_id"], "m");
    EXPECT_EQ(list["last_id"], "org/name");
    const json& model = list["data"][0];
    EXPECT_EQ(model["id"], "m");  // the newer one first
    EXPECT_EQ(model["type"], "model");
    EXPECT_EQ(model["object"], "model");
    EXPECT_EQ(model["display_name"], "m (fake)");
    EXPECT_EQ(model["created_at"], "1970-01-01T00:00:02Z");
    EXPECT_EQ(model["created"], 2);
    EXPECT_EQ(model["owned_by"], "zerohop");
    EXPECT_EQ(model["max_input_tokens"], 8192);
    EXPECT_EQ(model["max_tokens"], 8192);
    EXPECT_EQ(model["lifecycle"], "active");
    EXPECT_EQ(model["capabilities"]["thinking"]["types"]["disabled"]["supported"], true);
    EXPECT_EQ(model["capabilities"]["prompt_caching"]["supported"], true);
    // The OpenAI SDK sends no version.
    remove(head, "anthropic-version");
    EXPECT_EQ(send(head).head.status, 200);
    set(head, "anthropic-version", "x");
    error_of(send(head), 400, "invalid_request_error");
}

TEST_F(ServiceTest, ModelIdsArePercentDecoded) {
    EXPECT_EQ(json::parse(get("/v1/models/org%2Fname").body)["id"], "org/name");
    EXPECT_EQ(json::parse(get("/v1/models/claude").body)["id"], "m");
    EXPECT_EQ(error_of(get("/v1/models/none"), 404, "not_found_error"),
              "model: 'none' is not served here; served: 'm', 'org/name'");
    EXPECT_EQ(error_of(get("/v1/models/a%2"), 400, "invalid_request_error"),
              "path: malformed percent-encoding");
    EXPECT_EQ(error_of(get("/v1/models/"), 404, "not_found_error"),
              "no such path; a model id that contains '/' must be sent with %2F");
}

}  // namespace
}  // namespace zerohop::api
