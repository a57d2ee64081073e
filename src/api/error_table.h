// The one place where an error code becomes HTTP: status, `error.type`, body, headers, SSE event
// (wire-contract §6).
//
// Threads: any; pure functions. Nothing fails.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "wire/http.h"
#include "wire/wire_error.h"

namespace zerohop::api {

struct ErrorRow {
    int status;
    std::string_view type;
};
ErrorRow error_row(Code code);
// Whether it is for what the request says, so that sending it again would not help.
bool blames_the_request(Code code);

// {"type":"error","error":{"type","message"[,"details"]},"request_id"}. The OpenAI SDK reads
// error.message and error.type of the same object.
std::string error_body(const Error& error, std::string_view request_id);

// The answer to what the wire refuses by itself, under an id of its own.
wire::WireAnswer wire_refusal(const wire::WireError& error);

// The same object as an in-stream event, blank line included. Nothing may follow it.
std::string error_event(const Error& error, std::string_view request_id);

// retry-after (whole seconds, ≥ 1), retry-after-ms, x-should-retry, www-authenticate, as the code
// asks for; then error.headers, which replace what has their name.
void append_error_headers(const Error& error, std::vector<wire::Header>& headers);

}  // namespace zerohop::api
