// Error values and the result type that carries them.
//
// Purpose: one error vocabulary for every module. An Error says what went wrong (code), in words
// for the person who sent the request (detail), and which module noticed (origin). `api` alone
// turns a code into an HTTP status and a dialect's body. Threads: plain values, no shared state.
// Nothing here fails or throws (bad_alloc aside).
#pragma once

#include <cstdint>
#include <expected>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace zerohop {

// Each code maps to one HTTP status and one `error.type` (api/error_table.h; wire-contract §6.2).
enum class Code : std::uint8_t {
    kInvalidRequest,    // 400 invalid_request_error
    kAuthentication,    // 401 authentication_error
    kPermission,        // 403 permission_error
    kNotFound,          // 404 not_found_error
    kMethodNotAllowed,  // 405 invalid_request_error
    kRequestTimeout,    // 408 the client stopped sending
    kConflict,          // 409 conflict_error
    kTooLarge,          // 413 request_too_large
    kUnsupportedMedia,  // 415 invalid_request_error
    kMisdirected,       // 421 another region or instance serves this
    kRateLimited,       // 429 rate_limit_error
    kHeadersTooLarge,   // 431 the request head exceeds its limits
    kInternal,          // 500 api_error
    kUnavailable,       // 503 api_error: draining or not yet ready
    kTimeout,           // 504 timeout_error
    kOverloaded,        // 529 overloaded_error
    kCancelled,         // never sent: the client is gone
};

struct Error {
    Code code = Code::kInternal;
    std::string detail;           // for the client: names the field and what to do; no secrets
    std::string_view origin;      // module name, a literal: "api", "engine", …
    std::string error_code = {};  // wire `error.details.error_code`, empty when there is none
    std::optional<std::int64_t> retry_after_ms = std::nullopt;
    // Further headers of the answer (lower-case name, value): `location` of a 421, the rate limits
    // of a 429. Not retry-after: `api` writes that from retry_after_ms.
    std::vector<std::pair<std::string, std::string>> headers = {};
};

template <class T>
using Result = std::expected<T, Error>;
using Status = std::expected<void, Error>;

inline std::unexpected<Error> fail(Code code, std::string_view origin, std::string detail) {
    return std::unexpected(Error{.code = code, .detail = std::move(detail), .origin = origin});
}

}  // namespace zerohop
