// Golden answers: the exact bytes of wire-contract §4.1 and §5.
#include "api/messages_render.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "api/testing/fakes.h"

namespace zerohop::api {
namespace {

using nlohmann::json;

TEST(Render, WholeMessage) {
    Done done = done_event(StopReason::kEndTurn, 12, 3, 5);
    done.usage.cache_write_5m_tokens = 1;
    done.usage.cache_write_1h_tokens = 2;
    EXPECT_EQ(
        render_message({.id = "msg_1", .model = "m"}, "Hel\"lo", done),
        R"({"id":"msg_1","type":"message","role":"assistant","model":"m",)"
        R"("content":[{"type":"text","text":"Hel\"lo"}],)"
        R"("stop_reason":"end_turn","stop_sequence":null,"stop_details":null,"container":null,)"
        R"("diagnostics":null,"usage":{"input_tokens":4,"output_tokens":3,)"
        R"("cache_creation_input_tokens":3,"cache_read_input_tokens":5,)"
        R"("cache_creation":{"ephemeral_5m_input_tokens":1,"ephemeral_1h_input_tokens":2},)"
        R"("server_tool_use":null,"service_tier":"standard","inference_geo":null,)"
        R"("speed":"standard","output_tokens_details":null}})");
}

TEST(Render, StopReasons) {
    const std::pair<StopReason, const char*> rows[] = {
        {StopReason::kEndTurn, "end_turn"},
        {StopReason::kMaxTokens, "max_tokens"},
        {StopReason::kStopSequence, "stop_sequence"},
        {StopReason::kContextWindow, "model_context_window_exceeded"}};
    for (const auto& [reason, name] : rows) {
        Done done = done_event(reason, 1, 1);
        done.stop_sequence = "X\n";
        const json message = json::parse(render_message({.id = "i", .model = "m"}, "t", done));
        EXPECT_EQ(message["stop_reason"], name);
        EXPECT_EQ(message["stop_sequence"],
                  reason == StopReason::kStopSequence ? json("X\n") : json(nullptr));
    }
}

TEST(Render, EmptyAnswerHasNoBlock) {
    const json message = json::parse(
        render_message({.id = "i", .model = "m"}, "", done_event(StopReason::kMaxTokens, 4, 0)));
    EXPECT_EQ(message["content"], json::array());
}

TEST(Render, WarmUp) {
    Done done = done_event(StopReason::kMaxTokens, 40, 0, 16);
    done.usage.cache_write_1h_tokens = 20;
    constexpr MonoNs kNow = 5 * kNsPerSec;
    constexpr WallNs kWall = 1'700'000'000 * kNsPerSec;
    EXPECT_EQ(render_warm_up("abc", done, kNow, kWall),
              R"({"cached_tokens":36,"kv_blocks":3,"skeleton":"abc","expires_at":null})");
    done.cached_until_ns = kNow + 60 * kNsPerSec;
    EXPECT_EQ(json::parse(render_warm_up("abc", done, kNow, kWall))["expires_at"],
              "2023-11-14T22:14:20Z");
}

TEST(Render, CountsAndContextManagement) {
    EXPECT_EQ(render_count(42, false), R"({"input_tokens":42})");
    EXPECT_EQ(render_count(42, true),
              R"({"input_tokens":42,"context_management":{"original_input_tokens":42}})");
    const json message =
        json::parse(render_message({.id = "i", .model = "m", .context_management = true}, "t",
                                   done_event(StopReason::kEndTurn, 1, 1)));
    EXPECT_EQ(message["context_management"], json::parse(R"({"applied_edits":[]})"));
}

constexpr std::string_view kGolden =
    R"(event: message_start
data: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,"stop_details":null,"container":null,"diagnostics":null,"usage":{"input_tokens":12,"output_tokens":0,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"cache_creation":{"ephemeral_5m_input_tokens":0,"ephemeral_1h_input_tokens":0},"server_tool_use":null,"service_tier":"standard","inference_geo":null,"speed":"standard","output_tokens_details":null}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi"}}

event: ping
data: {"type":"ping"}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\n😀"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"stop_sequence","stop_sequence":"X","stop_details":null,"container":null},"usage":{"input_tokens":6,"output_tokens":3,"cache_creation_input_tokens":2,"cache_read_input_tokens":4,"cache_creation":{"ephemeral_5m_input_tokens":0,"ephemeral_1h_input_tokens":2},"server_tool_use":null,"output_tokens_details":null}}

event: message_stop
data: {"type":"message_stop"}

)";

TEST(Sse, GoldenStream) {
    SseMessage sse({.id = "msg_1", .model = "m"});
    std::string out;
    sse.start(out, {.input_tokens = 12});
    sse.start(out, {.input_tokens = 99});  // only once
    sse.text(out, "Hi");
    SseMessage::ping(out);
    sse.text(out, "\n😀");
    Done done = done_event(StopReason::kStopSequence, 12, 3, 4);
    done.usage.cache_write_1h_tokens = 2;
    done.stop_sequence = "X";
    sse.done(out, done);
    EXPECT_EQ(out, kGolden);
}

// As the SDKs' stream helpers put a message together; it must equal the whole answer.
json accumulate(std::string_view stream) {
    json message;
    while (!stream.empty()) {
        const auto end = stream.find("\n\n");
        const std::string_view block = stream.substr(0, end);
        const json event = json::parse(block.substr(block.find("\ndata: ") + 7));
        stream.remove_prefix(end + 2);
        if (event["type"] == "message_start") message = event["message"];
        if (event["type"] == "content_block_start")
            message["content"].push_back(event["content_block"]);
        if (event["type"] == "content_block_delta") {
            std::string text = message["content"][0]["text"];
            message["content"][0]["text"] = text + event["delta"]["text"].get<std::string>();
        }
        if (event["type"] != "message_delta") continue;
        for (const auto& [key, value] : event["delta"].items()) message[key] = value;
        if (event.contains("context_management"))
            message["context_management"] = event["context_management"];
        for (const auto& [key, value] : event["usage"].items())
            if (!value.is_null()) message["usage"][key] = value;
    }
    return message;
}

TEST(Sse, AccumulatesToTheWholeMessage) {
    for (const bool context : {false, true}) {
        const MessageFrame frame{.id = "msg_1", .model = "m", .context_management = context};
        Done done = done_event(StopReason::kStopSequence, 20, 4, 16);
        done.usage.cache_write_5m_tokens = 1;
        done.stop_sequence = "\"E\"";
        SseMessage sse(frame);
        std::string out;
        sse.start(out, {.input_tokens = 20});
        for (const char* piece : {"a", "\"\\", "漢", "\n"}) sse.text(out, piece);
        sse.done(out, done);
        EXPECT_EQ(accumulate(out), json::parse(render_message(frame, "a\"\\漢\n", done)));
    }
}

TEST(Sse, AnswerWithoutText) {
    SseMessage sse({.id = "msg_1", .model = "m", .context_management = true});
    std::string out;
    sse.done(out, done_event(StopReason::kMaxTokens, 7, 0));
    EXPECT_EQ(out.find("content_block"), std::string::npos);
    EXPECT_NE(out.find("\"input_tokens\":7"), std::string::npos);
    EXPECT_NE(out.find(R"("context_management":{"applied_edits":[]})"), std::string::npos);
    EXPECT_TRUE(out.starts_with("event: message_start\n"));
    EXPECT_TRUE(out.ends_with("event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"));
}

}  // namespace
}  // namespace zerohop::api
