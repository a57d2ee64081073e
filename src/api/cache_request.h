// What a request asks of the caches, apart from its JSON: where breakpoints lie, which lines of the
// system prompt mean nothing, and what turns a request into a warm-up.
//
// Threads: any; pure functions over the caller's Request. They fail only where a Status says so,
// with kInvalidRequest.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "request/request.h"

namespace zerohop::api {

inline constexpr MonoNs kShortTtl = 300 * kNsPerSec;   // "5m"
inline constexpr MonoNs kLongTtl = 3'600 * kNsPerSec;  // "1h"

// Appends a breakpoint behind the last text so far: an empty block has nothing of its own to keep.
// Two in one place are one, of the longer time; without any text there is none.
void place_breakpoint(const std::vector<Turn>& turns, MonoNs ttl_ns,
                      std::vector<CacheBreakpoint>& out);

// Drops the lines of system turns that begin with one of `prefixes`, their line ends included; of a
// list of attributes ("PREFIX name=value; name=value;") with more joined on, only the list. What is
// emptied vanishes, its breakpoint moves to the text before it. Returns how many lines changed.
std::uint32_t drop_lines(Request& request, std::span<const std::string> prefixes);

// Appends the turns of tagged text (<system>, <user>, <assistant>; text outside of them is the
// user's). Fails when there is no text in it.
Status append_tagged(std::string_view text, std::vector<Turn>& turns);

// From here on the request fills the cache up to the end of its turns and generates nothing. Fails
// when it has none.
Status make_warm_up(Request& request, MonoNs ttl_ns);

// For a template that refuses a prompt without a user: the request with an empty user turn at its
// end, breakpoints as they were. False when there is a user turn already.
bool add_user_turn(Request& request);

}  // namespace zerohop::api
