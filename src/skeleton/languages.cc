#include "skeleton/languages.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "base/ascii.h"

namespace zerohop::skeleton {
namespace {

struct Word {
    std::string_view text;
    Act act;
};

template <std::size_t N>
constexpr LangSpec make(std::string_view events, const std::array<Word, N>& words,
                        bool any_case = false) {
    LangSpec spec;
    spec.events = char_set(events);
    spec.any_case = any_case;
    for (const Word& word : words) {
        spec.slots[keyword_slot(word.text[0], word.text[1])] = spec.keyword_count;
        Keyword& k = spec.keywords[spec.keyword_count++];
        for (std::size_t i = 0; i < word.text.size(); ++i) k.text[i] = word.text[i];
        k.size = static_cast<std::uint8_t>(word.text.size());
        k.act = word.act;
        spec.first.add(word.text[0]);
        spec.second.add(word.text[1]);
        if (word.text.size() > 2)
            spec.third.add(word.text[2]);
        else
            for (const char c : std::string_view(" \t\n\r\f\v")) spec.third.add(c);
        if (any_case) {
            spec.first.add(static_cast<char>(word.text[0] - 32));
            spec.second.add(static_cast<char>(word.text[1] - 32));
            spec.third.add(static_cast<char>(word.text[2] - 32));
        }
    }
    return spec;
}

using A = Act;
constexpr std::array<LangSpec, kCodeLangs> kSpecs = {
    LangSpec{},
    make("\"'()[]{},#", std::array<Word, 4>{{{"def", A::kFunctionName},
                                             {"class", A::kClassNow},
                                             {"import", A::kImportFirst},
                                             {"from", A::kImportFirst}}}),
    make("\"'`()[]{},;=:/", std::array<Word, 4>{{{"function", A::kFunction},
                                                 {"class", A::kClassBody},
                                                 {"import", A::kImportJs},
                                                 {"require", A::kRequire}}}),
    make("\"'`()[]{},;=:/<>", std::array<Word, 6>{{{"function", A::kFunction},
                                                   {"class", A::kClassBody},
                                                   {"interface", A::kClassBody},
                                                   {"enum", A::kClassBody},
                                                   {"import", A::kImportJs},
                                                   {"require", A::kRequire}}}),
    make("\"'()[]{},;=:/#",
         std::array<Word, 3>{
             {{"struct", A::kClassBody}, {"union", A::kClassBody}, {"enum", A::kClassBody}}}),
    make("\"'()[]{},;=:/#<>", std::array<Word, 4>{{{"class", A::kClassBody},
                                                   {"struct", A::kClassBody},
                                                   {"union", A::kClassBody},
                                                   {"enum", A::kClassBody}}}),
    make("\"'()[]{},;=:/<>", std::array<Word, 6>{{{"class", A::kClassBody},
                                                  {"interface", A::kClassBody},
                                                  {"enum", A::kClassBody},
                                                  {"record", A::kClassBody},
                                                  {"import", A::kImport},
                                                  {"throws", A::kLock}}}),
    make("\"'`()[]{},;=/", std::array<Word, 5>{{{"func", A::kFunction},
                                                {"type", A::kGoType},
                                                {"struct", A::kGoBody},
                                                {"interface", A::kGoBody},
                                                {"import", A::kImport}}}),
    make("\"'()[]{},;/<>", std::array<Word, 5>{{{"fn", A::kFunctionName},
                                                {"struct", A::kClassNow},
                                                {"enum", A::kClassNow},
                                                {"trait", A::kClassNow},
                                                {"use", A::kImport}}}),
    make("\"'(),;/-",
         std::array<Word, 6>{{{"create", A::kSqlCreate},
                              {"table", A::kSqlClass},
                              {"view", A::kSqlClass},
                              {"type", A::kSqlClass},
                              {"function", A::kSqlFunction},
                              {"procedure", A::kSqlFunction}}},
         true),
};

constexpr bool slots_are_unique() {
    for (const LangSpec& spec : kSpecs)
        for (std::size_t i = 0; i < spec.keyword_count; ++i)
            if (spec.slots[keyword_slot(spec.keywords[i].text[0], spec.keywords[i].text[1])] != i)
                return false;
    return true;
}
static_assert(slots_are_unique());

// By length, so that one look at it leaves few to compare: kControlStart[n] is the first of n
// letters.
constexpr std::string_view kControl[] = {
    "if",
    "do",
    "in",
    "of",
    "or",
    "for",
    "try",
    "new",
    "and",
    "not",
    "with",
    "lock",
    "else",
    "void",
    "case",
    "when",
    "this",
    "while",
    "catch",
    "using",
    "throw",
    "await",
    "yield",
    "super",
    "switch",
    "return",
    "sizeof",
    "delete",
    "typeof",
    "assert",
    "foreach",
    "alignas",
    "decltype",
    "noexcept",
    "requires",
    "co_await",
    "constexpr",
    "co_return",
    "instanceof",
    "synchronized",
    "__attribute__",
    "static_assert",
};
// The first letters that words of n letters have, as bits.
constexpr auto kControlFirst = [] {
    std::array<std::uint32_t, 16> letters{};
    for (const std::string_view w : kControl) letters[w.size()] |= 1U << (w[0] & 31);
    return letters;
}();
constexpr auto kControlStart = [] {
    std::array<std::uint8_t, 16> start{};
    for (std::size_t n = 0; n < 16; ++n)
        for (const std::string_view w : kControl)
            start[n] = static_cast<std::uint8_t>(start[n] + (w.size() < n ? 1 : 0));
    return start;
}();

struct Tag {
    std::string_view tag;
    Lang lang;
    std::string_view shown;
};
constexpr Tag kTags[] = {
    {"python", Lang::kPython, ""},
    {"py", Lang::kPython, ""},
    {"python3", Lang::kPython, ""},
    {"py3", Lang::kPython, ""},
    {"javascript", Lang::kJavaScript, ""},
    {"js", Lang::kJavaScript, ""},
    {"jsx", Lang::kJavaScript, ""},
    {"mjs", Lang::kJavaScript, ""},
    {"node", Lang::kJavaScript, ""},
    {"typescript", Lang::kTypeScript, ""},
    {"ts", Lang::kTypeScript, ""},
    {"tsx", Lang::kTypeScript, ""},
    {"c", Lang::kC, ""},
    {"h", Lang::kC, ""},
    {"cpp", Lang::kCpp, ""},
    {"c++", Lang::kCpp, ""},
    {"cc", Lang::kCpp, ""},
    {"cxx", Lang::kCpp, ""},
    {"hpp", Lang::kCpp, ""},
    {"java", Lang::kJava, ""},
    {"go", Lang::kGo, ""},
    {"golang", Lang::kGo, ""},
    {"rust", Lang::kRust, ""},
    {"rs", Lang::kRust, ""},
    {"sql", Lang::kSql, ""},
    {"postgresql", Lang::kSql, ""},
    {"postgres", Lang::kSql, ""},
    {"mysql", Lang::kSql, ""},
    {"sqlite", Lang::kSql, ""},
    {"plsql", Lang::kSql, ""},
    {"json", Lang::kJson, ""},
    {"jsonc", Lang::kJson, ""},
    {"text", Lang::kPlain, ""},
    {"txt", Lang::kPlain, ""},
    {"plain", Lang::kPlain, ""},
    {"plaintext", Lang::kPlain, ""},
    {"bash", Lang::kOther, "BASH"},
    {"sh", Lang::kOther, "BASH"},
    {"shell", Lang::kOther, "BASH"},
    {"zsh", Lang::kOther, "BASH"},
    {"console", Lang::kOther, "BASH"},
    {"yaml", Lang::kOther, "YAML"},
    {"yml", Lang::kOther, "YAML"},
    {"md", Lang::kOther, "MARKDOWN"},
    {"markdown", Lang::kOther, "MARKDOWN"},
};
constexpr std::string_view kNames[] = {"PLAIN", "PYTHON", "JAVASCRIPT", "TYPESCRIPT",
                                       "C",     "CPP",    "JAVA",       "GO",
                                       "RUST",  "SQL",    "JSON",       "OTHER"};

// --- detection: points per language for what a line begins with or holds -----------------------
enum class Where : std::uint8_t { kBegin, kBeginAnyCase, kHold, kEnd };
struct Clue {
    std::string_view text;
    Where where;
    Lang lang;
    std::uint8_t points;
};
using L = Lang;
constexpr Clue kClues[] = {
    {"def ", Where::kBegin, L::kPython, 5},
    {"async def ", Where::kBegin, L::kPython, 6},
    {"elif ", Where::kBegin, L::kPython, 4},
    {"if __name__", Where::kBegin, L::kPython, 6},
    {"):", Where::kEnd, L::kPython, 2},
    {"self.", Where::kHold, L::kPython, 2},
    {"(self", Where::kHold, L::kPython, 3},
    {"except", Where::kBegin, L::kPython, 2},
    {"print(", Where::kBegin, L::kPython, 2},
    {"return None", Where::kBegin, L::kPython, 2},
    {"const ", Where::kBegin, L::kJavaScript, 2},
    {"let ", Where::kBegin, L::kJavaScript, 2},
    {"var ", Where::kBegin, L::kJavaScript, 2},
    {"function ", Where::kBegin, L::kJavaScript, 4},
    {"async function ", Where::kBegin, L::kJavaScript, 5},
    {" => ", Where::kHold, L::kJavaScript, 2},
    {"console.", Where::kHold, L::kJavaScript, 4},
    {"export ", Where::kBegin, L::kJavaScript, 3},
    {"require(", Where::kHold, L::kJavaScript, 3},
    {"===", Where::kHold, L::kJavaScript, 3},
    {"await ", Where::kHold, L::kJavaScript, 1},
    {": string", Where::kHold, L::kTypeScript, 4},
    {": number", Where::kHold, L::kTypeScript, 4},
    {": boolean", Where::kHold, L::kTypeScript, 4},
    {"interface ", Where::kBegin, L::kTypeScript, 2},
    {"export interface ", Where::kBegin, L::kTypeScript, 6},
    {"export type ", Where::kBegin, L::kTypeScript, 6},
    {"Promise<", Where::kHold, L::kTypeScript, 3},
    {": void", Where::kHold, L::kTypeScript, 3},
    {"#include <", Where::kBegin, L::kC, 4},
    {"#include \"", Where::kBegin, L::kC, 3},
    {"#define ", Where::kBegin, L::kC, 3},
    {"int main(", Where::kBegin, L::kC, 4},
    {"printf(", Where::kHold, L::kC, 2},
    {"malloc(", Where::kHold, L::kC, 3},
    {"static int ", Where::kBegin, L::kC, 4},
    {"int ", Where::kBegin, L::kC, 2},
    {"char *", Where::kHold, L::kC, 3},
    {"struct ", Where::kBegin, L::kC, 2},
    {"typedef ", Where::kBegin, L::kC, 4},
    {"void ", Where::kBegin, L::kC, 2},
    {"size_t ", Where::kHold, L::kC, 2},
    {"double ", Where::kBegin, L::kC, 2},
    {"std::", Where::kHold, L::kCpp, 6},
    {"template <", Where::kBegin, L::kCpp, 5},
    {"template<", Where::kBegin, L::kCpp, 5},
    {"namespace ", Where::kBegin, L::kCpp, 4},
    {"using namespace ", Where::kBegin, L::kCpp, 6},
    {"public:", Where::kBegin, L::kCpp, 5},
    {"private:", Where::kBegin, L::kCpp, 5},
    {"nullptr", Where::kHold, L::kCpp, 4},
    {"::", Where::kHold, L::kCpp, 1},
    {"auto ", Where::kBegin, L::kCpp, 2},
    {"public class ", Where::kBegin, L::kJava, 6},
    {"import java", Where::kBegin, L::kJava, 6},
    {"System.out", Where::kHold, L::kJava, 5},
    {"public static ", Where::kBegin, L::kJava, 5},
    {"private ", Where::kBegin, L::kJava, 2},
    {"public ", Where::kBegin, L::kJava, 3},
    {"@Override", Where::kBegin, L::kJava, 5},
    {"protected ", Where::kBegin, L::kJava, 2},
    {" throws ", Where::kHold, L::kJava, 4},
    {"final ", Where::kBegin, L::kJava, 2},
    {"package ", Where::kBegin, L::kGo, 4},
    {"func ", Where::kBegin, L::kGo, 5},
    {" := ", Where::kHold, L::kGo, 3},
    {"fmt.", Where::kHold, L::kGo, 3},
    {"if err != nil", Where::kBegin, L::kGo, 6},
    {"import (", Where::kBegin, L::kGo, 5},
    {"defer ", Where::kBegin, L::kGo, 3},
    {"type ", Where::kBegin, L::kGo, 1},
    {"fn ", Where::kBegin, L::kRust, 5},
    {"pub ", Where::kBegin, L::kRust, 5},
    {"pub fn ", Where::kBegin, L::kRust, 5},
    {"let mut ", Where::kBegin, L::kRust, 6},
    {"impl", Where::kBegin, L::kRust, 4},
    {"use std::", Where::kBegin, L::kRust, 14},
    {"use crate::", Where::kBegin, L::kRust, 14},
    {"println!", Where::kHold, L::kRust, 5},
    {"#[derive", Where::kBegin, L::kRust, 6},
    {"&mut ", Where::kHold, L::kRust, 4},
    {"&str", Where::kHold, L::kRust, 5},
    {"SELECT ", Where::kBeginAnyCase, L::kSql, 3},
    {"INSERT INTO ", Where::kBeginAnyCase, L::kSql, 5},
    {"CREATE TABLE ", Where::kBeginAnyCase, L::kSql, 6},
    {"CREATE OR REPLACE ", Where::kBeginAnyCase, L::kSql, 6},
    {"CREATE FUNCTION ", Where::kBeginAnyCase, L::kSql, 6},
    {"CREATE PROCEDURE ", Where::kBeginAnyCase, L::kSql, 6},
    {"CREATE VIEW ", Where::kBeginAnyCase, L::kSql, 6},
    {"CREATE INDEX ", Where::kBeginAnyCase, L::kSql, 6},
    {"ALTER TABLE ", Where::kBeginAnyCase, L::kSql, 6},
    {"UPDATE ", Where::kBegin, L::kSql, 2},
    {"DELETE FROM ", Where::kBeginAnyCase, L::kSql, 6},
    {"FROM ", Where::kBegin, L::kSql, 2},
    {"WHERE ", Where::kBegin, L::kSql, 2},
    {"GROUP BY ", Where::kBeginAnyCase, L::kSql, 3},
    {"ORDER BY ", Where::kBeginAnyCase, L::kSql, 3},
};

constexpr char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }
bool begins(std::string_view line, std::string_view with, bool any_case) {
    if (line.size() < with.size()) return false;
    if (!any_case) return std::memcmp(line.data(), with.data(), with.size()) == 0;
    for (std::size_t i = 0; i < with.size(); ++i)
        if (lower(line[i]) != lower(with[i])) return false;
    return true;
}

// Words that "class X", "import x" and the like need around them to be code and not English.
bool python_import(std::string_view line) {
    if (begins(line, "import ", false)) {
        for (const char c : line.substr(7))
            if (!(lower(c) >= 'a' && lower(c) <= 'z') && !(c >= '0' && c <= '9') && c != '_' &&
                c != '.' && c != ',' && c != ' ')
                return false;
        const auto rest = trim_blanks(line.substr(7));
        return rest.find(' ') == std::string_view::npos ||
               rest.find(" as ") != std::string_view::npos ||
               rest.find(", ") != std::string_view::npos;
    }
    return begins(line, "from ", false) && line.find(" import ") != std::string_view::npos;
}

// Clues by where they stand: those that begin a line are found by its first letter.
constexpr std::size_t kClueCount = std::size(kClues);
struct ClueIndex {
    std::array<std::uint8_t, kClueCount> order{};  // begin clues, by first letter (lower case)
    std::array<std::uint8_t, 129> start{};         // into order
    std::array<std::uint8_t, kClueCount> hold{};   // the others
    std::size_t hold_count = 0;
};
constexpr ClueIndex kIndex = [] {
    ClueIndex index;
    std::size_t n = 0;
    for (std::size_t c = 0; c < 128; ++c) {
        index.start[c] = static_cast<std::uint8_t>(n);
        for (std::size_t i = 0; i < kClueCount; ++i)
            if (kClues[i].where != Where::kHold && kClues[i].where != Where::kEnd &&
                static_cast<std::size_t>(lower(kClues[i].text[0])) == c)
                index.order[n++] = static_cast<std::uint8_t>(i);
    }
    index.start[128] = static_cast<std::uint8_t>(n);
    for (std::size_t i = 0; i < kClueCount; ++i)
        if (kClues[i].where == Where::kHold || kClues[i].where == Where::kEnd)
            index.hold[index.hold_count++] = static_cast<std::uint8_t>(i);
    return index;
}();

void score_line(std::string_view line, std::array<int, kCodeLangs>& score) {
    const bool opens = line.back() == '{';
    const bool ends = line.back() == ';' || opens;
    const auto hit = [&score](const Clue& clue) {
        score[static_cast<std::size_t>(clue.lang)] += clue.points;
    };
    const auto first = static_cast<unsigned char>(lower(line[0]));
    if (first < 128)
        for (std::size_t i = kIndex.start[first]; i < kIndex.start[first + 1U]; ++i) {
            const Clue& clue = kClues[kIndex.order[i]];
            if (begins(line, clue.text, clue.where == Where::kBeginAnyCase)) hit(clue);
        }
    CharSet present;
    for (const char c : line)
        if (static_cast<unsigned char>(c) < 128) present.add(c);
    for (std::size_t i = 0; i < kIndex.hold_count; ++i) {
        const Clue& clue = kClues[kIndex.hold[i]];
        if (!present.has(clue.text[0]) || !present.has(clue.text.back())) continue;
        if (clue.where == Where::kEnd ? line.ends_with(clue.text)
                                      : line.find(clue.text) != std::string_view::npos)
            hit(clue);
    }
    if (python_import(line)) score[1] += 4;
    if (begins(line, "import ", false)) {
        if (line.back() == ';') score[6] += 3;  // Java; JavaScript has quotes
        if (line.find('\'') != std::string_view::npos || line.find('"') != std::string_view::npos)
            score[2] += 5;
    }
    if (begins(line, "package ", false) && line.back() == ';') score[6] += 6;
    if (begins(line, "class ", false)) {
        if (line.back() == ':') score[1] += 4;
        if (opens) score[2] += 2, score[5] += 1, score[6] += 2;
    }
    if (begins(line, "type ", false) && opens) score[7] += 4;
    if (ends) score[4] += 1, score[2] += 1, score[6] += 1;
}

}  // namespace

