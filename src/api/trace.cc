#include "api/trace.h"

#include <fmt/format.h>

#include <algorithm>

namespace zerohop::api {
namespace {

// Lower-case hex only, at least one digit not zero.
bool is_id(std::string_view text) {
    bool zero = true;
    for (const char c : text) {
        if ((c < '0' || c > '9') && (c < 'a' || c > 'f')) return false;
        zero &= c == '0';
    }
    return !zero;
}

int lower_hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

}  // namespace

std::string TraceParent::ids() const {
    std::string out(trace_id.data(), trace_id.size());
    out += '-';
    return out.append(span_id.data(), span_id.size());
}

std::optional<TraceParent> parse_traceparent(std::string_view text) {
    constexpr std::size_t kVersion0 = 55;
    if (text.size() < kVersion0 || text[2] != '-' || text[35] != '-' || text[52] != '-') return {};
    const int v1 = lower_hex_value(text[0]), v0 = lower_hex_value(text[1]);
    const int f1 = lower_hex_value(text[53]), f0 = lower_hex_value(text[54]);
    if ((v1 | v0 | f1 | f0) < 0) return {};
    const int version = v1 * 16 + v0;
    if (version == 0xff) return {};
    // Later versions may append fields; version 0 is exactly this long.
    if (text.size() != kVersion0 && (version == 0 || text[kVersion0] != '-')) return {};
    const std::string_view trace = text.substr(3, 32), span = text.substr(36, 16);
    if (!is_id(trace) || !is_id(span)) return {};
    TraceParent parent;
    std::copy(trace.begin(), trace.end(), parent.trace_id.begin());
    std::copy(span.begin(), span.end(), parent.span_id.begin());
    parent.sampled = (f0 & 1) != 0;
    return parent;
}

std::optional<TraceParent> trace_parent_of(const wire::RequestHead& head) {
    if (head.differs("traceparent")) return {};
    return parse_traceparent(head.header("traceparent"));
}

std::string make_traceparent(std::string_view trace_id, std::string_view span_id, bool sampled) {
    return fmt::format("00-{}-{}-{}", trace_id, span_id, sampled ? "01" : "00");
}

}  // namespace zerohop::api
