#include "wire/wire_error.h"

#include <fmt/format.h>

#include <random>

namespace zerohop::wire {
namespace {

std::string json_escape(std::string_view text) {
    std::string out;
    for (const char c : text) {
        const auto u = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\') {
            out += '\\';
            out += c;
        } else if (u < 0x20 || u >= 0x7f) {
            out += fmt::format("\\u{:04x}", u);
        } else {
            out += c;
        }
    }
    return out;
}

std::string_view error_type(int status) {
    if (status == 413) return "request_too_large";
    if (status >= 500 && status != 501 && status != 505) return "api_error";
    return "invalid_request_error";
}

}  // namespace

std::string make_request_id() {
    static constexpr std::string_view kAlphabet =
        "0123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
    thread_local std::mt19937_64 random = [] {
        std::random_device device;
        std::seed_seq seed{device(), device(), device(), device(), device(), device()};
        return std::mt19937_64(seed);
    }();
    std::string id = "req_";
    for (int third = 0; third < 3; ++third) {  // 8 digits of base 58 take 47 of 64 bits
        std::uint64_t bits = random();
        for (int i = 0; i < 8; ++i) {
            id += kAlphabet[bits % kAlphabet.size()];
            bits /= kAlphabet.size();
        }
    }
    return id;
}

WireAnswer render_wire_error(const WireError& error) {
    const std::string id = make_request_id();
    WireAnswer answer;
    answer.body = fmt::format(
        R"({{"type":"error","error":{{"type":"{}","message":"{}"}},"request_id":"{}"}})",
        error_type(error.status), json_escape(error.message), id);
    answer.head.status = error.status;
    answer.head.headers = {{"content-type", "application/json"}, {"request-id", id}};
    answer.head.content_length = static_cast<std::int64_t>(answer.body.size());
    return answer;
}

std::string_view reason_phrase(int status) {
    switch (status) {
        case 100:
            return "Continue";
        case 200:
            return "OK";
        case 201:
            return "Created";
        case 202:
            return "Accepted";
        case 204:
            return "No Content";
        case 301:
            return "Moved Permanently";
        case 302:
            return "Found";
        case 304:
            return "Not Modified";
        case 307:
            return "Temporary Redirect";
        case 308:
            return "Permanent Redirect";
        case 400:
            return "Bad Request";
        case 401:
            return "Unauthorized";
        case 402:
            return "Payment Required";
        case 403:
            return "Forbidden";
        case 404:
            return "Not Found";
        case 405:
            return "Method Not Allowed";
        case 408:
            return "Request Timeout";
        case 409:
            return "Conflict";
        case 410:
            return "Gone";
        case 413:
            return "Content Too Large";
        case 414:
            return "URI Too Long";
        case 415:
            return "Unsupported Media Type";
        case 417:
            return "Expectation Failed";
        case 421:
            return "Misdirected Request";
        case 422:
            return "Unprocessable Content";
        case 429:
            return "Too Many Requests";
        case 431:
            return "Request Header Fields Too Large";
        case 500:
            return "Internal Server Error";
        case 501:
            return "Not Implemented";
        case 502:
            return "Bad Gateway";
        case 503:
            return "Service Unavailable";
        case 504:
            return "Gateway Timeout";
        case 505:
            return "HTTP Version Not Supported";
        case 529:
            return "Overloaded";
        default:
            return "Unknown";
    }
}

}  // namespace zerohop::wire
