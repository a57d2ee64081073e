// What h1 and h2 have in common about request heads: one set of rules, so that both give the same
// RequestHead for the same request (tested by the differential fuzzer).
//
// After finish_head() `headers` holds no `host`, `connection`, `keep-alive`, `proxy-connection`,
// `te`, `transfer-encoding` or `upgrade`: the host is `authority`, the rest concerned the
// connection. Several `cookie` fields are joined. Threads: any; no state.
#pragma once

#include <optional>
#include <string_view>

#include "wire/http.h"
#include "wire/limits.h"
#include "wire/wire_error.h"

namespace zerohop::wire {

// Size of a field as both protocols count it (RFC 9113 §6.5.2).
inline std::size_t field_cost(std::string_view name, std::string_view value) {
    return name.size() + value.size() + 32;
}

// Sets authority, content_length and expects_continue, and checks method, target, host and fields.
// `chunked`: the body's length is given by the framing (h1 only). nullopt: the head is good.
std::optional<WireError> finish_head(RequestHead& head, const Limits& limits, bool chunked);

// True for what may not appear in a response's headers because the session sets it, and for names
// or values that would break the framing.
bool skip_response_header(const Header& header);
bool has_response_body(int status, std::string_view request_method);
// IMF-fixdate of now, renewed each second.
std::string_view http_date();

}  // namespace zerohop::wire
