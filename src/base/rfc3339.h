// RFC 3339 time stamps in UTC, whole seconds: "2026-01-02T03:04:05Z".
//
// Threads: any; pure functions. parse accepts "Z" or a numeric offset and ignores a fraction;
// anything else, or a date outside 1970–2261, is nullopt.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace zerohop {

std::string format_rfc3339(WallNs t);
// The same into a buffer of exactly kRfc3339Size bytes, for the request path.
inline constexpr std::size_t kRfc3339Size = 20;
void format_rfc3339(WallNs t, char* out);
std::optional<WallNs> parse_rfc3339(std::string_view text);

}  // namespace zerohop
