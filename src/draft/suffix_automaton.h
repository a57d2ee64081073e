// SuffixAutomaton: every substring of the texts fed to it, with how often each occurred.
//
//   root 0 ──t──> state ──t──> state …      an edge per next token; a path from the root spells a
//     ▲ link        │                       substring, a state is the set of substrings that end at
//     └─────────────┘                       the same places; `link` leads to its longest suffix
//     that
//                                           also ends elsewhere
//
// (Blumer et al. 1985; several texts as in Mohri et al. 2009.) A text of n tokens makes ≤ 2n states
// and ≤ 3n edges. Most states have one edge: it lies in the state; further ones in a list; states
// with many (the root) have an index too. `count` is the number of occurrences; the walk that keeps
// it is cut after kCountHops links, so counts of short substrings in very repetitive texts are low:
// they only rank drafts.
//
// Threads: one. add() is amortised O(1); nothing fails. Memory: bytes(), only clear() gives it
// back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "kv/namespace.h"

namespace zerohop::draft {

using kv::Token;
using StateId = std::uint32_t;
inline constexpr StateId kRoot = 0;

// A place in the automaton: the longest suffix of what was read that it knows.
struct Cursor {
    StateId state = kRoot;
    std::uint32_t length = 0;
};

struct Next {
    Token token = 0;
    StateId state = kRoot;    // kRoot: there is none
    std::uint32_t count = 0;  // how often this token followed
    std::uint32_t total = 0;  // how often anything did (ends of texts included)
};

class SuffixAutomaton {
  public:
    SuffixAutomaton() { clear(); }

    void begin_text() { last_ = kRoot; }
    void add(Token token);
    void clear();

    void read(Cursor& cursor, Token token) const;
    // The longest suffix of the current text that also occurred before.
    Cursor repeated() const;
    // The likeliest token after the cursor's match; ties go to the latest learnt.
    Next likeliest(Cursor& cursor) const;

    std::size_t bytes() const;
    std::uint32_t tokens() const { return tokens_; }

  private:
    struct State {
        std::uint32_t length = 0;
        StateId link = kRoot;
        std::uint32_t count = 0;
        std::uint32_t edges = 0;  // number of edges, the inline one included
        Token token = 0;          // inline edge
        StateId to = kRoot;
        std::uint32_t list = 0;  // further edges: index + 1 into edges_
    };
    struct Edge {
        Token token;
        StateId to;
        std::uint32_t next;
    };

    StateId* edge(StateId from, Token token);
    StateId find(StateId from, Token token) const {
        const StateId* to = const_cast<SuffixAutomaton*>(this)->edge(from, token);
        return to == nullptr ? kRoot : *to;
    }
    void set(StateId from, Token token, StateId to);
    StateId clone(StateId of, std::uint32_t length);
    StateId split(StateId from, Token token, StateId to);
    StateId append_new(Token token);
    void count_up(StateId state);
    void settle(Cursor& cursor) const;
    static std::uint64_t wide_key(StateId from, Token token) {
        return (std::uint64_t{from} << 32) | static_cast<std::uint32_t>(token);
    }
    struct WideHash {
        std::size_t operator()(std::uint64_t k) const noexcept {
            k = (k ^ (k >> 32)) * 0xD6E8FEB86659FD93ULL;
            return k ^ (k >> 32);
        }
    };

    std::vector<State> states_;
    std::vector<Edge> edges_;
    std::unordered_map<std::uint64_t, std::uint32_t, WideHash> wide_;  // → index into edges_
    StateId last_ = kRoot;
    std::uint32_t tokens_ = 0;
};

}  // namespace zerohop::draft
