#include "admit/head_decider.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "admit/token_endpoint.h"
#include "api/routes.h"
#include "auth/credential.h"
#include "auth/key_file.h"
#include "base/rfc3339.h"

namespace zerohop::admit {
namespace {

constexpr MonoNs kMono = 1000 * kNsPerSec;
constexpr WallNs kWall = 1'800'000'000 * kNsPerSec;  // 2027-01-15T08:00:00Z

class Decider : public ::testing::Test {
  protected:
    void SetUp() override {
        auth::random_bytes(content_.hash_key);
        auth::NewKey plain{.workspace = "team-a"};
        plain.limits = {.requests = 5, .input_tokens = 1000, .output_tokens = 600};
        plain_ = make(plain);
        auth::NewKey boss{.workspace = "ops", .priority_max = Priority::kHigh, .lanes = {"*"}};
        boss.admin = true;
        boss_ = make(boss);
        auth::NewKey narrow{.workspace = "team-a", .models = {"small"}, .lanes = {"batch"}};
        narrow.priority_max = Priority::kLow;
        narrow_ = make(narrow);

        config_.region = "eu";
        config_.regions = {{.name = "us", .location = "https://us.example"}, {.name = "asia"}};
        config_.models = {{.id = "big",
                           .aliases = {"latest"},
                           .context_tokens = 8192,
                           .kv_reserve_tokens = 512,
                           .gauge = std::make_shared<sched::QueueGauge>()},
                          {.id = "small", .context_tokens = 2048}};
        config_.workspaces["team-a"].limits = {.requests = 100};
        build();
    }
    auth::KeyWithSecret make(const auth::NewKey& wanted) {
        return *auth::create_key(content_, wanted, kWall);
    }
    std::shared_ptr<const auth::KeySnapshot> snapshot() {
        return std::make_shared<const auth::KeySnapshot>(content_);
    }
    void build() {
        decider_ = std::make_unique<HeadDecider>(
            snapshot(), *Topology::make(config_),
            HeadDecider::Clocks{.mono = [this] { return mono_.load(); },
                                .wall = [this] { return wall_.load(); }});
    }
    static wire::RequestHead head(std::string_view secret, std::vector<wire::Header> more = {},
                                  std::string target = "/v1/messages") {
        wire::RequestHead h;
        const bool reads =
            target == "/v1/topology" || target == "/v1/models" || target.starts_with("/v1/cache");
        h.method = reads ? "GET" : "POST";
        h.target = std::move(target);
        h.authority = "localhost:8080";
        h.content_length = 400;
        h.headers = {{"host", "localhost"}, {"anthropic-version", "2023-06-01"}};
        if (!secret.empty()) h.headers.push_back({"x-api-key", std::string(secret)});
        for (auto& m : more) h.headers.push_back(std::move(m));
        return h;
    }
    Result<api::HeadDecision> decide(const wire::RequestHead& h) {
        return decider_->decide(h, api::match_route(h.path(), h.method).value().asks);
    }
    Error refused(const wire::RequestHead& h) {
        auto got = decide(h);
        EXPECT_FALSE(got);
        return got ? Error{} : got.error();
    }
    api::HeadDecision allowed(const wire::RequestHead& h) {
        auto got = decide(h);
        EXPECT_TRUE(got) << got.error().detail;
        return got ? std::move(*got) : api::HeadDecision{};
    }
    static std::string value(const std::vector<wire::Header>& headers, std::string_view name) {
        for (const auto& h : headers)
            if (h.name == name) return h.value;
        return "";
    }
    static std::string value(const Error& error, std::string_view name) {
        for (const auto& [n, v] : error.headers)
            if (n == name) return v;
        return "";
    }
    std::string token_for(const auth::KeyWithSecret& key, std::string_view body = "") {
        auto decision = allowed(head(key.secret, {}, "/v1/auth/token"));
        const auto answer =
            answer_token_request(*admission_of(decision.admission.get()), body, wall_);
        EXPECT_TRUE(answer) << answer.error().detail;
        return nlohmann::json::parse(*answer)["access_token"];
    }

