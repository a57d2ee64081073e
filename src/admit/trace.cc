#include "admit/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "auth/crypto.h"

namespace zerohop::admit {
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

int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

void put_hex(std::uint64_t value, char* out) {
    constexpr char kDigits[] = "0123456789abcdef";
    for (int i = 15; i >= 0; --i) {
        out[i] = kDigits[value & 15];
        value >>= 4;
    }
}

}  // namespace

std::optional<TraceParent> parse_traceparent(std::string_view text) {
    constexpr std::size_t kVersion0 = 55;
    if (text.size() < kVersion0 || text[2] != '-' || text[35] != '-' || text[52] != '-') return {};
    const int v1 = hex_value(text[0]), v0 = hex_value(text[1]);
    const int f1 = hex_value(text[53]), f0 = hex_value(text[54]);
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

std::string make_traceparent(std::string_view trace_id, std::string_view span_id, bool sampled) {
    return fmt::format("00-{}-{}-{}", trace_id, span_id, sampled ? "01" : "00");
}

TraceIds::TraceIds() {
    auth::random_bytes({reinterpret_cast<std::uint8_t*>(state_.data()), sizeof state_});
    state_[0] |= 1;  // the all-zero state is the one that never moves
}

std::uint64_t TraceIds::next() {
    const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
    const std::uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = std::rotl(state_[3], 45);
    return result;
}

void TraceIds::next_trace_id(char (&out)[32]) {
    put_hex(next(), out);
    put_hex(next() | 1, out + 16);  // all zeros is not a trace id
}

void TraceIds::next_span_id(char (&out)[16]) { put_hex(next() | 1, out); }

}  // namespace zerohop::admit
