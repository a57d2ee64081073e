// Languages: names, tags, the tables the code scanner reads, and detection without a tag.
//
// Constant tables only (built at compile time, counted by tables_bytes()); any thread; nothing
// fails.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace zerohop::skeleton {

enum class Lang : std::uint8_t {
    kPlain,
    kPython,
    kJavaScript,
    kTypeScript,
    kC,
    kCpp,
    kJava,
    kGo,
    kRust,
    kSql,
    kJson,
    kOther,  // kOther: named by its tag, no structure inside
};
inline constexpr std::size_t kCodeLangs = 10;  // kPlain (empty) to kSql have a LangSpec

// A set of ASCII characters as a 16-entry table: bit h of lo[l] says that h*16+l is in the set. One
// shuffle looks up 16 or 32 bytes at once; bytes from 0x80 are in no set.
struct CharSet {
    std::array<std::uint8_t, 16> lo{};
    constexpr void add(char c) {
        const auto u = static_cast<unsigned char>(c);
        lo[u & 15] = static_cast<std::uint8_t>(lo[u & 15] | (1U << (u >> 4)));
    }
    constexpr bool has(char c) const {
        const auto u = static_cast<unsigned char>(c);
        return u < 128 && ((lo[u & 15] >> (u >> 4)) & 1) != 0;
    }
};
constexpr CharSet char_set(std::string_view chars) {
    CharSet set;
    for (const char c : chars) set.add(c);
    return set;
}

enum class Act : std::uint8_t {
    kFunction,      // the next ( opens its parameters
    kFunctionName,  // the same, when a word follows
    kClassNow,      // a class, when a word follows
    kClassBody,     // a class, when { comes before what cancels it
    kImport,
    kImportFirst,  // an import when it is the first word of its line
    kImportJs,     // an import unless ( or . follows
    kRequire,      // an import when ( follows at once
    kLock,         // throws: what follows does not replace the candidate
    kGoType,
    kGoBody,
    kSqlCreate,
    kSqlClass,
    kSqlFunction,
};

struct Keyword {
    char text[14] = {};
    std::uint8_t size = 0;
    Act act = Act::kFunction;
};

// By a word's first two letters, in either case.
constexpr std::size_t keyword_slot(char first, char second) {
    return (static_cast<unsigned char>(first) * 17U + static_cast<unsigned char>(second)) & 31U;
}

struct LangSpec {
    CharSet events;  // punctuation the scanner stops at
    CharSet first;   // first, second and third characters of keywords; a space ends one of two
    CharSet second;
    CharSet third;
    std::array<Keyword, 8> keywords{};
    std::array<std::uint8_t, 32> slots{};  // which keyword may begin with two letters
    std::uint8_t keyword_count = 0;
    bool any_case = false;
};

const LangSpec& spec_of(Lang lang);
// Words before "(" that are no function's name.
bool is_control_word(std::string_view word);
// The language an info string's first word names; `shown` is its canonical name (kOther: the name
// of a known alias, or empty: the tag itself in upper case).
Lang lang_from_tag(std::string_view tag, std::string_view& shown);
std::string_view lang_name(Lang lang);
// Looks at the first 4 KiB. `whole_message`: the text is not fenced, so its first line must look
// like code. kPlain when it is no language known here.
Lang detect_language(std::string_view code, bool whole_message);
// A cheap filter before detect_language(…, true).
bool may_be_code(std::string_view text);

std::size_t language_table_bytes();

}  // namespace zerohop::skeleton