    auth::KeySnapshot::Content content_;
    auth::KeyWithSecret plain_, boss_, narrow_;
    TopologyConfig config_;
    std::atomic<MonoNs> mono_{kMono};
    std::atomic<WallNs> wall_{kWall};
    std::unique_ptr<HeadDecider> decider_;
};

TEST_F(Decider, NamesWhoAsks) {
    auto d = allowed(head(plain_.secret));
    EXPECT_EQ(d.principal.workspace, "team-a");
    EXPECT_EQ(d.principal.key_id, plain_.record.id);
    EXPECT_FALSE(d.principal.admin);
    d = allowed(head("", {{"authorization", "Bearer " + boss_.secret}}));
    EXPECT_EQ(d.principal.key_id, boss_.record.id);
    EXPECT_TRUE(d.principal.admin);
}

TEST_F(Decider, RefusesStrangersBeforeAnythingElse) {
    const std::vector<wire::Header> nonsense = {{"x-anthropic-rate-hint", "tokens=x"}};
    EXPECT_EQ(refused(head("", nonsense)).code, Code::kAuthentication);
    EXPECT_EQ(refused(head("zh_wrong", nonsense)).code, Code::kAuthentication);
    EXPECT_EQ(refused(head(plain_.secret, {{"x-api-key", boss_.secret}})).code,
              Code::kAuthentication);
    EXPECT_EQ(refused(head(plain_.secret, nonsense)).code, Code::kInvalidRequest);
}

TEST_F(Decider, WithoutKeysEverybodyIsAnonymous) {
    content_.keys.clear();
    build();
    EXPECT_TRUE(decider_->anonymous());
    const auto d = allowed(head("", {{"x-anthropic-cuda-stream", "low-latency"},
                                     {"x-anthropic-rate-hint", "priority=high"}}));
    EXPECT_EQ(d.principal.key_id, "");
    EXPECT_EQ(d.principal.workspace, "default");
    EXPECT_TRUE(d.response_headers.empty());
}

// DNS rebinding: any page can give a name of its own this machine's address.
TEST_F(Decider, WithoutKeysOnlyNamesOfThisMachineAreAnswered) {
    content_.keys.clear();
    config_.server_names = {"llm.home.arpa"};
    build();
    for (const char* path :
         {"/v1/messages", "/v1/messages/count_tokens", "/v1/cache/warmup", "/v1/cache",
          "/v1/cache/0-7", "/v1/models", "/v1/topology", "/v1/config/reload", "/v1/auth/token"}) {
        auto h = head("", {}, path);
        for (const char* ours : {"localhost", "127.0.0.1:8080", "[::1]:1", "LLM.home.arpa:443"}) {
            h.authority = ours;
            allowed(h);
        }
        for (const char* other : {"evil.example:8080", "0.0.0.0:8080", "localhost.evil.example"}) {
            h.authority = other;
            const Error e = refused(h);
            EXPECT_EQ(e.code, Code::kMisdirected) << path;
            EXPECT_NE(e.detail.find("server.names"), std::string::npos) << e.detail;
        }
    }
    auto h = head("");
    h.authority = "evil.example";
    h.peer = "unix";
    allowed(h);
    SetUp();  // keys: who has one may call the server what they like
    h = head(plain_.secret);
    h.authority = "evil.example";
    allowed(h);
}

TEST_F(Decider, TheCredentialThatIsValidHereCounts) {
    const std::string token = token_for(plain_);
    const auto who = [&](const std::string& key, const std::string& bearer) {
        return allowed(head("", {{"x-api-key", key}, {"authorization", "Bearer " + bearer}}))
            .principal.key_id;
    };
    EXPECT_EQ(who("sk-another-services", boss_.secret), boss_.record.id);
    EXPECT_EQ(who(boss_.secret, "another-services"), boss_.record.id);
    EXPECT_EQ(who("sk-another-services", token), plain_.record.id);
    EXPECT_EQ(who("v4.local.another", boss_.secret), boss_.record.id);
    EXPECT_EQ(who(plain_.secret, boss_.secret), plain_.record.id);  // both: x-api-key
    EXPECT_EQ(who(token, boss_.secret), plain_.record.id);
    const auto both_bad = [&](const std::string& key, const std::string& bearer) {
        return refused(head("", {{"x-api-key", key}, {"authorization", "Bearer " + bearer}}));
    };
    EXPECT_FALSE(both_bad("sk-other", "another").retry_after_ms);
    wall_ = kWall + 301 * kNsPerSec;
    EXPECT_EQ(both_bad("sk-other", token).detail, auth::expired_token().detail);
    EXPECT_EQ(both_bad(token, "sk-other").detail, auth::expired_token().detail);
}

TEST_F(Decider, AnyModelNameWorksForThoseWhoWantIt) {
    config_.models[0].aliases = {"claude-*"};
    config_.models[1].fallback = true;
    decider_->install(snapshot(), *Topology::make(config_));
    const auto model = [&](const auth::KeyWithSecret& key, const char* hint, const char* body) {
        auto d = allowed(head(key.secret, {{"x-anthropic-early-hint", hint}}));
        const auto chosen = admission_of(d.admission.get())->choose_model(body);
        return chosen ? (*chosen)->id : chosen.error().detail;
    };
    EXPECT_EQ(model(plain_, "model=claude-x", "CLAUDE-y"), "big");
    EXPECT_EQ(model(plain_, "model=gpt-4o", "o3"), "small");
    EXPECT_EQ(model(plain_, "", "gpt-4o"), "small");
    EXPECT_NE(model(plain_, "model=claude-x", "gpt-4o").find("is not the model of"),
              std::string::npos);
    EXPECT_EQ(refused(head(narrow_.secret, {{"x-anthropic-early-hint", "model=claude-x"}})).code,
              Code::kPermission);
    // Scopes are over models, whatever name was asked for.
    auto d = allowed(head(plain_.secret, {}, "/v1/auth/token"));
    const auto claims = [&](const char* wish) {
        const auto answer = answer_token_request(*admission_of(d.admission.get()), wish, wall_);
        return answer ? nlohmann::json::parse(*answer)["claims"]["model_scope"].dump()
                      : answer.error().detail;
    };
    EXPECT_EQ(claims(R"({"model_scope":["claude-x","claude-y","BIG"]})"), R"(["big"])");
    EXPECT_EQ(claims(R"({"model_scope":["gpt-4o"]})"), R"(["small"])");
    // A key of a name that nobody has is no key of the fallback.
    const auth::KeyWithSecret gone = make({.workspace = "g", .models = {"gone"}});
    const auth::KeyWithSecret alias = make({.workspace = "g", .models = {"claude-sonnet-4"}});
    decider_->install(snapshot(), *Topology::make(config_));
    auto by_gone = allowed(head(gone.secret));
    HeadAdmission* a = admission_of(by_gone.admission.get());
    EXPECT_EQ(a->choose_model("gone").error().code, Code::kPermission);
    EXPECT_FALSE(a->may_use("small"));
    EXPECT_EQ(model(alias, "model=claude-other", "big"), "big");
    auto by_token = allowed(head(token_for(alias)));
    EXPECT_TRUE(admission_of(by_token.admission.get())->may_use("big"));
    EXPECT_FALSE(admission_of(by_token.admission.get())->may_use("small"));
    auto nothing = allowed(head(token_for(gone)));
    EXPECT_FALSE(admission_of(nothing.admission.get())->may_use("small"));
}

TEST_F(Decider, HintChoosesInstanceLaneAndPriority) {
    const auto d =
        allowed(head(boss_.secret, {{"x-zerohop-early-hint", "model=LATEST;region=EU"},
                                    {"x-anthropic-rate-hint", "tokens=700;priority=high"},
                                    {"x-anthropic-cuda-stream", "Low-Latency"},
                                    {"x-anthropic-debug", "skeleton"},
                                    {"x-anthropic-stream-buffering", "off"}}));
    const HeadAdmission* a = admission_of(d.admission.get());
    ASSERT_NE(a, nullptr);
    EXPECT_EQ(a->model()->id, "big");
    EXPECT_EQ(a->topology().lanes()[a->lane()].name, "low-latency");
    EXPECT_EQ(a->priority(), Priority::kHigh);
    EXPECT_EQ(a->expected_output(), 700);
    EXPECT_TRUE(a->skeleton());
    EXPECT_EQ(a->buffering(), false);
    EXPECT_TRUE(a->has_soft_reservation());
    EXPECT_EQ(decider_->soft_kv_tokens("big"), 400 / 4 + 700);
}

TEST_F(Decider, DefaultsAndCapsOfTheKey) {
    auto d = allowed(head(plain_.secret));
    HeadAdmission* a = admission_of(d.admission.get());
    EXPECT_EQ(a->priority(), Priority::kNormal);
    EXPECT_EQ(a->topology().lanes()[a->lane()].name, "default");
    EXPECT_EQ(a->model(), nullptr);
    EXPECT_FALSE(a->has_soft_reservation());
    d = allowed(head(narrow_.secret));
    a = admission_of(d.admission.get());
    EXPECT_EQ(a->priority(), Priority::kLow);
    EXPECT_EQ(a->topology().lanes()[a->lane()].name, "batch");
    EXPECT_EQ(refused(head(plain_.secret, {{"x-anthropic-rate-hint", "priority=high"}})).code,
              Code::kPermission);
    const Error lane = refused(head(plain_.secret, {{"x-anthropic-cuda-stream", "low-latency"}}));
    EXPECT_EQ(lane.code, Code::kPermission);
    EXPECT_NE(lane.detail.find("its lanes: default, batch"), std::string::npos) << lane.detail;
}

TEST_F(Decider, UnknownNamesSayWhatThereIs) {
    const Error lane = refused(head(plain_.secret, {{"x-anthropic-cuda-stream", "fast"}}));
    EXPECT_EQ(lane.code, Code::kInvalidRequest);
    EXPECT_NE(lane.detail.find("lanes: default, low-latency, batch"), std::string::npos);
    for (const char* bad : {"a b", "l\xc3\xa4ne", "\"low\""}) {
        const Error odd = refused(head(plain_.secret, {{"x-anthropic-cuda-stream", bad}}));
        EXPECT_EQ(odd.code, Code::kInvalidRequest);
        EXPECT_NE(odd.detail.find("\"; lanes: default, low-latency, batch"), std::string::npos)
            << bad;
        EXPECT_TRUE(std::ranges::all_of(odd.detail, [](char c) { return c >= 0x20 && c < 0x7f; }));
    }
    const Error model = refused(head(plain_.secret, {{"x-anthropic-early-hint", "model=nope"}}));
    EXPECT_EQ(model.code, Code::kNotFound);
    EXPECT_EQ(model.detail, "model \"nope\" is not served here; there are: big, small");
    const Error narrow = refused(head(narrow_.secret, {{"x-anthropic-early-hint", "model=nope"}}));
    EXPECT_EQ(narrow.detail, "model \"nope\" is not served here; there is: small");
    EXPECT_EQ(refused(head(narrow_.secret, {{"x-anthropic-early-hint", "model=big"}})).code,
              Code::kPermission);
}

TEST_F(Decider, AnotherRegionIs421WithItsLocationWhereKnown) {
    // The model may well exist there: the region is looked at first.
    Error e = refused(head(plain_.secret, {{"x-anthropic-early-hint", "model=nope;region=US"}},
                           "/v1/messages?beta=true"));
    EXPECT_EQ(e.code, Code::kMisdirected);
    EXPECT_EQ(value(e, "location"), "https://us.example/v1/messages?beta=true");
    e = refused(head(plain_.secret, {{"x-anthropic-early-hint", "region=asia"}}));
    EXPECT_EQ(e.code, Code::kMisdirected);
    EXPECT_EQ(value(e, "location"), "");
    e = refused(head(plain_.secret, {{"x-anthropic-early-hint", "region=mars"}}));
    EXPECT_EQ(e.code, Code::kMisdirected);
    EXPECT_EQ(e.detail, "region \"mars\" is not known here; this is region \"eu\"");
}

TEST_F(Decider, BodyModelMustAgreeWithTheHint) {
    auto d = allowed(head(plain_.secret, {{"x-anthropic-early-hint", "model=latest"}}));
    HeadAdmission* a = admission_of(d.admission.get());
    EXPECT_EQ((*a->choose_model("BIG"))->id, "big");
    EXPECT_EQ(a->choose_model("small").error().code, Code::kInvalidRequest);
    EXPECT_EQ(a->choose_model("nope").error().code, Code::kNotFound);
    d = allowed(head(narrow_.secret));
    a = admission_of(d.admission.get());
    EXPECT_EQ(a->choose_model("big").error().code, Code::kPermission);
    EXPECT_EQ((*a->choose_model("small"))->id, "small");
    EXPECT_EQ(a->model()->id, "small");
}

TEST_F(Decider, TooLargeBodyLeavesAtTheHead) {
    wire::RequestHead h = head(plain_.secret);
    h.content_length = (32LL << 20) + 1;
    EXPECT_EQ(refused(h).code, Code::kTooLarge);
    h.content_length = 32LL << 20;
    allowed(h);
}

TEST_F(Decider, RequestQuotaAndItsHeaders) {
    for (int left = 4; left >= 0; --left) {
        const auto d = allowed(head(plain_.secret));
        EXPECT_EQ(value(d.response_headers, "anthropic-ratelimit-requests-limit"), "5");
        EXPECT_EQ(value(d.response_headers, "anthropic-ratelimit-requests-remaining"),
                  std::to_string(left));
        EXPECT_EQ(value(d.response_headers, "anthropic-ratelimit-requests-reset"),
                  format_rfc3339(kWall + 12 * (5 - left) * kNsPerSec));
        EXPECT_EQ(value(d.response_headers, "anthropic-ratelimit-input-tokens-remaining"), "1000");
        EXPECT_EQ(value(d.response_headers, "anthropic-ratelimit-tokens-remaining"), "600");
        EXPECT_EQ(value(d.response_headers, "anthropic-ratelimit-tokens-reset"),
                  "2027-01-15T08:00:00Z");
    }
    const Error e = refused(head(plain_.secret));
    EXPECT_EQ(e.code, Code::kRateLimited);
    EXPECT_EQ(e.detail, "key " + plain_.record.id +
                            ": the limit of 5 requests per minute is reached; try again in 12 s");
    EXPECT_EQ(e.retry_after_ms, 12'000);
    EXPECT_EQ(value(e, "anthropic-ratelimit-requests-remaining"), "0");
    // Counting and looking up have the same limit for themselves.
    for (const char* apart : {"/v1/models", "/v1/messages/count_tokens"}) {
        for (int left = 4; left >= 0; --left)
            EXPECT_EQ(value(allowed(head(plain_.secret, {}, apart)).response_headers,
                            "anthropic-ratelimit-requests-remaining"),
                      std::to_string(left));
        EXPECT_EQ(refused(head(plain_.secret, {}, apart)).code, Code::kRateLimited);
    }
    mono_ = kMono + 12 * kNsPerSec;
    allowed(head(plain_.secret));
    EXPECT_EQ(refused(head(plain_.secret)).code, Code::kRateLimited);
}

TEST_F(Decider, TokensAreChargedAtAdmissionAndSettled) {
    auto d = allowed(head(plain_.secret, {{"x-anthropic-rate-hint", "tokens=500"}}));
    HeadAdmission* a = admission_of(d.admission.get());
    const auto price = a->admit(300, 10'000, mono_, wall_);
    ASSERT_TRUE(price);
    EXPECT_EQ(price->input_tokens, 300);
    EXPECT_EQ(price->output_tokens, 500);
    const auto remaining = [&](const char* kind) {
        std::vector<wire::Header> headers;
        a->append_rate_limits(mono_, wall_, headers);
        return value(headers, std::string("anthropic-ratelimit-") + kind + "-remaining");
    };
    EXPECT_EQ(remaining("input-tokens"), "700");
    EXPECT_EQ(remaining("output-tokens"), "100");
    // A second one does not fit beside it.
    auto d2 = allowed(head(plain_.secret, {{"x-anthropic-rate-hint", "tokens=256"}}));
    HeadAdmission* b = admission_of(d2.admission.get());
    const auto refusal = b->admit(100, 10'000, mono_, wall_);
    ASSERT_FALSE(refusal);
    EXPECT_EQ(refusal.error().code, Code::kRateLimited);
    EXPECT_NE(refusal.error().detail.find("600 output tokens per minute"), std::string::npos);
    // Cancelled after 40 tokens: pays for those.
    a->settle({.input_tokens = 300, .output_tokens = 40}, false, mono_);
    a->settle({.input_tokens = 300, .output_tokens = 400}, false, mono_);  // once only
    EXPECT_EQ(remaining("input-tokens"), "700");
    EXPECT_EQ(remaining("output-tokens"), "560");
    ASSERT_TRUE(b->admit(100, 10'000, mono_, wall_));
    b->settle({}, false, mono_);  // never ran
    EXPECT_EQ(remaining("input-tokens"), "700");
    EXPECT_EQ(remaining("output-tokens"), "560");
}

TEST_F(Decider, AbandonedAdmissionGivesItsOutputBack) {
    {
        auto d = allowed(head(plain_.secret, {{"x-anthropic-rate-hint", "tokens=500"}}));
        ASSERT_TRUE(admission_of(d.admission.get())->admit(100, 10'000, mono_, wall_));
    }
    const auto d = allowed(head(plain_.secret));
    EXPECT_EQ(value(d.response_headers, "anthropic-ratelimit-input-tokens-remaining"), "900");
    EXPECT_EQ(value(d.response_headers, "anthropic-ratelimit-output-tokens-remaining"), "600");
}

// FAULTS' small quota: what nobody knows of an answer's length takes no more than there is.
TEST_F(Decider, ASmallOutputQuotaIsUsedUp) {
    const auth::KeyWithSecret key =
        make({.workspace = "o", .limits = {.requests = 100, .output_tokens = 200}});
    decider_->install(snapshot(), *Topology::make(config_));
    const auto ask = [&](std::int32_t max_output, std::int32_t used) {
        auto d = allowed(head(key.secret));
        HeadAdmission* a = admission_of(d.admission.get());
        const bool good = a->admit(1, max_output, mono_, wall_).has_value();
        if (good) a->settle({.input_tokens = 1, .output_tokens = used}, true, mono_);
        return good;
    };
    for (int i = 0; i < 20; ++i) EXPECT_TRUE(ask(4096, 5)) << i;
    // 100 remain, and what answers are long is known by now; a few tokens are charged.
    auto d = allowed(head(key.secret));
    HeadAdmission* a = admission_of(d.admission.get());
    EXPECT_TRUE(a->admit(1, 4096, mono_, wall_));
    EXPECT_TRUE(ask(4096, 90));
    EXPECT_TRUE(ask(5, 5));  // the last five
    EXPECT_EQ(refused(head(key.secret)).code, Code::kRateLimited);
}

TEST_F(Decider, WhatTheCacheGaveIsNoInput) {
    const std::vector<wire::Header> hint = {{"x-anthropic-rate-hint", "tokens=1"}};
    const auto left_after = [&] {
        auto d = allowed(head(plain_.secret, hint));
        HeadAdmission* a = admission_of(d.admission.get());
        EXPECT_TRUE(a->admit(300, 1, mono_, wall_));
        a->settle({.input_tokens = 300, .cache_read_tokens = 290, .output_tokens = 1}, true, mono_);
        std::vector<wire::Header> headers;
        a->append_rate_limits(mono_, wall_, headers);
        return value(headers, "anthropic-ratelimit-input-tokens-remaining");
    };
    EXPECT_EQ(left_after(), "990");
    config_.count_cache_reads = true;
    decider_->install(snapshot(), *Topology::make(config_));
    EXPECT_EQ(left_after(), "690");
}

TEST_F(Decider, RefusedForWhatItSaysCostsNoRequest) {
    for (const char* path : {"/v1/messages", "/v1/messages/count_tokens", "/v1/auth/token"})
        for (int i = 0; i < 20; ++i) {
            auto d = allowed(head(plain_.secret, {}, path));
            d.admission->refund_request(mono_);
            d.admission->refund_request(mono_);  // once only
        }
    EXPECT_EQ(value(allowed(head(plain_.secret)).response_headers,
                    "anthropic-ratelimit-requests-remaining"),
              "4");
}

TEST_F(Decider, DeletionsAreBoundedWithoutAnyLimit) {
    const auth::KeyWithSecret key = make({.workspace = "free"});
    const auth::KeyWithSecret other = make({.workspace = "free2"});
    decider_->install(snapshot(), *Topology::make(config_));
    const auto deletes = [&](const auth::KeyWithSecret& who) {
        auto h = head(who.secret, {}, "/v1/cache");
        h.method = "DELETE";
        return decide(h).has_value();
    };
    for (int i = 0; i < WorkspaceState::kDeletesPerMinute; ++i) ASSERT_TRUE(deletes(key));
    EXPECT_FALSE(deletes(key));
    EXPECT_TRUE(deletes(other));
    for (int i = 0; i < 2000; ++i) allowed(head(key.secret, {}, "/v1/cache"));
    mono_ += kNsPerSec / 10;
    EXPECT_TRUE(deletes(key));
}

TEST_F(Decider, UnderdeclaredHintGainsNothing) {
    auto d = allowed(head(boss_.secret, {{"x-anthropic-rate-hint", "tokens=1"}}));
    HeadAdmission* a = admission_of(d.admission.get());
    EXPECT_EQ(a->expected_output(), LengthLearner::kPrior);
    for (int i = 0; i < 20; ++i) {
        ASSERT_TRUE(a->admit(1, 100'000, mono_, wall_));
        a->settle({.input_tokens = 1, .output_tokens = 4000}, true, mono_);
    }
    EXPECT_GE(a->expected_output(), 4000);
    EXPECT_EQ(a->admit(1, 10, mono_, wall_)->output_tokens, 10);  // never more than max_tokens
}

TEST_F(Decider, ErasedPromptsLeaveNoExpectations) {
    const std::array<StructureKey, 3> structure = {StructureKey{.lo = 1, .hi = 1}};
    const auto expected = [&](const auth::KeyWithSecret& who) {
        auto d = allowed(head(who.secret));
        d.admission->on_structure(structure);
        return admission_of(d.admission.get())->expected_output();
    };
    auto d = allowed(head(boss_.secret));
    d.admission->on_structure(structure);
    for (int i = 0; i < 20; ++i) {
        ASSERT_TRUE(admission_of(d.admission.get())->admit(1, 100'000, mono_, wall_));
        d.admission->settle({.input_tokens = 1, .output_tokens = 4000}, true, mono_);
    }
    const auth::KeyWithSecret sibling = make({.workspace = boss_.record.workspace});
    const auth::KeyWithSecret stranger = make({.workspace = "elsewhere"});
    decider_->install(snapshot(), *Topology::make(config_));
    EXPECT_GE(expected(sibling), 4000);  // learnt by the workspace
    EXPECT_EQ(expected(stranger), LengthLearner::kPrior);
    allowed(head(stranger.secret)).admission->forget_prompts();
    EXPECT_GE(expected(sibling), 4000);
    allowed(head(sibling.secret)).admission->forget_prompts();
    EXPECT_EQ(expected(sibling), LengthLearner::kPrior);
}

TEST_F(Decider, HugeRequestsAreRefusedForGoodOrAdmittedAlone) {
    auto d = allowed(head(plain_.secret, {{"x-anthropic-rate-hint", "tokens=30000"}}));
    HeadAdmission* a = admission_of(d.admission.get());
    const auto refusal = a->admit(1001, 10, mono_, wall_);
    ASSERT_FALSE(refusal);
    EXPECT_EQ(value(refusal.error(), "x-should-retry"), "false");
    EXPECT_FALSE(refusal.error().retry_after_ms);
    // An answer longer than a minute's quota runs when the quota is untouched, and owes the rest.
    const auto price = a->admit(10, 32'000, mono_, wall_);
    ASSERT_TRUE(price);
    EXPECT_EQ(price->output_tokens, 30'000);
    a->settle({.input_tokens = 10, .output_tokens = 900}, true, mono_);
    const auto owing = refused(head(plain_.secret));
    EXPECT_EQ(owing.code, Code::kRateLimited);
    EXPECT_NE(owing.detail.find("output tokens"), std::string::npos);
}

TEST_F(Decider, FullQueueIs529AtTheHeadAndCostsNothing) {
    sched::QueueGauge& gauge = *config_.models[0].gauge;
    gauge.lanes[0].full = true;
    gauge.lanes[0].retry_after_ms = 2500;
    const std::vector<wire::Header> hint = {{"x-anthropic-early-hint", "model=big"}};
    const Error e = refused(head(plain_.secret, hint));
    EXPECT_EQ(e.code, Code::kOverloaded);
    EXPECT_EQ(e.retry_after_ms, 2500);
    allowed(head(plain_.secret, hint, "/v1/messages/count_tokens"));  // is never queued
    auto other_lane = hint;
    other_lane.push_back({"x-anthropic-cuda-stream", "low-latency"});
    allowed(head(boss_.secret, other_lane));  // has a queue of its own
    gauge.lanes[0].full = false;
    const auto d = allowed(head(plain_.secret, hint));
    EXPECT_EQ(value(d.response_headers, "anthropic-ratelimit-requests-remaining"), "4");
}

TEST_F(Decider, HighPriorityIsRefusedRatherThanLate) {
    sched::QueueGauge& gauge = *config_.models[0].gauge;
    gauge.lanes[1].high_start_ms = 151;
    std::vector<wire::Header> headers = {{"x-anthropic-early-hint", "model=big"},
                                         {"x-anthropic-cuda-stream", "low-latency"},
                                         {"x-anthropic-rate-hint", "priority=high"}};
    const Error e = refused(head(boss_.secret, headers));
    EXPECT_EQ(e.code, Code::kRateLimited);
    EXPECT_NE(e.detail.find("within 150 ms"), std::string::npos) << e.detail;
    EXPECT_NE(e.detail.find("after 151 ms"), std::string::npos) << e.detail;
    EXPECT_EQ(e.retry_after_ms, 151);
    gauge.lanes[1].high_start_ms = 150;
    allowed(head(boss_.secret, headers));
    gauge.lanes[1].high_start_ms = 151;
    allowed(head(boss_.secret, headers, "/v1/messages/count_tokens"));
    auto other_lane = headers;
    other_lane[1].value = "batch";  // promises nothing
    allowed(head(boss_.secret, other_lane));
    headers[2].value = "priority=normal";
    allowed(head(boss_.secret, headers));
}

// What of a prompt is cached only the engine knows: it refuses for the prompt, the head for the
// wait.
TEST_F(Decider, APromptMayBeCachedWhereTheEngineKeepsPromises) {
    sched::QueueGauge& gauge = *config_.models[0].gauge;
    gauge.engine_keeps_promises = true;
    gauge.prefill_token_ns = 1e6;
    std::vector<wire::Header> headers = {{"x-anthropic-early-hint", "model=big"},
                                         {"x-anthropic-cuda-stream", "low-latency"},
                                         {"x-anthropic-rate-hint", "priority=high"}};
    auto d = allowed(head(boss_.secret, headers));
    HeadAdmission* a = admission_of(d.admission.get());
    EXPECT_EQ(a->terms().promise.lane, "low-latency");
    EXPECT_EQ(a->terms().promise.within_ms, 150U);
    EXPECT_TRUE(a->admit(1000, 10, mono_, wall_));
    gauge.lanes[1].high_start_ms = 151;
    EXPECT_EQ(refused(head(boss_.secret, headers)).code, Code::kRateLimited);
    gauge.lanes[1].high_start_ms = 0;
    headers[2].value = "priority=normal";
    d = allowed(head(boss_.secret, headers));
    EXPECT_EQ(admission_of(d.admission.get())->terms().promise.within_ms, 0U);
}

TEST_F(Decider, AHighPromptThatWouldTakeTooLongIsRefused) {
    sched::QueueGauge& gauge = *config_.models[0].gauge;
    gauge.prefill_token_ns = 1e6;
    gauge.lanes[1].high_start_ms = 40;
    const std::vector<wire::Header> lane = {{"x-anthropic-cuda-stream", "low-latency"},
                                            {"x-anthropic-rate-hint", "priority=high"}};
    // Without a hint the model is known from the body on: 40 ms + at least 400 / 8 tokens.
    auto d = allowed(head(boss_.secret, lane));
    HeadAdmission* a = admission_of(d.admission.get());
    ASSERT_TRUE(a->choose_model("big"));
    // Its own place in the queue must not count against it once it is there.
    gauge.lanes[1].high_start_ms = 140;
    EXPECT_TRUE(a->admit(110, 10, mono_, wall_));
    gauge.lanes[1].high_start_ms = 40;
    d = allowed(head(boss_.secret, lane));
    a = admission_of(d.admission.get());
    ASSERT_TRUE(a->choose_model("big"));
    const auto late = a->admit(111, 10, mono_, wall_);
    ASSERT_FALSE(late);
    EXPECT_EQ(late.error().code, Code::kRateLimited);
    EXPECT_NE(late.error().detail.find("40 ms until it starts, 111 ms for its prompt"),
              std::string::npos)
        << late.error().detail;
    EXPECT_EQ(late.error().retry_after_ms, 40);
    const auto never = a->admit(151, 10, mono_, wall_);
    EXPECT_EQ(value(never.error(), "x-should-retry"), "false");
    // Longer than any text of 150 tokens: refused before the body is parsed.
    wire::RequestHead big = head(boss_.secret, lane);
    big.headers.push_back({"x-anthropic-early-hint", "model=big"});
    big.content_length = 8 * 111;
    EXPECT_EQ(refused(big).code, Code::kRateLimited);
    big.content_length = 8 * 110;
    allowed(big);
}

TEST_F(Decider, SoftReservationsAreBoundedLapseAndEnd) {
    config_.soft_kv_per_key = 1000;
    build();
    const std::vector<wire::Header> hint = {{"x-anthropic-early-hint", "model=big"},
                                            {"x-anthropic-rate-hint", "tokens=400"}};
    auto first = allowed(head(boss_.secret, hint));
    auto second = allowed(head(boss_.secret, hint));
    auto third = allowed(head(boss_.secret, hint));  // beyond the bound: goes on without
    EXPECT_EQ(decider_->soft_kv_tokens("big"), 1000);
    EXPECT_EQ(config_.models[0].gauge->soft_kv_tokens, 1000);  // where the engine reads it
    EXPECT_FALSE(admission_of(third.admission.get())->has_soft_reservation());
    admission_of(first.admission.get())->on_body_bytes(kMono + kNsPerSec);
    decider_->sweep(kMono + 2 * kNsPerSec);
    EXPECT_EQ(decider_->soft_kv_tokens("big"), 500);  // the second lapsed
    ASSERT_TRUE(admission_of(first.admission.get())->admit(10, 10, mono_, wall_));
    EXPECT_EQ(decider_->soft_kv_tokens("big"), 0);
    wire::RequestHead unknown_size = head(boss_.secret, hint);
    unknown_size.content_length = -1;
    const auto fourth = allowed(unknown_size);
    EXPECT_EQ(decider_->soft_kv_tokens("big"), 512);
}

TEST_F(Decider, AdminRoutesNeedAnAdminKey) {
    EXPECT_EQ(refused(head(plain_.secret, {}, "/v1/topology")).code, Code::kPermission);
    EXPECT_EQ(refused(head(plain_.secret, {}, "/v1/config/reload")).code, Code::kPermission);
    EXPECT_TRUE(allowed(head(boss_.secret, {}, "/v1/config/reload")).principal.admin);
    auto d = allowed(head(boss_.secret, {}, "/v1/topology"));
    const auto doc =
        nlohmann::json::parse(topology_json(admission_of(d.admission.get())->topology()));
    EXPECT_EQ(doc["region"], "eu");
    EXPECT_EQ(doc["models"][0]["id"], "big");
    EXPECT_EQ(doc["models"][0]["aliases"][0], "latest");
    EXPECT_EQ(doc["lanes"].size(), 3U);
    EXPECT_EQ(doc["regions"][1]["location"], "https://us.example");
    EXPECT_EQ(doc["workspaces"]["team-a"]["requests_per_minute"], 100);
}

TEST_F(Decider, TokensNarrowTheirKey) {
    auto d = allowed(head(plain_.secret, {}, "/v1/auth/token"));
    const HeadAdmission& who = *admission_of(d.admission.get());
    const auto answer = answer_token_request(
        who,
        R"({"model_scope":["SMALL"],"region_hint":"EU","rate_limit_quota":{"requests":2,"input_tokens":5000}})",
        wall_);
    ASSERT_TRUE(answer) << answer.error().detail;
    const auto doc = nlohmann::json::parse(*answer);
    EXPECT_EQ(doc["token_type"], "Bearer");
    EXPECT_EQ(doc["expires_in"], 300);
    EXPECT_EQ(doc["expires_at"], kWall / kNsPerSec + 300);
    EXPECT_EQ(doc["claims"]["model_scope"], nlohmann::json::array({"small"}));
    EXPECT_EQ(doc["claims"]["region_hint"], "eu");
    EXPECT_EQ(doc["claims"]["rate_limit_quota"]["requests"], 2);
    EXPECT_EQ(doc["claims"]["rate_limit_quota"]["input_tokens"], 1000);  // never beyond the key's
    EXPECT_EQ(doc["claims"]["rate_limit_quota"]["output_tokens"], 600);

    const std::string bearer = "Bearer " + doc["access_token"].get<std::string>();
    auto used = allowed(head("", {{"authorization", bearer}}));
    EXPECT_EQ(used.principal.key_id, plain_.record.id);
    EXPECT_EQ(used.principal.workspace, "team-a");
    EXPECT_EQ(value(used.response_headers, "anthropic-ratelimit-requests-limit"), "2");
    HeadAdmission* a = admission_of(used.admission.get());
    EXPECT_TRUE(a->by_token());
    EXPECT_EQ(a->choose_model("big").error().code, Code::kPermission);
    EXPECT_TRUE(a->choose_model("small"));
    EXPECT_EQ(
        refused(head("", {{"authorization", bearer}, {"x-anthropic-early-hint", "model=big"}}))
            .code,
        Code::kPermission);
    // Its own bucket is the narrower one; the key's was drawn on too.
    allowed(head("", {{"authorization", bearer}}));
    const Error e = refused(head("", {{"authorization", bearer}}));
    EXPECT_EQ(e.code, Code::kRateLimited);
    EXPECT_EQ(e.detail.substr(0, 6), "token ");
    allowed(head(plain_.secret));
    allowed(head(plain_.secret));
    EXPECT_EQ(refused(head(plain_.secret)).code, Code::kRateLimited);
    // A token cannot renew itself.
    mono_ += 60 * kNsPerSec;
    auto renew = allowed(head("", {{"authorization", bearer}}, "/v1/auth/token"));
    EXPECT_EQ(issue_token(*admission_of(renew.admission.get()), {}, wall_).error().code,
              Code::kPermission);
}

TEST_F(Decider, ATokenCostsOneRequestOfItsKey) {
    const wire::RequestHead ask = head(plain_.secret, {}, "/v1/auth/token");
    for (int left = 4; left >= 0; --left)
        EXPECT_EQ(value(allowed(ask).response_headers, "anthropic-ratelimit-requests-remaining"),
                  std::to_string(left));
    const Error e = refused(ask);
    EXPECT_EQ(e.code, Code::kRateLimited);
    EXPECT_NE(e.detail.find("5 requests per minute"), std::string::npos) << e.detail;
    EXPECT_EQ(value(e, "anthropic-ratelimit-requests-remaining"), "0");
    EXPECT_EQ(refused(head(plain_.secret)).code, Code::kRateLimited);
    mono_ += 12 * kNsPerSec;
    allowed(ask);
}

TEST_F(Decider, ATokensRegionIsNotForTheHeadToChange) {
    const auto with = [this](const char* region, const char* hint) {
        const std::string body = std::string(R"({"region_hint":")") + region + "\"}";
        std::vector<wire::Header> more = {{"authorization", "Bearer " + token_for(boss_, body)}};
        if (*hint != 0) more.push_back({"x-anthropic-early-hint", hint});
        return head("", std::move(more));
    };
    EXPECT_EQ(refused(with("us", "")).code, Code::kMisdirected);
    EXPECT_EQ(refused(with("us", "region=US")).code, Code::kMisdirected);
    const Error e = refused(with("us", "region=eu"));
    EXPECT_EQ(e.code, Code::kPermission);
    EXPECT_EQ(e.detail,
              "the token is for region \"us\"; x-anthropic-early-hint asks for region \"eu\"");
    EXPECT_EQ(refused(with("eu", "region=us")).code, Code::kPermission);
    allowed(with("eu", ""));
    allowed(with("eu", "region=EU"));
    allowed(head("", {{"authorization", "Bearer " + token_for(boss_)},
                      {"x-anthropic-early-hint", "region=eu"}}));  // for anywhere
}

TEST_F(Decider, TokensAreNarrowedOnEveryRoute) {
    const std::string there = token_for(boss_, R"({"region_hint":"us"})");
    const std::string here = token_for(boss_, R"({"region_hint":"eu"})");
    const std::string small = token_for(boss_, R"({"model_scope":["small"]})");
    for (const char* path : {"/v1/messages", "/v1/messages/count_tokens", "/v1/cache/warmup",
                             "/v1/cache", "/v1/cache/0-7", "/v1/models", "/v1/models/big"})
        for (const char* method : {"GET", "DELETE", "POST"}) {
            auto h = head(there, {}, path);
            h.method = method;
            const Error e = refused(h);
            EXPECT_EQ(e.code, Code::kMisdirected) << method << path;
            EXPECT_EQ(value(e, "location"), "https://us.example" + std::string(path));
            h = head(small, {}, path);
            h.method = method;
            const auto d = allowed(h);
            EXPECT_FALSE(d.principal.admin);
            EXPECT_TRUE(d.admission->may_use("small"));
            EXPECT_FALSE(d.admission->may_use("big"));
            h = head(here, {{"x-anthropic-early-hint", "region=us"}}, path);
            h.method = method;
            EXPECT_EQ(refused(h).code, Code::kPermission);
        }
    // An admin is who has the key: its tokens are not, also those that narrow nothing.
    const std::string whole = token_for(boss_);
    EXPECT_FALSE(allowed(head(whole, {}, "/v1/cache")).principal.admin);
    for (const char* path : {"/v1/topology", "/v1/config/reload"}) {
        const Error e = refused(head(whole, {}, path));
        EXPECT_EQ(e.code, Code::kPermission);
        EXPECT_NE(e.detail.find("use the key itself"), std::string::npos) << e.detail;
        EXPECT_TRUE(allowed(head(boss_.secret, {}, path)).principal.admin);
    }
}

TEST_F(Decider, TokenWishesThatCannotBe) {
    auto d = allowed(head(narrow_.secret, {}, "/v1/auth/token"));
    const HeadAdmission& who = *admission_of(d.admission.get());
    const auto code = [&](std::string_view body) {
        const auto got = answer_token_request(who, body, wall_);
        return got ? Code::kCancelled : got.error().code;
    };
    EXPECT_EQ(code(""), Code::kCancelled);  // granted
    EXPECT_EQ(code(" {} "), Code::kCancelled);
    EXPECT_EQ(code(R"({"model_scope":null})"), Code::kCancelled);
    EXPECT_EQ(code(R"({"model_scope":["*"]})"), Code::kCancelled);
    EXPECT_EQ(code(R"({"model_scope":["big"]})"), Code::kPermission);
    EXPECT_EQ(code(R"({"model_scope":["nope"]})"), Code::kNotFound);
    for (const char* bad :
         {"x", "[]", "7", "{", R"({"model_scope":[]})",
          R"({"model_scope":["small"],"model_scope":["*"]})",
          R"({"rate_limit_quota":{"requests":1,"requests":9}})", R"({"model_scope":"small"})",
          R"({"model_scope":[1]})", R"({"region_hint":"mars"})", R"({"region_hint":1})",
          R"({"rate_limit_quota":1})", R"({"rate_limit_quota":{"requests":0}})",
          R"({"rate_limit_quota":{"requests":-1}})", R"({"rate_limit_quota":{"requests":1.5}})",
          R"({"rate_limit_quota":{"other":1}})", R"({"scope":["small"]})"})
        EXPECT_EQ(code(bad), Code::kInvalidRequest) << bad;
    EXPECT_EQ(code(std::string(100, '[')), Code::kInvalidRequest);
    EXPECT_EQ(code(std::string(70'000, ' ') + "{}x"), Code::kInvalidRequest);
}

TEST_F(Decider, TokensEndWithTimeAndWithTheirKey) {
    const std::string bearer = "Bearer " + token_for(boss_);
    const wire::RequestHead h = head("", {{"authorization", bearer}});
    auto running = allowed(h);
    wall_ = kWall + 299 * kNsPerSec;
    allowed(h);
    wall_ = kWall + 300 * kNsPerSec;
    Error e = refused(h);
    EXPECT_EQ(e.code, Code::kAuthentication);
    EXPECT_EQ(e.retry_after_ms, 1);
    wall_ = kWall;
    allowed(h);
    ASSERT_TRUE(auth::revoke_key(content_, boss_.record.id, kWall));
    decider_->install(snapshot(), *Topology::make(config_));
    e = refused(h);
    EXPECT_EQ(e.code, Code::kAuthentication);
    EXPECT_EQ(refused(head(boss_.secret)).code, Code::kAuthentication);
    // What runs goes on and is settled as usual.
    HeadAdmission* a = admission_of(running.admission.get());
    EXPECT_TRUE(a->choose_model("big"));
    EXPECT_TRUE(a->admit(10, 10, mono_, wall_));
    a->settle({.input_tokens = 10, .output_tokens = 5}, true, mono_);
}

TEST_F(Decider, ReloadKeepsQuotasAndRunningAdmissions) {
    auto before = allowed(head(plain_.secret, {{"x-anthropic-early-hint", "model=big"}}));
    config_.models[0].id = "bigger";
    config_.models[0].aliases = {"big"};
    decider_->install(snapshot(), *Topology::make(config_));
    const auto after = allowed(head(plain_.secret, {{"x-anthropic-early-hint", "model=big"}}));
    EXPECT_EQ(admission_of(after.admission.get())->model()->id, "bigger");
    EXPECT_EQ(value(after.response_headers, "anthropic-ratelimit-requests-remaining"), "3");
    HeadAdmission* old = admission_of(before.admission.get());
    EXPECT_EQ(old->model()->id, "big");
    EXPECT_TRUE(old->choose_model("big"));
}

// A burst of one's own, smaller than the limit (of a key) or larger (of a workspace): admitted =
// burst + ⌊Δt · rate⌋ to the request.
TEST_F(Decider, BurstsOfKeysAndWorkspacesAreExact) {
    const auth::KeyWithSecret even =
        make({.workspace = "even", .limits = {.requests = 601}, .burst = {.requests = 20}});
    const auth::KeyWithSecret wide = make({.workspace = "wide"});
    config_.workspaces["wide"] = {.limits = {.requests = 60}, .burst = {.requests = 90}};
    decider_->install(snapshot(), *Topology::make(config_));
    const auto admitted = [&](const auth::KeyWithSecret& key) {
        std::int64_t n = 0;
        while (decide(head(key.secret))) ++n;
        return n;
    };
    std::int64_t evens = 0, wides = 0;
    MonoNs elapsed = 0;
    for (int step = 0; step < 20; ++step) {
        evens += admitted(even);
        wides += admitted(wide);
        EXPECT_EQ(evens, 20 + elapsed * 601 / (60 * kNsPerSec)) << step;
        EXPECT_EQ(wides, 90 + elapsed * 60 / (60 * kNsPerSec)) << step;
        elapsed += 1'234'567'891;
        mono_ = kMono + elapsed;
    }
    // After a long pause the burst again, and no more.
    mono_ = kMono + 3600 * kNsPerSec;
    EXPECT_EQ(admitted(even), 20);
    EXPECT_EQ(admitted(wide), 90);
}

TEST_F(Decider, APromptBeyondTheBurstNeverFits) {
    const auth::KeyWithSecret key =
        make({.limits = {.input_tokens = 1000}, .burst = {.input_tokens = 100}});
    decider_->install(snapshot(), *Topology::make(config_));
    auto decision = allowed(head(key.secret));
    HeadAdmission& admission = *admission_of(decision.admission.get());
    ASSERT_TRUE(admission.choose_model("big"));
    const Status beyond = admission.charge(101, 1, mono_, wall_);
    ASSERT_FALSE(beyond);
    EXPECT_NE(beyond.error().detail.find("1000 per minute with a burst of 100"), std::string::npos)
        << beyond.error().detail;
    EXPECT_EQ(value(beyond.error(), "x-should-retry"), "false");
    EXPECT_TRUE(admission.charge(100, 1, mono_, wall_));
}

// The exactness of quotas, through the whole decision and while tables are swapped: 10,000 requests
// from several threads, keys and tokens mixed, against one key.
TEST_F(Decider, ExactUnderConcurrencyAndReloads) {
    auth::NewKey busy{.workspace = "busy"};
    busy.limits = {.requests = 601};
    const auth::KeyWithSecret key = make(busy);
    decider_->install(snapshot(), *Topology::make(config_));
    std::vector<std::string> credentials = {key.secret};
    constexpr std::int64_t kTokens = 3;  // a request each
    for (int i = 0; i < kTokens; ++i) credentials.push_back(token_for(key));
    std::atomic<std::int64_t> admitted{0}, limited{0}, other{0};
    std::atomic<bool> done{false};
    std::thread reloader([&] {
        while (!done) decider_->install(snapshot(), *Topology::make(config_));
    });
    constexpr int kThreads = 4, kWaves = 4, kEach = 625;  // 10,000
    MonoNs elapsed = 0;
    for (int wave = 0; wave < kWaves; ++wave) {
        std::vector<std::thread> threads;
        threads.reserve(kThreads);
        for (int t = 0; t < kThreads; ++t)
            threads.emplace_back([&, t] {
                for (int i = 0; i < kEach; ++i) {
                    const auto& credential = credentials[static_cast<std::size_t>(t + i) % 4];
                    const auto got = decide(head(credential));
                    if (got) {
                        ++admitted;
                    } else {
                        ++(got.error().code == Code::kRateLimited ? limited : other);
                    }
                }
            });
        for (std::thread& t : threads) t.join();
        EXPECT_EQ(kTokens + admitted, 601 + elapsed * 601 / (60 * kNsPerSec)) << wave;
        elapsed += 7'654'321'098;
        mono_ = kMono + elapsed;
    }
    done = true;
    reloader.join();
    EXPECT_EQ(admitted + limited, kThreads * kWaves * kEach);
    EXPECT_EQ(other, 0);
}

TEST_F(Decider, ClockStepsBackwards) {
    const std::string bearer = "Bearer " + token_for(plain_);
    allowed(head("", {{"authorization", bearer}}));
    mono_ = kMono - 5 * kNsPerSec;
    wall_ = kWall - 20 * kNsPerSec;
    allowed(head("", {{"authorization", bearer}}));
    wall_ = kWall - 3600 * kNsPerSec;
    EXPECT_EQ(refused(head("", {{"authorization", bearer}})).code, Code::kAuthentication);
    allowed(head("", {{"authorization", "Bearer " + token_for(plain_)}}));
}

TEST(StateBook, TokenStatesAreSharedAndBounded) {
    StateBook book;
    auth::TokenClaims claims{.token_id = "a", .expires_ns = kWall + kNsPerSec};
    const auto first = book.token_state(claims, kWall);
    EXPECT_EQ(book.token_state(claims, kWall), first);
    claims.token_id = "b";
    claims.expires_ns = kWall + 10 * kNsPerSec;
    (void)book.token_state(claims, kWall + 2 * kNsPerSec);  // "a" has expired and is dropped
    claims.token_id = "a";
    EXPECT_NE(book.token_state(claims, kWall + 2 * kNsPerSec), first);
}

}  // namespace
}  // namespace zerohop::admit
