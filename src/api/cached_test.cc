// /v1/cache and /v1/cache/warmup over fakes: who sees what, and what a warm-up asks of the engine.
#include "api/cached.h"

#include <gtest/gtest.h>

#include "api/cache_request.h"
#include "api/testing/service.h"

namespace zerohop::api {
namespace {

class CacheRoutes : public ServiceTest {
  protected:
    CacheRoutes() {
        engine_.cached = std::make_shared<CacheList>(
            CacheList{{.id = 7,
                       .workspace = "w1",
                       .tokens = 33,
                       .hits = 2,
                       .pinned_until = loop_.now() + 1,
                       .running = true},
                      {.id = 8, .workspace = "w2", .tokens = 16, .in_host_memory = true}});
        other_.cached = std::make_shared<CacheList>(
            CacheList{{.id = 7, .workspace = "w1", .tokens = 5, .pinned_until = loop_.now()}});
    }
    json cached() { return json::parse(get("/v1/cache").body); }
    FakeResponder& remove_cached(const std::string& target) {
        return send(head_of("DELETE", target));
    }
    // Without version and content type, as the article's curl sends it.
    FakeResponder& warm_up(std::string_view body) {
        wire::RequestHead head = head_of("POST", "/v1/cache/warmup");
        remove(head, "anthropic-version");
        set(head, "content-type", "application/x-www-form-urlencoded");
        auto& r = send(head);
        exchange_->on_body(body);
        exchange_->on_body_end();
        return r;
    }
    std::string asked() const {
        std::string out;
        for (const Turn& turn : engine_.request->turns) {
            out += std::string(name_of(turn.role)) + ":";
            for (const std::string& part : turn.parts) out += "[" + part + "]";
        }
        for (const CacheBreakpoint& b : engine_.request->breakpoints)
            out += " " + std::to_string(b.turn) + "." + std::to_string(b.part) + " for " +
                   std::to_string(b.ttl_ns / kNsPerSec);
        return out;
    }
};

TEST_F(CacheRoutes, EverybodySeesTheirWorkspaceAdminsAll) {
    json list = cached();
    ASSERT_EQ(list["data"].size(), 2U) << list;
    const json& first = list["data"][0];
    EXPECT_EQ(first["id"], "0-7");
    EXPECT_EQ(first["model"], "m");
    EXPECT_EQ(first["workspace"], "w1");
    EXPECT_EQ(first["tokens"], 33);
    EXPECT_EQ(first["blocks"], 3);
    EXPECT_EQ(first["hits"], 2);
    EXPECT_EQ(first["running"], true);
    EXPECT_EQ(first["tier"], "kv");
    EXPECT_TRUE(first["pinned_until"].is_string());
    EXPECT_EQ(list["data"][1]["id"], "1-7");
    EXPECT_EQ(list["data"][1]["pinned_until"], nullptr);  // its pin ended
    EXPECT_EQ(list["totals"], json::parse(R"({"entries":2,"tokens":38,"blocks":4,"pinned":1,
                                             "host_tokens":0})"));
    policy_.admin = true;
    list = cached();
    EXPECT_EQ(list["totals"]["entries"], 3);
    EXPECT_EQ(list["data"][1]["tier"], "host");
    engine_.cached = nullptr;
    EXPECT_EQ(cached()["totals"]["entries"], 1);
}

TEST_F(CacheRoutes, AScopeShowsAndForgetsItsModelsOnly) {
    policy_.only = "org/name";
    for (const bool admin : {false, true}) {
        policy_.admin = admin;
        const json list = cached();
        ASSERT_EQ(list["totals"]["entries"], 1) << list;
        EXPECT_EQ(list["data"][0]["id"], "1-7");
        error_of(remove_cached("/v1/cache/0-7"), 404, "not_found_error");
        EXPECT_EQ(remove_cached("/v1/cache").body, R"({"deleted":1})");
    }
    EXPECT_EQ(engine_.forgotten, "");
    EXPECT_EQ(other_.forgotten, "w1/0 w1/0 ");
}

TEST_F(CacheRoutes, LongListsAreCut) {
    engine_.cached = std::make_shared<CacheList>(
        CacheList(kMaxListedEntries + 5, CacheEntry{.id = 1, .workspace = "w1", .tokens = 1}));
    const json list = cached();
    EXPECT_EQ(list["data"].size(), kMaxListedEntries);
    EXPECT_EQ(list["has_more"], true);
    EXPECT_EQ(list["totals"]["entries"], kMaxListedEntries + 6);
}

TEST_F(CacheRoutes, ForgetsTheirsAndNobodyElses) {
    auto& r = remove_cached("/v1/cache/0-7");
    EXPECT_EQ(r.head.status, 200);
    EXPECT_EQ(r.body, R"({"deleted":1})");
    EXPECT_EQ(engine_.forgotten, "w1/7 ");
    for (const std::string id : {"0-8", "0-9", "7", "x", "2-7", "0-0", "0-7x", "-7", "0-"})
        error_of(remove_cached("/v1/cache/" + id), 404, "not_found_error");
    EXPECT_EQ(engine_.forgotten, "w1/7 ");
    policy_.admin = true;
    EXPECT_EQ(remove_cached("/v1/cache/0-8").body, R"({"deleted":1})");
    EXPECT_EQ(engine_.forgotten, "w1/7 w2/8 ");
    EXPECT_EQ(remove_cached("/v1/cache").body, R"({"deleted":2})");
    EXPECT_EQ(engine_.forgotten, "w1/7 w2/8 w1/0 ");
    EXPECT_EQ(other_.forgotten, "w1/0 ");
}

TEST_F(CacheRoutes, AGroupSeesAndForgetsWhatIsTheGroups) {
    engine_.cached = std::make_shared<CacheList>(CacheList{
        {.id = 7, .workspace = "w1+w3", .tokens = 33}, {.id = 8, .workspace = "w1", .tokens = 16}});
    // Outside of every group.
    EXPECT_EQ(cached()["data"][0]["id"], "0-8");
    error_of(remove_cached("/v1/cache/0-7"), 404, "not_found_error");
    service_.reset();
    options_.cache_groups = {{"w1", "w1+w3"}, {"w3", "w1+w3"}};
    const json list = cached();
    ASSERT_EQ(list["totals"]["entries"], 1) << list;
    EXPECT_EQ(list["data"][0]["id"], "0-7");
    EXPECT_EQ(list["data"][0]["workspace"], "w1+w3");
    error_of(remove_cached("/v1/cache/0-8"), 404, "not_found_error");
    EXPECT_EQ(remove_cached("/v1/cache/0-7").body, R"({"deleted":1})");
    EXPECT_EQ(remove_cached("/v1/cache").body, R"({"deleted":1})");
    EXPECT_EQ(engine_.forgotten, "w1+w3/7 w1+w3/0 ");
    post(body_of(""));
    EXPECT_EQ(engine_.request->principal.workspace, "w1");
    EXPECT_EQ(engine_.request->principal.cache_group, "w1+w3");
}

TEST_F(CacheRoutes, MethodsAndKeys) {
    const std::tuple<const char*, const char*, const char*> rows[] = {
        {"POST", "/v1/cache", "GET, HEAD, DELETE"},
        {"GET", "/v1/cache/warmup", "POST"},
        {"GET", "/v1/cache/0-7", "DELETE"},
        {"ET", "/v1/cache", "GET, HEAD, DELETE"}};
    for (const auto& [method, path, allow] : rows) {
        auto& r = send(head_of(method, path));
        error_of(r, 405, "invalid_request_error");
        EXPECT_EQ(r.header("allow"), allow);
    }
    error_of(send(head_of("GET", "/v1/cache/a/b")), 404, "not_found_error");
    policy_.refusal = Error{.code = Code::kAuthentication, .detail = "no", .origin = "t"};
    error_of(get("/v1/cache"), 401, "authentication_error");
    error_of(remove_cached("/v1/cache"), 401, "authentication_error");
    error_of(warm_up("{}"), 401, "authentication_error");
}

TEST_F(CacheRoutes, TheArticlesCurlWarmsUp) {
    policy_.hinted = "m";
    auto& r = warm_up(R"({"prompt":"<system>You are a helpful AI assistant</system>"})");
    ASSERT_EQ(engine_.submitted, 1) << r.body;
    EXPECT_EQ(asked(), "system:[You are a helpful AI assistant] 0.0 for 300");
    EXPECT_EQ(engine_.request->max_tokens, 0);
    EXPECT_EQ(engine_.request->principal.workspace, "w1");
    push(Prepared{20});
    Done done = done_event(StopReason::kMaxTokens, 20, 0);
    done.usage.cache_write_5m_tokens = 18;
    done.cached_until_ns = loop_.now() + kShortTtl;
    push(done);
    EXPECT_EQ(r.head.status, 200);
    const json answer = json::parse(r.body);
    EXPECT_EQ(answer["cached_tokens"], 18);
    EXPECT_EQ(answer["kv_blocks"], 2);
    EXPECT_EQ(answer["skeleton"].get<std::string>().size(), 32U);
    EXPECT_EQ(answer["expires_at"].get<std::string>().size(), 20U);
    EXPECT_EQ(answer.size(), 4U);
}

TEST_F(CacheRoutes, WarmUpTakesMessagesBodies) {
    warm_up(R"({"model":"claude","system":"s","messages":[],"ttl":"1h"})");
    EXPECT_EQ(asked(), "system:[s] 0.0 for 3600");
    EXPECT_EQ(engine_.request->model, "m");
    warm_up(R"({"model":"m","system":[{"type":"text","text":"s","cache_control":
        {"type":"ephemeral","ttl":"1h"}}],"max_tokens":9,"stream":true,"temperature":0.5,
        "messages":[{"role":"user","content":"a"},{"role":"user","content":"b"}]})");
    EXPECT_EQ(asked(), "system:[s]user:[a][b] 1.1 for 3600");
    EXPECT_EQ(engine_.request->max_tokens, 0);
    push(done_event(StopReason::kMaxTokens, 3, 0));
    EXPECT_EQ(responder_->header("content-type"), "application/json");
    EXPECT_EQ(json::parse(responder_->body)["expires_at"], nullptr);
}

