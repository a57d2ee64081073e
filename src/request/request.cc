#include "request/request.h"

#include "request/output_text.h"

namespace zerohop {
namespace {

// What a string has outside of itself.
std::size_t heap_bytes(const std::string& text) {
    return text.capacity() > std::string().capacity() ? text.capacity() + 1 : 0;
}

}  // namespace

std::size_t text_bytes(const Request& request) {
    std::size_t bytes = request.turns.capacity() * sizeof(Turn);
    for (const Turn& turn : request.turns) {
        bytes += turn.parts.capacity() * sizeof(std::string);
        for (const std::string& part : turn.parts) bytes += heap_bytes(part);
    }
    bytes += request.stop_sequences.capacity() * sizeof(std::string);
    for (const std::string& stop : request.stop_sequences)
        bytes += heap_bytes(stop) + stop.size() * OutputText::kBytesPerStopByte;
    return bytes;
}

void drop_turns(Request& request) {
    std::vector<Turn>().swap(request.turns);                                // its memory, too
    if (request.memory) (void)request.memory->resize(text_bytes(request));  // less: it fits
}

}  // namespace zerohop
