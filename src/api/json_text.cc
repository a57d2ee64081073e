#include "api/json_text.h"

#include <simdjson.h>

#include <array>
#include <charconv>

namespace zerohop::api {
namespace {

// 0: copy; 1: escape; 2: first byte of a code point that may be a Unicode line end.
constexpr std::array<std::uint8_t, 256> make_classes() {
    std::array<std::uint8_t, 256> classes{};
    for (int c = 0; c < 0x20; ++c) classes[static_cast<std::size_t>(c)] = 1;
    classes['"'] = 1;
    classes['\\'] = 1;
    classes[0xC2] = 2;
    classes[0xE2] = 2;
    return classes;
}
constexpr std::array<std::uint8_t, 256> kClasses = make_classes();

void append_unicode_escape(std::string& out, unsigned code) {
    constexpr std::string_view kHex = "0123456789abcdef";
    const char text[6] = {'\\',
                          'u',
                          kHex[(code >> 12) & 15],
                          kHex[(code >> 8) & 15],
                          kHex[(code >> 4) & 15],
                          kHex[code & 15]};
    out.append(text, sizeof text);
}

void append_escaped(std::string& out, unsigned char c) {
    switch (c) {
        case '"':
            out += "\\\"";
            break;
        case '\\':
            out += "\\\\";
            break;
        case '\n':
            out += "\\n";
            break;
        case '\r':
            out += "\\r";
            break;
        case '\t':
            out += "\\t";
            break;
        case '\b':
            out += "\\b";
            break;
        case '\f':
            out += "\\f";
            break;
        default:
            append_unicode_escape(out, c);
    }
}

// The Unicode line end that starts at text[i], 0 when it is another code point.
unsigned line_end_at(std::string_view text, std::size_t i) {
    const auto rest = text.substr(i);
    if (rest.starts_with("\xC2\x85")) return 0x85;
    if (rest.starts_with("\xE2\x80\xA8")) return 0x2028;
    if (rest.starts_with("\xE2\x80\xA9")) return 0x2029;
    return 0;
}

}  // namespace

void append_json_string(std::string& out, std::string_view text) {
    out += '"';
    std::size_t run = 0;  // start of what is copied as it is
    for (std::size_t i = 0; i < text.size(); ++i) {
        const auto c = static_cast<unsigned char>(text[i]);
        const std::uint8_t cls = kClasses[c];
        if (cls == 0) [[likely]]
            continue;
        if (cls == 2) {
            const unsigned code = line_end_at(text, i);
            if (code == 0) continue;
            out.append(text, run, i - run);
            append_unicode_escape(out, code);
            i += code == 0x85 ? 1 : 2;
        } else {
            out.append(text, run, i - run);
            append_escaped(out, c);
        }
        run = i + 1;
    }
    out.append(text, run, text.size() - run);
    out += '"';
}

void append_int(std::string& out, std::int64_t value) {
    char digits[24];
    const auto end = std::to_chars(digits, digits + sizeof digits, value);
    out.append(digits, end.ptr);
}

std::string in_quotes(std::string_view text) {
    constexpr std::size_t kShown = 64;
    bool cut = false;
    if (text.size() > kShown) {
        std::size_t end = kShown;
        while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
        text = text.substr(0, end);
        cut = true;
    }
    std::string out = "'";
    const bool utf8 = simdjson::validate_utf8(text.data(), text.size());
    for (const char c : text) out += utf8 || static_cast<unsigned char>(c) < 0x80 ? c : '?';
    out += cut ? "…'" : "'";
    return out;
}

}  // namespace zerohop::api
