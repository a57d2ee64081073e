#include "api/messages_render.h"

#include "api/json_text.h"
#include "base/rfc3339.h"

namespace zerohop::api {
namespace {

// input_tokens is what was neither read from the cache nor written to it: together with those two
// it is the whole prompt (wire-contract §4.4).
void append_counts(std::string& out, const Usage& usage) {
    out += R"({"input_tokens":)";
    const std::int32_t written = usage.cache_write_5m_tokens + usage.cache_write_1h_tokens;
    append_int(out, usage.input_tokens - usage.cache_read_tokens - written);
    out += R"(,"output_tokens":)";
    append_int(out, usage.output_tokens);
    out += R"(,"cache_creation_input_tokens":)";
    append_int(out, written);
    out += R"(,"cache_read_input_tokens":)";
    append_int(out, usage.cache_read_tokens);
    out += R"(,"cache_creation":{"ephemeral_5m_input_tokens":)";
    append_int(out, usage.cache_write_5m_tokens);
    out += R"(,"ephemeral_1h_input_tokens":)";
    append_int(out, usage.cache_write_1h_tokens);
    out += '}';
}

void append_usage(std::string& out, const Usage& usage) {
    append_counts(out, usage);
    out += R"(,"server_tool_use":null,"service_tier":"standard","inference_geo":null)"
           R"(,"speed":"standard","output_tokens_details":null})";
}

void append_stop(std::string& out, const Done& done) {
    out += R"("stop_reason":")";
    out += stop_reason_name(done.reason);
    out += R"(","stop_sequence":)";
    if (done.reason == StopReason::kStopSequence) {
        append_json_string(out, done.stop_sequence);
    } else {
        out += "null";
    }
}

// {"id":…,"model":… without a closing brace.
void append_opening(std::string& out, const MessageFrame& frame) {
    out += R"({"id":)";
    append_json_string(out, frame.id);
    out += R"(,"type":"message","role":"assistant","model":)";
    append_json_string(out, frame.model);
}

void open_event(std::string& out, std::string_view name) {
    out += "event: ";
    out += name;
    out += "\ndata: {\"type\":\"";
    out += name;
    out += '"';
}

constexpr std::string_view kNoEdits = R"(,"context_management":{"applied_edits":[]})";

}  // namespace

std::string_view stop_reason_name(StopReason reason) {
    switch (reason) {
        case StopReason::kEndTurn:
            return "end_turn";
        case StopReason::kMaxTokens:
            return "max_tokens";
        case StopReason::kStopSequence:
            return "stop_sequence";
        case StopReason::kContextWindow:
            return "model_context_window_exceeded";
    }
    return "end_turn";
}

std::string render_message(const MessageFrame& frame, std::string_view text, const Done& done) {
    std::string out;
    out.reserve(text.size() + text.size() / 8 + 768);
    append_opening(out, frame);
    out += R"(,"content":[)";
    if (!text.empty()) {
        // No "citations" member: null there makes one popular SDK refuse the answer.
        out += R"({"type":"text","text":)";
        append_json_string(out, text);
        out += '}';
    }
    out += "],";
    append_stop(out, done);
    out += R"(,"stop_details":null,"container":null,"diagnostics":null)";
    if (frame.context_management) out += kNoEdits;
    out += R"(,"usage":)";
    append_usage(out, done.usage);
    out += '}';
    return out;
}

std::string render_count(std::int32_t input_tokens, bool context_management) {
    std::string out = R"({"input_tokens":)";
    append_int(out, input_tokens);
    if (context_management) {
        out += R"(,"context_management":{"original_input_tokens":)";
        append_int(out, input_tokens);
        out += '}';
    }
    out += '}';
    return out;
}

std::string render_warm_up(std::string_view skeleton, const Done& done, MonoNs now, WallNs wall) {
    const Usage& usage = done.usage;
    const std::int32_t cached =
        usage.cache_read_tokens + usage.cache_write_5m_tokens + usage.cache_write_1h_tokens;
    std::string out = R"({"cached_tokens":)";
    append_int(out, cached);
    out += R"(,"kv_blocks":)";
    append_int(out, blocks_of(cached));
    out += R"(,"skeleton":)";
    append_json_string(out, skeleton);
    out += R"(,"expires_at":)";
    append_expiry(out, done.cached_until_ns, now, wall);
    out += '}';
    return out;
}

void append_expiry(std::string& out, MonoNs until, MonoNs now, WallNs wall) {
    if (until == 0)
        out += "null";
    else
        append_json_string(out, format_rfc3339(wall + (until - now)));
}

void SseMessage::start(std::string& out, const Usage& usage) {
    if (started_) return;
    started_ = true;
    open_event(out, "message_start");
    out += R"(,"message":)";
    append_opening(out, frame_);
    out += R"(,"content":[],"stop_reason":null,"stop_sequence":null,"stop_details":null)"
           R"(,"container":null,"diagnostics":null)";
    if (frame_.context_management) out += R"(,"context_management":null)";
    out += R"(,"usage":)";
    Usage prompt = usage;
    prompt.output_tokens = 0;
    append_usage(out, prompt);
    out += "}}\n\n";
}

void SseMessage::text(std::string& out, std::string_view delta) {
    if (!block_open_) {
        block_open_ = true;
        open_event(out, "content_block_start");
        out += ",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n";
    }
    open_event(out, "content_block_delta");
    out += R"(,"index":0,"delta":{"type":"text_delta","text":)";
    append_json_string(out, delta);
    out += "}}\n\n";
}

void SseMessage::done(std::string& out, const Done& done) {
    start(out, done.usage);
    if (block_open_) {
        block_open_ = false;
        open_event(out, "content_block_stop");
        out += ",\"index\":0}\n\n";
    }
    open_event(out, "message_delta");
    out += R"(,"delta":{)";
    append_stop(out, done);
    out += R"(,"stop_details":null,"container":null})";
    if (frame_.context_management) out += kNoEdits;
    out += R"(,"usage":)";
    append_counts(out, done.usage);
    out += R"(,"server_tool_use":null,"output_tokens_details":null}})";
    out += "\n\n";
    open_event(out, "message_stop");
    out += "}\n\n";
}

void SseMessage::ping(std::string& out) {
    open_event(out, "ping");
    out += "}\n\n";
}

}  // namespace zerohop::api
