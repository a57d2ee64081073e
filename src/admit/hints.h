// The head fields that decide: found in one pass, parsed without allocating.
//
//     early-hint:        model=ID;region=NAME          cuda-stream:       NAME of a lane
//     rate-hint:         tokens=N;priority=high|normal|low
//     debug:             skeleton                      stream-buffering:  on | off
//
// Whether there is a lane of that name is for those to say who know the lanes.
//
// Each as `x-anthropic-…` or `x-zerohop-…`; both, or one of them twice, with different values is
// 400. Keys and values are case-insensitive ASCII; pairs are separated by ";", blanks around each
// are ignored. An empty header is as good as none, one longer than 256 bytes is ignored, and so is
// an unknown key; a malformed value of a known key is 400 naming header, key and value.
//
// Threads: any; pure functions. Views point into the RequestHead and live as long as it does.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/ascii.h"
#include "base/error.h"
#include "request/priority.h"
#include "wire/http.h"

namespace zerohop::admit {

inline constexpr std::size_t kMaxHintBytes = 256;

enum class HintHeader : std::uint8_t { kEarlyHint, kRateHint, kLane, kDebug, kBuffering };
inline constexpr std::size_t kHintHeaders = 5;

// What scan_head found; nothing is judged yet, so that who asks can be settled first.
struct HeadFields {
    std::string_view x_api_key, authorization;
    bool two_keys = false;  // x-api-key or authorization came twice with different values
    std::array<std::string_view, kHintHeaders> hints{};
    std::array<std::string_view, kHintHeaders> names{};  // as sent, for messages; "": absent
    std::array<bool, kHintHeaders> conflict{};           // two different values
};
HeadFields scan_head(const wire::RequestHead& head);

struct Hints {
    std::string_view model;              // as sent, any case; "": none
    std::string_view region;             // likewise
    std::string_view lane;               // likewise
    std::optional<std::int32_t> tokens;  // expected output
    std::optional<Priority> priority;
    bool skeleton = false;  // x-anthropic-debug: skeleton
    std::optional<bool> buffering;
};
// Fails with kInvalidRequest.
Result<Hints> parse_hints(const HeadFields& fields);

// For messages: at most 64 bytes, anything but printable ASCII (and a quote) as "?".
std::string printable(std::string_view value);

}  // namespace zerohop::admit
