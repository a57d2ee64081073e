// Words and places for parse errors and volatile kinds.
#include <fmt/format.h>

#include <algorithm>

#include "skeleton/skeleton.h"

namespace zerohop::skeleton {
namespace {

struct Words {
    std::string_view name;
    std::string_view what;
    std::string_view cure;
};
constexpr Words kWords[kProblems] = {
    {"invalid_utf8", "bytes that are not UTF-8", "save the text as UTF-8"},
    {"nul_byte", "a NUL byte", "remove it"},
    {"raw_less", "a raw <", "write &lt;"},
    {"raw_greater", "a raw >", "write &gt;"},
    {"raw_ampersand", "a raw &", "write &amp;"},
    {"unclosed_tag", "a tag that is never closed", "close it, or write &lt; if it is text"},
    {"stray_close", "a closing tag without its opening one", "remove it, or open it before"},
    {"illegal_tag", "a tag that is not well formed",
     "a name of letters, digits, _ - . : and a closing >; write &lt; if it is text"},
    {"too_deep", "more than 64 open tags", "flatten the structure"},
    {"unclosed_fence", "a code fence that is never closed",
     "close it with the same marks on a line of its own"},
    {"too_large", "a block larger than 1 GiB", "split it"},
    {"text_outside_roles", "text outside of <system>, <user> and <assistant>",
     "move it into one of them"},
    {"role_inside_role", "a role tag inside of another role",
     "roles stand at the top level; rename the tag"},
};
constexpr std::string_view kVolatileNames[] = {"timestamp", "date",  "time",  "uuid",
                                               "hex",       "token", "epoch", "counter"};

}  // namespace

std::string_view name_of(VolatileKind kind) {
    return kVolatileNames[static_cast<std::size_t>(kind)];
}
std::string_view name_of(Problem problem) { return kWords[static_cast<std::size_t>(problem)].name; }
std::string_view cure_of(Problem problem) { return kWords[static_cast<std::size_t>(problem)].cure; }

Place place_of(std::string_view text, std::size_t offset) {
    Place place;
    offset = std::min(offset, text.size());
    for (std::size_t i = 0; i < offset; ++i) {
        const auto c = static_cast<unsigned char>(text[i]);
        if (c == '\n' || (c == '\r' && !(i + 1 < text.size() && text[i + 1] == '\n'))) {
            ++place.line;
            place.column = 1;
        } else if ((c & 0xC0) != 0x80) {
            ++place.column;
        }
    }
    return place;
}

std::string describe(const ParseError& error, std::string_view block_text) {
    const Place place = place_of(block_text, error.offset);
    // A few characters of what was found, never half of one, controls made visible.
    std::string found;
    for (std::size_t i = error.offset; i < block_text.size() && found.size() < 24; ++i) {
        const auto c = static_cast<unsigned char>(block_text[i]);
        if (c == '\n' || c == '\r') break;
        if (c < 0x20 || c >= 0x7F)
            found += fmt::format("\\x{:02x}", c);
        else
            found += block_text[i];
    }
    const Words& words = kWords[static_cast<std::size_t>(error.problem)];
    return fmt::format("SKELETON_PARSE_ERROR line {} column {}: found {} at \"{}\"; cure: {}",
                       place.line, place.column, words.what, found, words.cure);
}

}  // namespace zerohop::skeleton
