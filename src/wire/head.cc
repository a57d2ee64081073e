#include "wire/head.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>

namespace zerohop::wire {
namespace {

constexpr std::size_t kMethodBytes = 32;
constexpr std::size_t kLengthDigits = 18;  // fits int64

bool is_token_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

bool is_token(std::string_view text) {
    return !text.empty() && std::ranges::all_of(text, is_token_char);
}

bool is_host_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("-._~:[]%!$&'()*+,;=").find(c) != std::string_view::npos;
}

bool is_value_char(char c) {
    const auto u = static_cast<unsigned char>(c);
    return u == '\t' || (u >= 0x20 && u != 0x7f);
}

bool iequals(std::string_view a, std::string_view b) {
    return std::ranges::equal(a, b, [](char x, char y) {
        const auto low = [](char c) {
            return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
        };
        return low(x) == low(y);
    });
}

// "http://host:port/path" (RFC 9112 §3.2.2): the target's authority is the one that counts, the
// host header is only checked. HTTP/2 has :authority instead.
void split_absolute_target(RequestHead& head) {
    if (head.protocol != Protocol::kHttp11) return;
    for (const std::string_view scheme : {"http://", "https://"}) {
        if (!iequals(std::string_view(head.target).substr(0, scheme.size()), scheme)) continue;
        const std::size_t path =
            std::min(head.target.find_first_of("/?", scheme.size()), head.target.size());
        head.authority = head.target.substr(scheme.size(), path - scheme.size());
        // Without a host it is no such target: refused as it came.
        if (head.authority.empty()) return;
        head.target.erase(0, path);
        if (!head.target.starts_with('/')) head.target.insert(0, "/");
        return;
    }
}

std::optional<WireError> check_target(const RequestHead& head, const Limits& limits) {
    if (head.method.size() > kMethodBytes || !is_token(head.method))
        return WireError{400, "The request method is not valid."};
    if (head.target.size() > limits.target_bytes)
        return WireError{414,
                         fmt::format("The request target exceeds {} bytes.", limits.target_bytes)};
    if (head.target.empty() || head.target.front() != '/')
        return WireError{400, "The request target must be a path that begins with '/'."};
    const auto good = [](char c) { return c > 0x20 && c < 0x7f && c != '#'; };
    if (!std::ranges::all_of(head.target, good))
        return WireError{400, "The request target holds a character that must be percent-encoded."};
    return std::nullopt;
}

std::optional<WireError> take_host(RequestHead& head) {
    bool seen = false;
    for (const Header& h : head.headers) {
        if (h.name != "host") continue;
        if (seen) return WireError{400, "There must be exactly one host header."};
        seen = true;
        if (!std::ranges::all_of(h.value, is_host_char))
            return WireError{400, "The host is not valid."};
        if (head.authority.empty()) head.authority = h.value;
        if (head.protocol == Protocol::kHttp2 && !iequals(head.authority, h.value))
            return WireError{400, "The host header and :authority differ."};
    }
    if (head.authority.empty() || (head.protocol == Protocol::kHttp11 && !seen))
        return WireError{400, "The host header is missing or empty."};
    if (!std::ranges::all_of(head.authority, is_host_char))
        return WireError{400, "The host is not valid."};
    return std::nullopt;
}

std::optional<WireError> take_length(RequestHead& head, bool chunked) {
    for (const Header& h : head.headers) {
        if (h.name != "content-length") continue;
        const auto digit = [](char c) { return c >= '0' && c <= '9'; };
        if (h.value.empty() || h.value.size() > kLengthDigits ||
            !std::ranges::all_of(h.value, digit))
            return WireError{400, "content-length is not a number."};
        if (head.content_length >= 0)
            return WireError{400, "There are two content-length headers."};
        if (chunked)
            return WireError{400, "content-length and transfer-encoding exclude each other."};
        head.content_length = 0;
        for (const char c : h.value) head.content_length = head.content_length * 10 + (c - '0');
    }
    return std::nullopt;
}

void drop_connection_fields(RequestHead& head) {
    static constexpr std::array<std::string_view, 7> kDropped = {
        "host", "connection",        "keep-alive", "proxy-connection",
        "te",   "transfer-encoding", "upgrade"};
    Header* cookie = nullptr;
    for (Header& h : head.headers) {
        if (h.name != "cookie") continue;
        if (cookie == nullptr) {
            cookie = &h;
        } else {  // RFC 9113 §8.2.3
            cookie->value += "; ";
            cookie->value += h.value;
            h.name.clear();
        }
    }
    std::erase_if(head.headers, [](const Header& h) {
        return h.name.empty() || std::ranges::find(kDropped, h.name) != kDropped.end();
    });
}

}  // namespace

std::optional<WireError> finish_head(RequestHead& head, const Limits& limits, bool chunked) {
    split_absolute_target(head);
    if (auto bad = check_target(head, limits)) return bad;
    if (head.headers.size() > limits.header_count)
        return WireError{431, fmt::format("More than {} header fields.", limits.header_count)};
    for (const Header& h : head.headers) {
        if (!is_token(h.name)) return WireError{400, "A header name is not valid."};
        if (!std::ranges::all_of(h.value, is_value_char))
            return WireError{400, fmt::format("Header {} holds a control character.", h.name)};
    }
    if (auto bad = take_host(head)) return bad;
    if (auto bad = take_length(head, chunked)) return bad;
    head.expects_continue = iequals(head.header("expect"), "100-continue");
    drop_connection_fields(head);
    return std::nullopt;
}

bool skip_response_header(const Header& header) {
    static constexpr std::array<std::string_view, 7> kOwned = {
        "content-length", "transfer-encoding", "connection",      "keep-alive",
        "date",           "upgrade",           "proxy-connection"};
    return std::ranges::find(kOwned, header.name) != kOwned.end() || !is_token(header.name) ||
           !std::ranges::all_of(header.value, is_value_char);
}

bool has_response_body(int status, std::string_view request_method) {
    return request_method != "HEAD" && status != 204 && status != 304 && status >= 200;
}

std::string_view http_date() {
    static constexpr std::array<const char*, 7> kDays = {"Sun", "Mon", "Tue", "Wed",
                                                         "Thu", "Fri", "Sat"};
    static constexpr std::array<const char*, 12> kMonths = {
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    thread_local std::time_t at = 0;
    thread_local std::string text;
    const std::time_t now = std::time(nullptr);
    if (now != at) {
        std::tm t{};
        gmtime_r(&now, &t);
        text = fmt::format("{}, {:02} {} {} {:02}:{:02}:{:02} GMT",
                           kDays[static_cast<std::size_t>(t.tm_wday)], t.tm_mday,
                           kMonths[static_cast<std::size_t>(t.tm_mon)], t.tm_year + 1900, t.tm_hour,
                           t.tm_min, t.tm_sec);
        at = now;
    }
    return text;
}

}  // namespace zerohop::wire
