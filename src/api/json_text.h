// Writing JSON text: the few pieces `api` needs, appended to a string the caller owns.
//
// On the token path (every delta goes through append_json_string), so no tree, no temporary.
// Threads: any. Nothing fails. Input is valid UTF-8, checked where it entered the process.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace zerohop::api {

// Appends `text` quoted and escaped. Besides what JSON demands, U+0085, U+2028 and U+2029 are
// written as escapes: some SSE readers split lines at every Unicode line end.
void append_json_string(std::string& out, std::string_view text);

void append_int(std::string& out, std::int64_t value);

// `text` in single quotes for an error message: cut after 64 bytes, at a code point's start. It may
// come straight from a header or a path: what is not UTF-8 is shown as '?'.
std::string in_quotes(std::string_view text);

}  // namespace zerohop::api
