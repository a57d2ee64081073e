// What scanner.h needs, apart from it: scan_avx2.cc includes these before its target pragma.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "skeleton/arena.h"
#include "skeleton/languages.h"
#include "skeleton/skeleton.h"
#include "skeleton/volatile_match.h"

namespace zerohop::skeleton {

inline constexpr std::uint8_t kSpace = 1, kNewline = 2, kIdent = 4, kNameStart = 8, kNameChar = 16,
                              kNumber = 32;
inline constexpr auto kCharClass = [] {
    std::array<std::uint8_t, 256> t{};
    for (std::size_t c = 0; c < 256; ++c) {
        const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        const bool digit = c >= '0' && c <= '9';
        std::uint8_t bits = 0;
        if (c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v')
            bits |= kSpace;
        if (c == '\n' || c == '\r') bits |= kNewline;
        if (letter || digit || c == '_' || c == '$' || c >= 128) bits |= kIdent;
        if (letter || c == '_' || c >= 128) bits |= kNameStart;
        if (letter || digit || c == '_' || c == '-' || c == '.' || c == ':' || c >= 128)
            bits |= kNameChar;
        if (digit || c == '.' || c == 'e' || c == 'E' || c == '+' || c == '-') bits |= kNumber;
        t[c] = bits;
    }
    return t;
}();
inline constexpr CharSet kIdentSet =
    char_set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_$");
inline constexpr CharSet kDigitSet = char_set("0123456789");
inline constexpr CharSet kAlnumSet =
    char_set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789");
inline constexpr CharSet kLetterSet =
    char_set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ");
inline constexpr CharSet kJoinSet = char_set("_-");
// Around the digits of volatile values: between a counter's word and its number, the last letters
// of those words (or #), and what follows the first digits of dates and times.
inline constexpr CharSet kGapSet = char_set(" :=");
inline constexpr CharSet kCounterEndSet = char_set("tnrqeTNRQE#");
inline constexpr CharSet kAfterSet = char_set("-/:");
inline constexpr CharSet kTextSet = char_set("\n\r<");
inline constexpr CharSet kStrictSet = char_set("\n\r<>&");
inline constexpr CharSet kLineSet = char_set("\n\r");

}  // namespace zerohop::skeleton
