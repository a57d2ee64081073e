#include "wire/sse.h"

#include <gtest/gtest.h>

namespace zerohop::wire {
namespace {

TEST(Sse, WritesEventsAndComments) {
    std::string out;
    append_sse(out, "ping", R"({"type":"ping"})");
    EXPECT_EQ(out, "event: ping\ndata: {\"type\":\"ping\"}\n\n");
    out.clear();
    append_sse(out, "", "[DONE]");
    EXPECT_EQ(out, "data: [DONE]\n\n");
    out.clear();
    append_sse_comment(out, "keep-alive");
    EXPECT_EQ(out, ": keep-alive\n\n");
}

TEST(Sse, NoTextForgesAnEvent) {
    std::string out;
    append_sse(out, "a\nb", "x\r\nevent: y\n\ndata: z\rw");
    EXPECT_EQ(out, "event: a\ndata: x\ndata: event: y\ndata: \ndata: data: z\ndata: w\n\n");
    out.clear();
    append_sse_comment(out, "x\n\ndata: y");
    EXPECT_EQ(out, ": x\n: \n: data: y\n\n");
}

}  // namespace
}  // namespace zerohop::wire
