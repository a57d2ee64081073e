// The two URL pieces the routes need: percent-decoding and query parameters.
//
// Threads: any. Malformed escapes yield nothing rather than a guess.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace zerohop::api {

// RFC 3986 §2.1. Nothing when a '%' lacks its two hex digits.
std::optional<std::string> percent_decode(std::string_view text);

using QueryPairs = std::vector<std::pair<std::string, std::string>>;

// "a=1&b%5B%5D=x" -> {{"a","1"},{"b[]","x"}}; '+' is a space. A key without '=' has the value "".
// Nothing on a malformed escape or more than 256 pairs.
std::optional<QueryPairs> parse_query(std::string_view query);

}  // namespace zerohop::api
