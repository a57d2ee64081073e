// The caller's W3C trace context, and what we say of our own in return.
//
// Threads: any; pure functions. Nothing fails: what is malformed is ignored, as the standard
// demands. Source: W3C Trace Context, level 1, §3.2.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "wire/http.h"

namespace zerohop::api {

struct TraceParent {
    std::array<char, 32> trace_id{};  // lower-case hex, not all zero
    std::array<char, 16> span_id{};   // likewise
    bool sampled = false;

    std::string ids() const;  // "<trace id>-<span id>"
};
// nullopt for anything malformed.
std::optional<TraceParent> parse_traceparent(std::string_view text);

// That of a request; nullopt when it sent none, a malformed one, or two that differ.
std::optional<TraceParent> trace_parent_of(const wire::RequestHead& head);

// What we send on: `00-<our trace id>-<our span id>-<flags>`.
std::string make_traceparent(std::string_view trace_id, std::string_view span_id, bool sampled);

}  // namespace zerohop::api
