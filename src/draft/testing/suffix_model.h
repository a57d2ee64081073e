// Plain counterparts of SuffixAutomaton for tests and fuzzing: texts kept as they are, substrings
// searched by comparing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "draft/suffix_automaton.h"

namespace zerohop::draft::testing {

using Text = std::vector<Token>;

inline std::uint32_t occurrences(const std::vector<Text>& texts, std::span<const Token> what) {
    std::uint32_t n = 0;
    for (const Text& t : texts)
        for (std::size_t at = 0; at + what.size() <= t.size(); ++at)
            if (std::equal(what.begin(), what.end(), t.begin() + std::ptrdiff_t(at))) ++n;
    return n;
}

// Longest suffix of `read` that occurs in the texts.
inline std::uint32_t longest(const std::vector<Text>& texts, std::span<const Token> read) {
    for (std::size_t n = read.size(); n > 0; --n)
        if (occurrences(texts, read.last(n)) > 0) return static_cast<std::uint32_t>(n);
    return 0;
}

// Feeds texts to an automaton and a reader to both, and CHECKs that they agree. `exact_counts` only
// when no text is longer than the automaton's count walk.
inline void compare(const std::vector<Text>& texts, std::span<const Token> reader,
                    bool exact_counts) {
    SuffixAutomaton automaton;
    std::vector<Text> fed;
    Cursor cursor;
    std::vector<Token> read;
    std::size_t at = 0;
    for (const Text& text : texts) {
        automaton.begin_text();
        fed.emplace_back();
        for (const Token t : text) {
            automaton.add(t);
            fed.back().push_back(t);
            const Cursor again = automaton.repeated();
            std::uint32_t expect = 0;
            for (std::size_t n = fed.back().size(); n > 0 && expect == 0; --n)
                if (occurrences(fed, std::span(fed.back()).last(n)) > 1)
                    expect = static_cast<std::uint32_t>(n);
            ZH_CHECK(again.length == expect);
        }
        // The reader goes on while texts are added: its cursor must survive splits.
        for (std::size_t k = 0; k < 5 && at < reader.size(); ++k, ++at) {
            automaton.read(cursor, reader[at]);
            read.push_back(reader[at]);
            ZH_CHECK(cursor.length <= longest(fed, read));
        }
    }
    cursor = {};
    read.clear();
    for (const Token t : reader) {
        automaton.read(cursor, t);
        read.push_back(t);
        ZH_CHECK(cursor.length == longest(fed, read));
        if (cursor.length == 0) continue;
        Cursor now = cursor;
        const Next next = automaton.likeliest(now);
        std::vector<Token> with(read.end() - std::ptrdiff_t(cursor.length), read.end());
        if (next.state == kRoot) continue;
        const std::uint32_t total = occurrences(fed, with);
        with.push_back(next.token);
        const std::uint32_t count = occurrences(fed, with);
        ZH_CHECK(count > 0 && next.count <= next.total);
        if (!exact_counts) continue;
        ZH_CHECK(next.count == count && next.total == total);
        for (Token other = 0; other < 4; ++other) {
            with.back() = other;
            ZH_CHECK(occurrences(fed, with) <= count);
        }
    }
}

}  // namespace zerohop::draft::testing
