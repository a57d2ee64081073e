// Events -> the Messages API's JSON: the whole message (wire-contract §4.1) and the SSE stream
// (§5).
//
// And the answer to a warm-up.
//
// Pure text building, appended to strings the caller owns; no I/O, no clock. One SseMessage per
// streamed answer, used by one thread. Nothing fails; text is valid UTF-8 by Event's contract.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "request/event.h"

namespace zerohop::api {

std::string_view stop_reason_name(StopReason reason);

// What stays the same over one answer.
struct MessageFrame {
    std::string id;                   // "msg_…"
    std::string model;                // resolved id
    bool context_management = false;  // the request asked: say that no edit was applied
};

// The non-streamed answer.
std::string render_message(const MessageFrame& frame, std::string_view text, const Done& done);

// {"input_tokens":N}
std::string render_count(std::int32_t input_tokens, bool context_management);

// {"cached_tokens","kv_blocks","skeleton","expires_at"}. now and wall are the same moment.
std::string render_warm_up(std::string_view skeleton, const Done& done, MonoNs now, WallNs wall);

// Cached tokens are counted in blocks of 16, for people.
inline std::int64_t blocks_of(std::int64_t tokens) { return (tokens + 15) / 16; }
// RFC 3339 of a moment of the monotonic clock, quoted; null for 0.
void append_expiry(std::string& out, MonoNs until, MonoNs now, WallNs wall);

// message_start, content_block_start, deltas, content_block_stop, message_delta, message_stop: in
// this order whatever the calls; an answer without text has no block.
class SseMessage {
  public:
    explicit SseMessage(MessageFrame frame) : frame_(std::move(frame)) {}

    bool started() const { return started_; }
    // usage: of the prompt, as done() will tell it.
    void start(std::string& out, const Usage& usage);
    void text(std::string& out, std::string_view delta);
    void done(std::string& out, const Done& done);

    static void ping(std::string& out);

  private:
    MessageFrame frame_;
    bool started_ = false;
    bool block_open_ = false;
};

}  // namespace zerohop::api
