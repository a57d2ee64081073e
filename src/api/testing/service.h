// The fixture of api's service tests: a Service over fakes, one exchange at a time. Test code only.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "api/service.h"
#include "api/testing/fakes.h"

namespace zerohop::api {

using nlohmann::json;

struct CountedAdmission final : Admission {
    CountedAdmission(int& live, std::string hinted, std::string only)
        : live_(live), hinted_(std::move(hinted)), only_(std::move(only)) {
        ++live_;
    }
    ~CountedAdmission() override { --live_; }
    std::string_view hinted_model() const override { return hinted_; }
    bool may_use(std::string_view model) const override { return only_.empty() || model == only_; }
    int& live_;
    std::string hinted_, only_;
};

struct FakePolicy final : HeadPolicy {
    Result<HeadDecision> decide(const wire::RequestHead&, Asks) override {
        ++asked;
        if (refusal) return std::unexpected(*refusal);
        HeadDecision decision;
        decision.principal.workspace = "w1";
        decision.principal.admin = admin;
        decision.response_headers = {{"anthropic-ratelimit-requests-limit", "10"}};
        decision.admission = std::make_unique<CountedAdmission>(live, hinted, only);
        return decision;
    }
    std::optional<Error> refusal;
    int asked = 0, live = 0;
    bool admin = false;
    std::string hinted;  // model
    std::string only;    // model of the scope; "": all
};

struct SseEvent {
    std::string name;
    json data;
};

inline std::vector<SseEvent> parse_sse(std::string_view text) {
    std::vector<SseEvent> events;
    while (!text.empty()) {
        const auto end = text.find("\n\n");
        EXPECT_NE(end, std::string_view::npos) << "no blank line at the end";
        if (end == std::string_view::npos) break;
        const std::string_view block = text.substr(0, end);
        const auto line = block.find('\n');
        EXPECT_TRUE(block.starts_with("event: "));
        EXPECT_TRUE(block.substr(line + 1).starts_with("data: "));
        SseEvent event{std::string(block.substr(7, line - 7)), json::parse(block.substr(line + 7))};
        EXPECT_EQ(event.data["type"], event.name);
        events.push_back(std::move(event));
        text.remove_prefix(end + 2);
    }
    return events;
}

inline std::string names_of(const std::vector<SseEvent>& events) {
    std::string out;
    for (const auto& event : events) out += event.name + " ";
    return out;
}

class ServiceTest : public ::testing::Test {
  protected:
    ServiceTest() {
        options_.models = {{.id = "m", .engine = &engine_, .aliases = {"claude"}},
                           {.id = "org/name", .engine = &other_}};
        options_.head_policy = &policy_;
        options_.clock = [this] { return loop_.now(); };
        options_.draining = [this] { return draining_; };
        options_.ready = [this] { return ready_; };
    }
    ~ServiceTest() override { exchange_.reset(); }

    wire::RequestHead head_of(std::string method, std::string target) {
        wire::RequestHead head;
        head.method = std::move(method);
        head.target = std::move(target);
        head.authority = "localhost:8080";
        head.first_byte_ns = loop_.now();
        head.headers = {{"anthropic-version", "2026-10-21"}};
        if (head.method == "POST") head.headers.push_back({"content-type", "application/json"});
        return head;
    }
    void set(wire::RequestHead& head, std::string name, std::string value) {
        std::erase_if(head.headers, [&](const auto& h) { return h.name == name; });
        head.headers.push_back({std::move(name), std::move(value)});
    }
    void remove(wire::RequestHead& head, std::string_view name) {
        std::erase_if(head.headers, [&](const auto& h) { return h.name == name; });
    }

    // A fresh responder; the exchange of before is gone.
    FakeResponder& send(const wire::RequestHead& head) {
        exchange_.reset();
        if (!service_) service_ = std::make_unique<Service>(options_);
        responder_ = std::make_unique<FakeResponder>(loop_);
        exchange_ = service_->on_head(head, *responder_);
        return *responder_;
    }
    FakeResponder& get(std::string target) { return send(head_of("GET", std::move(target))); }
    FakeResponder& post(std::string_view body, std::string target = "/v1/messages") {
        send(head_of("POST", std::move(target)));
        exchange_->on_body(body);
        exchange_->on_body_end();
        return *responder_;
    }
    // Until a worker has read the last body, and the engine has so many requests or it was
    // answered.
    void wait_for_worker(const FakeResponder& r, int submitted) {
        for (int i = 0; i < 5000 && r.heads == 0 && engine_.submitted < submitted; ++i) {
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
            loop_.run();
        }
    }
    static std::string body_of(std::string_view members) {
        return R"({"model":"m","max_tokens":16,"messages":[{"role":"user","content":"hi"}])" +
               std::string(members) + "}";
    }
    FakeResponder& post_stream() { return post(body_of(R"(,"stream":true)")); }

    bool push(Event event) {
        const bool ok = engine_.stream->try_push(std::move(event));
        loop_.run();
        return ok;
    }
    std::string deltas() const {
        std::string out;
        for (const auto& event : parse_sse(responder_->body))
            if (event.name == "content_block_delta")
                out += event.data["delta"]["text"].get<std::string>();
        return out;
    }
    // Checks an error answer's shape and returns its message.
    std::string error_of(const FakeResponder& r, int status, std::string_view type) {
        EXPECT_EQ(r.head.status, status) << r.body;
        EXPECT_TRUE(r.finished);
        EXPECT_EQ(r.header("content-type"), "application/json");
        const json body = json::parse(r.body);
        EXPECT_EQ(body["type"], "error");
        EXPECT_EQ(body["error"]["type"], type);
        EXPECT_EQ(body["request_id"], r.header("request-id"));
        EXPECT_TRUE(r.header("request-id").starts_with("req_"));
        EXPECT_EQ(r.header("x-anthropic-trace-id").size(), 32U);
        EXPECT_EQ(r.head.content_length, static_cast<std::int64_t>(r.body.size()));
        return body["error"]["message"];
    }

    FakeLoop loop_;
    FakeEngine engine_{"m", 2 * kNsPerSec};
    FakeEngine other_{"org/name", kNsPerSec};
    FakePolicy policy_;
    ServiceOptions options_;
    bool draining_ = false, ready_ = true;
    std::unique_ptr<Service> service_;
    std::unique_ptr<FakeResponder> responder_;
    std::unique_ptr<wire::Exchange> exchange_;
};

}  // namespace zerohop::api
