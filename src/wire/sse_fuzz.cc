// SSE round trip: whatever text is written as one event is read back as that one event by a parser
// that follows the WHATWG rules (line ends become LF), and comments are read as nothing.
#include <cstdint>
#include <string>
#include <vector>

#include "base/check.h"
#include "wire/sse.h"

namespace {

struct Event {
    std::string name;
    std::string data;
    bool operator==(const Event&) const = default;
};

// CRLF, CR and LF to LF.
std::string normal(std::string_view text) {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '\r') {
            out += '\n';
            if (i + 1 < text.size() && text[i + 1] == '\n') ++i;
        } else {
            out += text[i];
        }
    }
    return out;
}

std::vector<Event> parse(std::string_view stream) {
    std::vector<Event> events;
    Event event;
    bool any = false;
    const std::string text = normal(stream);
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = text.find('\n', at);
        ZH_CHECK(end != std::string::npos);  // nothing is left half a line
        const std::string line = text.substr(at, end - at);
        at = end + 1;
        if (line.empty()) {
            if (any) {
                event.data.pop_back();  // the last line's LF
                events.push_back(event);
            }
            event = {};
            any = false;
        } else if (line[0] != ':') {
            const std::size_t colon = line.find(": ");
            const std::string field = line.substr(0, colon);
            const std::string value = line.substr(colon + 2);
            if (field == "event") event.name = value;
            if (field == "data") {
                event.data += value + '\n';
                any = true;
            }
        }
    }
    return events;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using zerohop::wire::append_sse;
    using zerohop::wire::append_sse_comment;
    const std::string text(reinterpret_cast<const char*>(data), size);
    const std::size_t cut = text.find('\0');
    const std::string name = cut == std::string::npos ? "message_delta" : text.substr(0, cut);
    const std::string body = cut == std::string::npos ? text : text.substr(cut + 1);
    std::string out;
    append_sse_comment(out, body);
    append_sse(out, name, body);
    append_sse_comment(out, name);
    append_sse(out, "", body);
    const std::vector<Event> events = parse(out);
    ZH_CHECK(events.size() == 2);
    ZH_CHECK((events[0] == Event{name.substr(0, name.find_first_of("\r\n")), normal(body)}));
    ZH_CHECK((events[1] == Event{"", normal(body)}));
    return 0;
}