TEST_F(CacheRoutes, WarmUpSaysWhatIsWrong) {
    options_.drop_lines = {"drop:"};
    const std::pair<const char*, const char*> rows[] = {
        {R"({"prompt":"x"})", "model: field required (or a model in x-anthropic-early-hint)"},
        {R"({"model":"m"})",
         "nothing to warm up: give system, messages or prompt some text that is not dropped"},
        {R"({"model":"m","system":"drop: 1"})",
         "nothing to warm up: give system, messages or prompt some text that is not dropped"},
        {R"({"model":"m","prompt":""})", "prompt: must not be empty"},
        {R"({"model":"m","prompt":5})", "prompt: must be a string, not a number"},
        {R"({"model":"m","prompt":"x","system":"y"})",
         "system: give either prompt, or system and messages"},
        {R"({"model":"m","prompt":"x","ttl":"2h"})", "ttl: must be one of '5m', '1h'; got '2h'"},
        {R"({"model":"m","prompts":"x"})", "prompts: unknown field"},
    };
    for (const auto& [body, message] : rows)
        EXPECT_EQ(error_of(warm_up(body), 400, "invalid_request_error"), message) << body;
    EXPECT_EQ(engine_.submitted, 0);
    EXPECT_EQ(error_of(post(R"({"model":"m","max_tokens":1,"prompt":"x","messages":[]})"), 400,
                       "invalid_request_error"),
              "prompt: unknown field");
    auto head = head_of("POST", "/v1/cache/warmup");
    set(head, "anthropic-version", "1999-01-01");
    error_of(send(head), 400, "invalid_request_error");
    head = head_of("POST", "/v1/cache/warmup");
    set(head, "content-type", "text/plain");
    set(head, "origin", "http://localhost:3000");
    error_of(send(head), 415, "invalid_request_error");
}

