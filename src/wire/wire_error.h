// Answers the wire gives by itself, before or instead of the API: malformed heads, sizes,
// time-outs.
//
// The body is the Anthropic error shape (wire-contract §6.1); request-id header and body agree.
// Threads: any.
#pragma once

#include <string>
#include <string_view>

#include "wire/http.h"

namespace zerohop::wire {

struct WireError {
    int status = 400;
    std::string message;
};

struct WireAnswer {
    ResponseHead head;  // content_length is set
    std::string body;
};

std::string make_request_id();  // "req_" and 24 letters or digits, unique
WireAnswer render_wire_error(const WireError& error);
std::string_view reason_phrase(int status);  // "Unknown" when there is none

}  // namespace zerohop::wire
