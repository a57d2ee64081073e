#include "api/error_table.h"

#include <algorithm>

#include "api/ids.h"
#include "api/json_text.h"

namespace zerohop::api {

ErrorRow error_row(Code code) {
    switch (code) {
        case Code::kInvalidRequest:
            return {400, "invalid_request_error"};
        case Code::kAuthentication:
            return {401, "authentication_error"};
        case Code::kPermission:
            return {403, "permission_error"};
        case Code::kNotFound:
            return {404, "not_found_error"};
        case Code::kMethodNotAllowed:
            return {405, "invalid_request_error"};
        case Code::kRequestTimeout:
            return {408, "timeout_error"};
        case Code::kConflict:
            return {409, "conflict_error"};
        case Code::kTooLarge:
            return {413, "request_too_large"};
        case Code::kUnsupportedMedia:
            return {415, "invalid_request_error"};
        case Code::kMisdirected:
            return {421, "invalid_request_error"};
        case Code::kRateLimited:
            return {429, "rate_limit_error"};
        case Code::kHeadersTooLarge:
            return {431, "invalid_request_error"};
        case Code::kInternal:
            return {500, "api_error"};
        case Code::kUnavailable:
            return {503, "api_error"};
        case Code::kTimeout:
            return {504, "timeout_error"};
        case Code::kOverloaded:
            return {529, "overloaded_error"};
        case Code::kCancelled:
            return {499, "api_error"};
    }
    return {500, "api_error"};
}

bool blames_the_request(Code code) {
    return code == Code::kInvalidRequest || code == Code::kPermission || code == Code::kNotFound ||
           code == Code::kTooLarge || code == Code::kUnsupportedMedia;
}

std::string error_body(const Error& error, std::string_view request_id) {
    std::string out = R"({"type":"error","error":{"type":)";
    append_json_string(out, error_row(error.code).type);
    out += R"(,"message":)";
    append_json_string(out, error.detail);
    if (!error.error_code.empty()) {
        out += R"(,"details":{"error_code":)";
        append_json_string(out, error.error_code);
        // The SDK's thread helper reads the list of what was not supported (wire-contract §8.3).
        if (error.error_code == "thread_unsupported_request") out += R"(,"unsupported":[])";
        out += '}';
    }
    out += R"(},"request_id":)";
    append_json_string(out, request_id);
    out += '}';
    return out;
}

wire::WireAnswer wire_refusal(const wire::WireError& error) {
    const std::string id = new_id("req_");
    const bool ours = error.status >= 500 && error.status != 501 && error.status != 505;
    wire::WireAnswer answer;
    answer.body = R"({"type":"error","error":{"type":)";
    append_json_string(answer.body, error.status == 413 ? "request_too_large"
                                    : ours              ? "api_error"
                                                        : "invalid_request_error");
    answer.body += R"(,"message":)";
    append_json_string(answer.body, error.message);
    answer.body += R"(},"request_id":)";
    append_json_string(answer.body, id);
    answer.body += '}';
    answer.head.status = error.status;
    answer.head.headers = {{"content-type", "application/json"}, {"request-id", id}};
    answer.head.content_length = static_cast<std::int64_t>(answer.body.size());
    return answer;
}

std::string error_event(const Error& error, std::string_view request_id) {
    return "event: error\ndata: " + error_body(error, request_id) + "\n\n";
}

namespace {

void set_header(std::vector<wire::Header>& headers, const std::string& name,
                const std::string& value) {
    const auto same =
        std::ranges::find_if(headers, [&](const wire::Header& h) { return h.name == name; });
    if (same != headers.end())
        same->value = value;
    else
        headers.push_back({name, value});
}

void append_retry_headers(const Error& error, std::vector<wire::Header>& headers) {
    constexpr std::int64_t kDefaultRetryMs = 1000;
    std::optional<std::int64_t> retry_ms = error.retry_after_ms;
    switch (error.code) {
        case Code::kRateLimited:
        case Code::kOverloaded:
        case Code::kUnavailable:
            retry_ms = std::max<std::int64_t>(retry_ms.value_or(kDefaultRetryMs), 1);
            break;
        case Code::kAuthentication:
            headers.push_back({"www-authenticate", "Bearer"});
            // An SDK with a credentials provider refreshes and tries once more: at once, not after
            // its back-off (wire-contract §9.2). No whole-second header: zero means "default"
            // there.
            headers.push_back({"retry-after-ms", "1"});
            return;
        default:
            break;
    }
    if (!retry_ms) return;
    headers.push_back(
        {"retry-after", std::to_string(std::max<std::int64_t>((*retry_ms + 999) / 1000, 1))});
    headers.push_back({"retry-after-ms", std::to_string(*retry_ms)});
    headers.push_back({"x-should-retry", "true"});
}

}  // namespace

void append_error_headers(const Error& error, std::vector<wire::Header>& headers) {
    append_retry_headers(error, headers);
    for (const auto& [name, value] : error.headers) set_header(headers, name, value);
}

}  // namespace zerohop::api