TEST_F(CacheRoutes, ARefusedPromptIsTriedOnceWithAUser) {
    auto& r = warm_up(R"({"model":"m","system":"s"})");
    const auto refuse = [&](Code code) {
        push(Failed{Error{.code = code, .detail = "no user", .origin = "engine"}});
    };
    refuse(Code::kInvalidRequest);
    ASSERT_EQ(engine_.submitted, 2);
    EXPECT_EQ(asked(), "system:[s]user:[] 0.0 for 300");
    EXPECT_EQ(r.heads, 0);
    refuse(Code::kInvalidRequest);
    EXPECT_EQ(engine_.submitted, 2);
    EXPECT_EQ(error_of(r, 400, "invalid_request_error"), "no user");
    warm_up(R"({"model":"m","system":"s"})");
    refuse(Code::kOverloaded);
    EXPECT_EQ(engine_.submitted, 3);
}

TEST_F(CacheRoutes, VolatileLinesNeverReachTheEngine) {
    options_.drop_lines = {"x-anthropic-billing-header:"};
    std::string keys;
    for (const char* number : {"1", "22"}) {
        auto head = head_of("POST", "/v1/messages");
        set(head, "x-anthropic-debug", "skeleton");
        auto& r = send(head);
        exchange_->on_body(R"({"model":"m","max_tokens":1,"system":"x-anthropic-billing-header: )" +
                           std::string(number) +
                           R"(\nYou are.","messages":[{"role":"user","content":"hi"}]})");
        exchange_->on_body_end();
        EXPECT_EQ(asked(), "system:[You are.]user:[hi]");
        EXPECT_FALSE(engine_.request->structure[0].empty());
        push(done_event(StopReason::kMaxTokens, 3, 1));
        EXPECT_TRUE(r.header("x-anthropic-skeleton").ends_with(";dropped=1"))
            << r.header("x-anthropic-skeleton");
    }
    post(R"({"model":"m","system":"x-anthropic-billing-header: 5\nYou are.",
             "messages":[{"role":"user","content":"hi"}]})",
         "/v1/messages/count_tokens");
    EXPECT_EQ(asked(), "system:[You are.]user:[hi]");
}

