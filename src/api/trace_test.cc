#include "api/trace.h"

#include <gtest/gtest.h>

#include <vector>

#include "api/ids.h"

namespace zerohop::api {
namespace {

const std::string kGood = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

TEST(Trace, ParsesTheStandardsExamplesAndNothingElse) {
    const std::string& good = kGood;
    const auto parent = parse_traceparent(good);
    ASSERT_TRUE(parent);
    EXPECT_EQ(std::string(parent->trace_id.begin(), parent->trace_id.end()),
              "4bf92f3577b34da6a3ce929d0e0e4736");
    EXPECT_EQ(std::string(parent->span_id.begin(), parent->span_id.end()), "00f067aa0ba902b7");
    EXPECT_TRUE(parent->sampled);
    EXPECT_EQ(parent->ids(), good.substr(3, 49));
    EXPECT_FALSE(parse_traceparent(good.substr(0, 53) + "00")->sampled);
    EXPECT_TRUE(parse_traceparent("01" + good.substr(2) + "-later"));
    EXPECT_TRUE(parse_traceparent("cc" + good.substr(2)));
    for (const std::string& bad : std::vector<std::string>{
             "", good + "-x", "ff" + good.substr(2), "01" + good.substr(2) + "x",
             good.substr(0, 54), "0g" + good.substr(2),
             "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
             "00-" + std::string(32, '0') + good.substr(35),
             good.substr(0, 36) + std::string(16, '0') + "-01", "00_" + good.substr(3)})
        EXPECT_FALSE(parse_traceparent(bad)) << bad;
}

TEST(Trace, TwoThatDifferAreNone) {
    wire::RequestHead head;
    EXPECT_FALSE(trace_parent_of(head));
    head.headers = {{"traceparent", kGood}, {"traceparent", kGood}};
    EXPECT_TRUE(trace_parent_of(head));
    head.headers[1].value.back() = '0';
    EXPECT_FALSE(trace_parent_of(head));
}

TEST(Trace, OursParses) {
    for (const bool sampled : {true, false}) {
        const auto ours =
            parse_traceparent(make_traceparent(new_trace_id(), new_span_id(), sampled));
        ASSERT_TRUE(ours);
        EXPECT_EQ(ours->sampled, sampled);
    }
}

}  // namespace
}  // namespace zerohop::api