const LangSpec& spec_of(Lang lang) {
    const auto i = static_cast<std::size_t>(lang);
    return kSpecs[i < kCodeLangs ? i : 0];
}

bool is_control_word(std::string_view word) {
    if (word.empty() || word.size() > 13 || (kControlFirst[word.size()] >> (word[0] & 31) & 1) == 0)
        return false;
    const std::size_t end = kControlStart[word.size() + 1];
    for (std::size_t i = kControlStart[word.size()]; i < end; ++i)
        if (kControl[i][0] == word[0] &&
            std::memcmp(kControl[i].data(), word.data(), word.size()) == 0)
            return true;
    return false;
}

Lang lang_from_tag(std::string_view tag, std::string_view& shown) {
    shown = {};
    if (tag.size() > 12) return Lang::kOther;
    char small[12];
    for (std::size_t i = 0; i < tag.size(); ++i) small[i] = lower(tag[i]);
    const std::string_view want(small, tag.size());
    for (const Tag& t : kTags)
        if (t.tag == want) {
            shown = t.shown;
            return t.lang;
        }
    return Lang::kOther;
}

std::string_view lang_name(Lang lang) { return kNames[static_cast<std::size_t>(lang)]; }

// Letters, what comments begin with, # and @; and line ends.
bool may_begin_code(char c) {
    static constexpr CharSet kBegin =
        char_set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ/*-#@\n\r");
    return kBegin.has(c);
}

bool may_be_code(std::string_view text) {
    // "Please …": most prose ends here.
    if (text.size() > 1 && text[0] >= 'A' && text[0] <= 'Z' && text[1] >= 'a' && text[1] <= 'z')
        return false;
    // The first line that is not empty and no comment must hold a mark that prose seldom has.
    std::size_t at = 0;
    for (int lines = 0; lines < 8 && at < text.size(); ++lines) {
        const std::size_t stop = std::min(text.size(), at + 160);
        std::size_t end = at;
        while (end < stop && (text[end] == ' ' || text[end] == '\t')) ++end;
        if (end < stop && !may_begin_code(text[end])) return false;
        while (end < stop && text[end] != '\n' && text[end] != '\r') ++end;
        const std::string_view line = trim_blanks(text.substr(at, end - at));
        at = end + 1;
        if (line.empty() || begins(line, "//", false) || begins(line, "/*", false) ||
            begins(line, "* ", false) || begins(line, "#!", false) || begins(line, "--", false) ||
            begins(line, "# ", false))
            continue;
        const char c = line[0];
        if (c == '#' || c == '@') return line.size() > 1 && line[1] != ' ' && line[1] != '#';
        if (!(lower(c) >= 'a' && lower(c) <= 'z')) return false;
        const char last = line.back();
        if (last == '{' || last == ';' || last == '(') return true;
        if (last == ':' || last == ')')
            return line.find('(') != std::string_view::npos || begins(line, "class ", false);
        if (last == ',' && line.find('(') != std::string_view::npos) return true;
        return python_import(line) || begins(line, "def ", false) ||
               begins(line, "public ", false) || begins(line, "pub ", false) ||
               begins(line, "fn ", false) || begins(line, "function ", false) ||
               begins(line, "package ", false) || begins(line, "select ", true) ||
               begins(line, "create ", true) || begins(line, "insert into ", true) ||
               begins(line, "import ", false) || begins(line, "from ", false) ||
               begins(line, "delete from ", true) || begins(line, "update ", true) ||
               begins(line, "alter table ", true) || begins(line, "const ", false) ||
               begins(line, "int ", false) || begins(line, "static ", false) ||
               begins(line, "void ", false) || begins(line, "template ", false) ||
               begins(line, "class ", false) || begins(line, "type ", false) ||
               begins(line, "struct ", false) || begins(line, "func ", false);
    }
    return false;
}

Lang detect_language(std::string_view code, bool whole_message) {
    if (whole_message && !may_be_code(code)) return Lang::kPlain;
    code = code.substr(0, 4096);
    std::array<int, kCodeLangs> score{};
    int first = 0;
    int lines = 0;
    int prose = 0;
    for (std::size_t at = 0; at < code.size() && lines < 12;) {
        std::size_t end = at;
        while (end < code.size() && code[end] != '\n' && code[end] != '\r') ++end;
        const std::string_view line =
            trim_blanks(code.substr(at, std::min<std::size_t>(end - at, 256)));
        at = end + 1;
        if (line.empty() || begins(line, "//", false) || begins(line, "--", false) ||
            begins(line, "/*", false) || begins(line, "* ", false) || begins(line, "# ", false))
            continue;
        ++lines;
        const int before = *std::max_element(score.begin(), score.end());
        score_line(line, score);
        const int now = *std::max_element(score.begin(), score.end());
        if (lines == 1) {
            first = now;
            if (whole_message && first < 2) return Lang::kPlain;
        }
        const char last = line.back();
        if (before == now && (last == '.' || last == '?' || last == '!') &&
            line.find(' ') != std::string_view::npos)
            ++prose;
    }
    // TypeScript is JavaScript with types, C++ is C with more: the base language's points count.
    if (score[3] >= 3) score[3] += score[2];
    if (score[5] >= 4) score[5] += score[4];
    const auto best =
        static_cast<std::size_t>(std::max_element(score.begin() + 1, score.end()) - score.begin());
    if (score[best] < 3) return Lang::kPlain;
    if (whole_message && (first < 2 || score[best] < 5 || prose > 0)) return Lang::kPlain;
    return static_cast<Lang>(best);
}

std::size_t language_table_bytes() {
    std::size_t text = 0;
    for (const Clue& c : kClues) text += c.text.size() + 1;
    for (const Tag& t : kTags) text += t.tag.size() + 1;
    for (const std::string_view w : kControl) text += w.size() + 1;
    return sizeof(kSpecs) + sizeof(kControl) + sizeof(kTags) + sizeof(kNames) + sizeof(kClues) +
           text;
}

}  // namespace zerohop::skeleton
