#include "admit/hints.h"

#include <fmt/format.h>

#include <string>

#include "base/ascii.h"

namespace zerohop::admit {
namespace {

constexpr std::string_view kVendor = "x-anthropic-";
constexpr std::string_view kOwn = "x-zerohop-";
constexpr std::array<std::string_view, kHintHeaders> kSuffix = {
    "early-hint", "rate-hint", "cuda-stream", "debug", "stream-buffering"};

void note_hint(HeadFields& fields, std::string_view suffix, const wire::Header& header) {
    if (header.value.size() > kMaxHintBytes) return;
    for (std::size_t i = 0; i < kHintHeaders; ++i) {
        if (suffix != kSuffix[i]) continue;
        const std::string_view value = trim_blanks(header.value);
        if (fields.names[i].empty()) {
            fields.names[i] = header.name;
            fields.hints[i] = value;
        } else if (!equal_ignoring_case(fields.hints[i], value)) {
            fields.conflict[i] = true;
        }
        return;
    }
}

void note_credential(HeadFields& fields, std::string_view& slot, std::string_view value) {
    if (slot.empty()) {
        slot = value;
    } else if (!value.empty() && slot != value) {
        fields.two_keys = true;
    }
}

std::unexpected<Error> malformed(std::string_view header, std::string_view key,
                                 std::string_view value, std::string_view expected) {
    return fail(Code::kInvalidRequest, "admit",
                key.empty() ? fmt::format("{}: \"{}\" is not valid: expected {}", header,
                                          printable(value), expected)
                            : fmt::format("{}: {}: \"{}\" is not valid: expected {}", header, key,
                                          printable(value), expected));
}

// A name or id.
constexpr std::string_view kWord =
    "1 to 128 printable ASCII characters, none of them a blank, a quote, a comma or \"=\"";
bool is_word(std::string_view text) {
    if (text.empty() || text.size() > 128) return false;
    for (const char c : text)
        if (c <= 0x20 || c > 0x7e || c == '"' || c == ',' || c == '=') return false;
    return true;
}

// Calls fn(key, value) for each pair whose key is not empty; value of a bare key is "". Stops at
// the first Status that is an error.
template <class Fn>
Status each_pair(std::string_view text, Fn&& fn) {
    while (!text.empty()) {
        const std::size_t semicolon = text.find(';');
        const std::string_view pair = trim_blanks(text.substr(0, semicolon));
        text =
            semicolon == std::string_view::npos ? std::string_view{} : text.substr(semicolon + 1);
        if (pair.empty()) continue;
        const std::size_t equals = pair.find('=');
        const std::string_view key = trim_blanks(pair.substr(0, equals));
        const std::string_view value = equals == std::string_view::npos
                                           ? std::string_view{}
                                           : trim_blanks(pair.substr(equals + 1));
        if (Status s = fn(key, value); !s) return s;
    }
    return {};
}

// A key given twice must say the same both times.
Status set_word(std::string_view header, std::string_view key, std::string_view value,
                std::string_view& slot) {
    if (!is_word(value)) return malformed(header, key, value, kWord);
    if (!slot.empty() && !equal_ignoring_case(slot, value))
        return malformed(header, key, value, "one value, not two");
    slot = value;
    return {};
}

Status parse_early_hint(std::string_view header, std::string_view text, Hints& out) {
    return each_pair(text, [&](std::string_view key, std::string_view value) -> Status {
        if (equal_ignoring_case(key, "model")) return set_word(header, "model", value, out.model);
        if (equal_ignoring_case(key, "region"))
            return set_word(header, "region", value, out.region);
        return {};
    });
}

std::optional<std::int32_t> parse_count(std::string_view text) {
    if (text.empty() || text.size() > 10) return {};
    std::int64_t value = 0;
    for (const char c : text) {
        if (c < '0' || c > '9') return {};
        value = value * 10 + (c - '0');
    }
    if (value > INT32_MAX) return {};
    return static_cast<std::int32_t>(value);
}

std::optional<Priority> priority_of(std::string_view text) {
    for (const Priority p : {Priority::kLow, Priority::kNormal, Priority::kHigh})
        if (equal_ignoring_case(text, to_string(p))) return p;
    return {};
}

Status parse_rate_hint(std::string_view header, std::string_view text, Hints& out) {
    return each_pair(text, [&](std::string_view key, std::string_view value) -> Status {
        if (equal_ignoring_case(key, "tokens")) {
            const auto tokens = parse_count(value);
            if (!tokens || (out.tokens && out.tokens != tokens))
                return malformed(header, "tokens", value, "one whole number of output tokens");
            out.tokens = tokens;
        } else if (equal_ignoring_case(key, "priority")) {
            const auto priority = priority_of(value);
            if (!priority || (out.priority && out.priority != priority))
                return malformed(header, "priority", value, "one of high, normal, low");
            out.priority = priority;
        }
        return {};
    });
}

Status parse_one(HintHeader which, std::string_view header, std::string_view text, Hints& out) {
    switch (which) {
        case HintHeader::kEarlyHint:
            return parse_early_hint(header, text, out);
        case HintHeader::kRateHint:
            return parse_rate_hint(header, text, out);
        case HintHeader::kLane:
            out.lane = text;
            return {};
        case HintHeader::kDebug:
            if (!equal_ignoring_case(text, "skeleton"))
                return malformed(header, "", text, "skeleton");
            out.skeleton = true;
            return {};
        case HintHeader::kBuffering:
            if (equal_ignoring_case(text, "on")) {
                out.buffering = true;
            } else if (equal_ignoring_case(text, "off")) {
                out.buffering = false;
            } else {
                return malformed(header, "", text, "on or off");
            }
            return {};
    }
    return {};
}

}  // namespace

std::string printable(std::string_view value) {
    std::string out(value.substr(0, 64));
    for (char& c : out)
        if (c < 0x20 || c > 0x7e || c == '"') c = '?';
    if (value.size() > 64) out += "…";
    return out;
}

HeadFields scan_head(const wire::RequestHead& head) {
    HeadFields fields;
    for (const wire::Header& header : head.headers) {
        const std::string_view name = header.name;
        if (name.size() < 9) continue;
        if (name[0] == 'x' && name[1] == '-') {
            if (name == "x-api-key") {
                note_credential(fields, fields.x_api_key, header.value);
            } else if (name.starts_with(kVendor)) {
                note_hint(fields, name.substr(kVendor.size()), header);
            } else if (name.starts_with(kOwn)) {
                note_hint(fields, name.substr(kOwn.size()), header);
            }
        } else if (name == "authorization") {
            note_credential(fields, fields.authorization, header.value);
        }
    }
    return fields;
}

Result<Hints> parse_hints(const HeadFields& fields) {
    Hints hints;
    for (std::size_t i = 0; i < kHintHeaders; ++i) {
        if (fields.names[i].empty()) continue;
        if (fields.conflict[i])
            return fail(
                Code::kInvalidRequest, "admit",
                fmt::format("{0}{2} and {1}{2} (or one of them twice) say different things: "
                            "send one",
                            kVendor, kOwn, kSuffix[i]));
        if (fields.hints[i].empty()) continue;
        if (Status s =
                parse_one(static_cast<HintHeader>(i), fields.names[i], fields.hints[i], hints);
            !s)
            return std::unexpected(std::move(s).error());
    }
    return hints;
}

}  // namespace zerohop::admit
