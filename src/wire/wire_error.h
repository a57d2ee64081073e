// What the wire refuses by itself, before or instead of an exchange: malformed heads, sizes,
// time-outs. How that is said is the dialect's (Dispatcher::refusal).
//
// Threads: any.
#pragma once

#include <string>
#include <string_view>

#include "wire/http.h"

namespace zerohop::wire {

struct WireError {
    int status = 400;
    std::string message;  // ASCII, nothing of what the client sent
};

struct WireAnswer {
    ResponseHead head;  // content_length is set
    std::string body;
};

std::string_view reason_phrase(int status);  // "Unknown" when there is none

}  // namespace zerohop::wire
