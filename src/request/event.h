// Event: what the engine tells a stream, in this order:
//
//     Prepared (Text)* Done        the normal course; Text may be absent
//     Failed                       at any point, and then nothing after it
//
// Values, moved through Stream's ring from the producing thread to the I/O thread.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "base/clock.h"
#include "base/error.h"

namespace zerohop {

enum class StopReason : std::uint8_t {
    kEndTurn,
    kMaxTokens,
    kStopSequence,
    kContextWindow,  // model_context_window_exceeded
};

struct Usage {
    std::int32_t input_tokens = 0;       // whole prompt, template included, cached part included
    std::int32_t cache_read_tokens = 0;  // part of the input whose KV was already there
    // Part of the input that was computed and is kept because of a breakpoint, by its time.
    std::int32_t cache_write_5m_tokens = 0, cache_write_1h_tokens = 0;
    std::int32_t output_tokens = 0;  // every sampled token, the end-of-turn token excluded
};

// The prompt is rendered, tokenized and accepted. input_tokens is final.
struct Prepared {
    std::int32_t input_tokens = 0;
};

// Text to append. Valid UTF-8 by itself: no code point is split across events; no part of a stop
// sequence is ever in it. Non-empty.
struct Text {
    std::string delta;
    std::int32_t output_tokens = 0;  // cumulative
    // As in Done, for the head of a stream, which leaves with the first text. On every one: which
    // of them will be the first that is not held back costs more to know than to copy 16 bytes, and
    // an Event is as large as a Done anyway.
    MonoNs admitted_ns = 0, prefill_done_ns = 0;
    Usage usage;  // its parts of the prompt, as Done will tell them
};

struct Done {
    StopReason reason = StopReason::kEndTurn;
    std::string stop_sequence;  // the one that matched, for kStopSequence
    Usage usage;
    MonoNs cached_until_ns = 0;  // when the last breakpoint's pin ends; 0: nothing was pinned
    // Stamps of the request's life in the engine, mono ns; 0 where it never happened.
    MonoNs admitted_ns = 0, prefill_done_ns = 0, first_token_ns = 0, done_ns = 0;
};

struct Failed {
    Error error;
};

using Event = std::variant<Prepared, Text, Done, Failed>;

}  // namespace zerohop
