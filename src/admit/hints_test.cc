#include "admit/hints.h"

#include <gtest/gtest.h>

#include <string>

#include "admit/topology.h"

namespace zerohop::admit {
namespace {

using Headers = std::vector<wire::Header>;

Result<Hints> parse(const Headers& headers) {
    // Views point into the head, which must outlive the hints.
    static wire::RequestHead head;
    head.headers = headers;
    return parse_hints(scan_head(head));
}
std::string why(const Headers& headers) {
    const auto got = parse(headers);
    if (got) return "";
    EXPECT_EQ(got.error().code, Code::kInvalidRequest);
    return got.error().detail;
}

TEST(Hints, EveryHeaderUnderBothNames) {
    for (const std::string prefix : {"x-anthropic-", "x-zerohop-"}) {
        const auto got = parse({{prefix + "early-hint", "model=Org/Model:1;region=us-east-1"},
                                {prefix + "rate-hint", "tokens=128;priority=high"},
                                {prefix + "cuda-stream", "low-latency"},
                                {prefix + "debug", "skeleton"},
                                {prefix + "stream-buffering", "off"}});
        ASSERT_TRUE(got);
        EXPECT_EQ(got->model, "Org/Model:1");
        EXPECT_EQ(got->region, "us-east-1");
        EXPECT_EQ(got->tokens, 128);
        EXPECT_EQ(got->priority, Priority::kHigh);
        EXPECT_EQ(got->lane, "low-latency");
        EXPECT_TRUE(got->skeleton);
        EXPECT_EQ(got->buffering, false);
    }
}

TEST(Hints, SpacesCaseEmptyPairsAndUnknownKeysDoNotMatter) {
    const auto got =
        parse({{"x-anthropic-early-hint", " ; MODEL = m1 ;; future=\xff\x01;bare; Region\t=\tEU ;"},
               {"x-anthropic-rate-hint", "Priority=LOW;unknown=;tokens = 0"},
               {"x-anthropic-stream-buffering", " ON "}});
    ASSERT_TRUE(got);
    EXPECT_EQ(got->model, "m1");
    EXPECT_EQ(got->region, "EU");
    EXPECT_EQ(got->priority, Priority::kLow);
    EXPECT_EQ(got->tokens, 0);
    EXPECT_EQ(got->buffering, true);
}

TEST(Hints, EmptyHeadersAreAsGoodAsNone) {
    for (const char* name : {"early-hint", "rate-hint", "cuda-stream", "debug", "stream-buffering"})
        for (const char* value : {"", " ", "\t"})
            EXPECT_EQ(why({{std::string("x-anthropic-") + name, value}}), "") << name;
}

TEST(Hints, OverlongHeadersNeverFail) {
    for (const char* name :
         {"early-hint", "rate-hint", "cuda-stream", "debug", "stream-buffering"}) {
        const std::string header = std::string("x-anthropic-") + name;
        EXPECT_EQ(why({{header, std::string(257, ';')}}), "") << name;
        EXPECT_EQ(why({{header, "tokens=-1;model=;" + std::string(257, 'x')}}), "") << name;
    }
    EXPECT_EQ(why({{"x-anthropic-rate-hint", "tokens=x;" + std::string(247, ' ')}}),
              "x-anthropic-rate-hint: tokens: \"x\" is not valid: expected one whole number of "
              "output tokens");
    // An overlong alias does not contradict the other one either.
    const auto got = parse(
        {{"x-zerohop-rate-hint", std::string(300, 'x')}, {"x-anthropic-rate-hint", "tokens=5"}});
    ASSERT_TRUE(got);
    EXPECT_EQ(got->tokens, 5);
}

TEST(Hints, MalformedKnownValuesNameHeaderKeyAndValue) {
    EXPECT_EQ(why({{"x-anthropic-rate-hint", "tokens=many"}}),
              "x-anthropic-rate-hint: tokens: \"many\" is not valid: expected one whole number of "
              "output tokens");
    EXPECT_EQ(
        why({{"x-zerohop-rate-hint", "tokens=1;priority=urgent"}}),
        "x-zerohop-rate-hint: priority: \"urgent\" is not valid: expected one of high, normal, "
        "low");
    EXPECT_EQ(why({{"x-anthropic-early-hint", "model="}}),
              "x-anthropic-early-hint: model: \"\" is not valid: expected 1 to 128 printable ASCII "
              "characters, none of them a blank, a quote, a comma or \"=\"");
    EXPECT_EQ(why({{"x-anthropic-stream-buffering", "maybe"}}),
              "x-anthropic-stream-buffering: \"maybe\" is not valid: expected on or off");
    EXPECT_EQ(why({{"x-anthropic-debug", "everything"}}),
              "x-anthropic-debug: \"everything\" is not valid: expected skeleton");
    for (const char* bad : {"tokens=", "tokens", "tokens=-1", "tokens=+1", "tokens=1.5",
                            "tokens=0x10", "tokens=2147483648", "tokens=99999999999", "tokens=1 2",
                            "tokens=\xc3\xbc", "tokens=1;tokens=2", "priority=", "priority",
                            "priority=high;priority=low", "priority=h\xc3\xb6h"})
        EXPECT_NE(why({{"x-anthropic-rate-hint", bad}}), "") << bad;
    for (const char* bad : {"model=a b", "model=\xc3\xbc", "model", "region=", "model=a;model=b",
                            "model=a=b", "model=\"a\""})
        EXPECT_NE(why({{"x-anthropic-early-hint", bad}}), "") << bad;
    EXPECT_NE(why({{"x-anthropic-early-hint", "model=" + std::string(129, 'a')}}), "");
    EXPECT_EQ(why({{"x-anthropic-early-hint", "model=\"a\""}}),
              "x-anthropic-early-hint: model: \"?a?\" is not valid: expected 1 to 128 printable "
              "ASCII characters, none of them a blank, a quote, a comma or \"=\"");
    // What is shown of the value is printable.
    EXPECT_NE(why({{"x-anthropic-debug", "\x01\"\xff"}}).find("\"???\""), std::string::npos);
}

TEST(Hints, BothNamesMustAgree) {
    for (const char* name :
         {"early-hint", "rate-hint", "cuda-stream", "debug", "stream-buffering"}) {
        const std::string ours = std::string("x-zerohop-") + name;
        const std::string theirs = std::string("x-anthropic-") + name;
        EXPECT_NE(why({{ours, "a"}, {theirs, "b"}}).find("different things"), std::string::npos);
        EXPECT_NE(why({{ours, "a"}, {ours, "b"}}).find("different things"), std::string::npos);
        EXPECT_NE(why({{ours, ""}, {theirs, "b"}}), "");
    }
    EXPECT_EQ(why({{"x-zerohop-stream-buffering", "on"}, {"x-anthropic-stream-buffering", " ON"}}),
              "");
    EXPECT_EQ(why({{"x-anthropic-rate-hint", "tokens=1"}, {"x-anthropic-rate-hint", "tokens=1"}}),
              "");
    EXPECT_EQ(why({{"x-anthropic-early-hint", "model=a;model=A"}}), "");
}

TEST(Hints, CredentialsAreFoundAndContradictionsSeen) {
    wire::RequestHead head;
    head.headers = {{"authorization", "Bearer a"}, {"x-api-key", "b"}, {"x-api-key", "b"}};
    HeadFields fields = scan_head(head);
    EXPECT_EQ(fields.x_api_key, "b");
    EXPECT_EQ(fields.authorization, "Bearer a");
    EXPECT_FALSE(fields.two_keys);
    head.headers.push_back({"x-api-key", "c"});
    EXPECT_TRUE(scan_head(head).two_keys);
}

TopologyConfig config() {
    TopologyConfig c;
    c.region = "eu";
    c.regions = {{.name = "us", .location = "https://us.example:8443"}, {.name = "asia"}};
    c.models = {{.id = "Org/Big", .aliases = {"big", "latest"}, .context_tokens = 8192},
                {.id = "small", .context_tokens = 2048}};
    return c;
}

TEST(Topology, FindsByIdAliasAndAnyCase) {
    const auto t = *Topology::make(config());
    for (const char* name : {"Org/Big", "org/big", "BIG", "latest"})
        EXPECT_EQ(t->find_model(name)->id, "Org/Big") << name;
    EXPECT_EQ(t->find_model("small")->id, "small");
    EXPECT_EQ(t->find_model("bi"), nullptr);
    EXPECT_EQ(t->find_model(""), nullptr);
    EXPECT_EQ(t->find_lane("Low-Latency"), 1);
    EXPECT_EQ(t->find_lane("x"), -1);
    EXPECT_EQ(t->lane_names(), "default, low-latency, batch");
    EXPECT_TRUE(t->is_here("EU"));
    EXPECT_EQ(t->find_region("US")->location, "https://us.example:8443");
}

TEST(Topology, MistakesAreNamed) {
    const auto text = [](auto change) {
        TopologyConfig c = config();
        change(c);
        const auto got = Topology::make(std::move(c));
        return got ? std::string() : got.error().detail;
    };
    EXPECT_NE(text([](auto& c) { c.models[1].id = "ORG/big"; }).find("used twice"),
              std::string::npos);
    EXPECT_NE(text([](auto& c) { c.models[1].aliases = {"Latest"}; }), "");
    EXPECT_NE(text([](auto& c) { c.models[0].id = "a;b"; }), "");
    EXPECT_NE(text([](auto& c) { c.models[0].id = ""; }), "");
    EXPECT_NE(text([](auto& c) { c.lanes = {{.name = "fast"}}; }).find("\"default\""),
              std::string::npos);
    EXPECT_NE(text([](auto& c) { c.lanes = {{.name = "default"}, {.name = "Default"}}; }), "");
    EXPECT_NE(text([](auto& c) { c.lanes.resize(65); }), "");
    EXPECT_NE(text([](auto& c) { c.regions.push_back({.name = "EU"}); }), "");
    EXPECT_NE(text([](auto& c) { c.regions[0].location = "a b"; }), "");
    EXPECT_NE(text([](auto& c) { c.workspaces["a b"] = {}; }), "");
    EXPECT_NE(text([](auto& c) { c.workspaces["a"].limits.requests = -1; }), "");
}

}  // namespace
}  // namespace zerohop::admit
