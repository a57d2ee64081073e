#include "wire/sse.h"

namespace zerohop::wire {
namespace {

// Appends text with `prefix` before each of its lines; CRLF, CR and LF all end a line.
void append_lines(std::string& out, std::string_view prefix, std::string_view text) {
    while (true) {
        const auto end = text.find_first_of("\r\n");
        out += prefix;
        out += text.substr(0, end);
        out += '\n';
        if (end == std::string_view::npos) return;
        text.remove_prefix(end + (text.substr(end, 2) == "\r\n" ? 2 : 1));
    }
}

}  // namespace

void append_sse(std::string& out, std::string_view event, std::string_view data) {
    out.reserve(out.size() + event.size() + data.size() + 16);
    if (!event.empty()) {
        out += "event: ";
        out += event.substr(0, event.find_first_of("\r\n"));
        out += '\n';
    }
    append_lines(out, "data: ", data);
    out += '\n';
}

void append_sse_comment(std::string& out, std::string_view text) {
    append_lines(out, ": ", text);
    out += '\n';
}

}  // namespace zerohop::wire
