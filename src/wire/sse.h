// Server-sent events, the writing side (WHATWG HTML §9.2): event name and one line of JSON to
// bytes.
//
// Threads: any; no state. `data` must be a single line: JSON writers escape line ends, and a CR or
// LF that is there nevertheless starts a new `data:` line, so that no text can forge an event.
#pragma once

#include <string>
#include <string_view>

namespace zerohop::wire {

// Appends "event: NAME\ndata: DATA\n\n"; without the event line when `event` is empty (OpenAI).
void append_sse(std::string& out, std::string_view event, std::string_view data);
// Appends a comment, which every client ignores: ": TEXT\n\n".
void append_sse_comment(std::string& out, std::string_view text);

}  // namespace zerohop::wire