TEST_F(CacheRoutes, UsersAreKeptApartOnlyWhenConfigured) {
    const std::string body = body_of(R"(,"metadata":{"user_id":"u1"})");
    post(body);
    EXPECT_EQ(engine_.request->cache_user, "");
    exchange_.reset();
    service_.reset();
    options_.isolate_users = true;
    post(body);
    EXPECT_EQ(engine_.request->cache_user, "u1");
}

TEST_F(CacheRoutes, NothingGeneratedIsAnAnswer) {
    auto& r = post(
        R"({"model":"m","max_tokens":0,"messages":[{"role":"user","content":[{"type":"text",
            "text":"hi","cache_control":{"type":"ephemeral"}}]}]})");
    EXPECT_EQ(asked(), "user:[hi] 0.0 for 300");
    Done done = done_event(StopReason::kMaxTokens, 10, 0);
    done.usage.cache_write_5m_tokens = 8;
    push(done);
    const json message = json::parse(r.body);
    EXPECT_EQ(message["content"], json::array());
    EXPECT_EQ(message["stop_reason"], "max_tokens");
    EXPECT_EQ(message["usage"]["input_tokens"], 2);
    EXPECT_EQ(message["usage"]["cache_creation_input_tokens"], 8);
}

}  // namespace
}  // namespace zerohop::api
