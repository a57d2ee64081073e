#include "draft/suffix_automaton.h"

#include <algorithm>

namespace zerohop::draft {
namespace {

constexpr int kCountHops = 32;
constexpr std::uint32_t kWide = 8;   // from so many edges on, a state's edges are indexed
constexpr int kLikeliestEdges = 32;  // looked at for the likeliest next token

}  // namespace

void SuffixAutomaton::clear() {
    states_.assign(1, State{});
    edges_.clear();
    wide_.clear();
    last_ = kRoot;
    tokens_ = 0;
}

StateId* SuffixAutomaton::edge(StateId from, Token token) {
    State& s = states_[from];
    if (s.edges == 0) return nullptr;
    if (s.token == token) return &s.to;
    if (s.edges > kWide) {
        const auto it = wide_.find(wide_key(from, token));
        return it == wide_.end() ? nullptr : &edges_[it->second].to;
    }
    for (std::uint32_t e = s.list; e != 0; e = edges_[e - 1].next)
        if (edges_[e - 1].token == token) return &edges_[e - 1].to;
    return nullptr;
}

// A new edge; `from` has none for that token yet.
void SuffixAutomaton::set(StateId from, Token token, StateId to) {
    State& s = states_[from];
    if (s.edges++ == 0) {
        s.token = token;
        s.to = to;
        return;
    }
    edges_.push_back({.token = token, .to = to, .next = s.list});
    s.list = static_cast<std::uint32_t>(edges_.size());
    if (s.edges <= kWide) return;
    if (s.edges > kWide + 1) {
        wide_.emplace(wide_key(from, token), s.list - 1);
        return;
    }
    for (std::uint32_t e = s.list; e != 0; e = edges_[e - 1].next)
        wide_.emplace(wide_key(from, edges_[e - 1].token), e - 1);
}

StateId SuffixAutomaton::clone(StateId of, std::uint32_t length) {
    const auto id = static_cast<StateId>(states_.size());
    State copy;
    copy.length = length;
    copy.link = states_[of].link;
    copy.count = states_[of].count;
    states_.push_back(copy);
    if (states_[of].edges == 0) return id;
    // The list runs from the newest edge to the oldest; it is copied so that this order stays.
    std::vector<std::pair<Token, StateId>> rest;
    for (std::uint32_t e = states_[of].list; e != 0; e = edges_[e - 1].next)
        rest.emplace_back(edges_[e - 1].token, edges_[e - 1].to);
    set(id, states_[of].token, states_[of].to);
    for (auto it = rest.rbegin(); it != rest.rend(); ++it) set(id, it->first, it->second);
    return id;
}

// `to` also ends elsewhere than after `from` + token: its short part becomes a state of its own.
StateId SuffixAutomaton::split(StateId from, Token token, StateId to) {
    const StateId part = clone(to, states_[from].length + 1);
    states_[to].link = part;
    for (StateId p = from;; p = states_[p].link) {
        StateId* way = edge(p, token);
        if (way == nullptr || *way != to) break;
        *way = part;
        if (p == kRoot) break;
    }
    return part;
}

StateId SuffixAutomaton::append_new(Token token) {
    const auto id = static_cast<StateId>(states_.size());
    states_.push_back(State{.length = states_[last_].length + 1});
    StateId p = last_;
    for (;; p = states_[p].link) {
        const StateId to = find(p, token);
        if (to != kRoot) {
            states_[id].link =
                states_[to].length == states_[p].length + 1 ? to : split(p, token, to);
            return id;
        }
        set(p, token, id);
        if (p == kRoot) return id;
    }
}

void SuffixAutomaton::count_up(StateId state) {
    int hops = kCountHops;
    for (StateId s = state; s != kRoot && hops-- > 0; s = states_[s].link) ++states_[s].count;
}

void SuffixAutomaton::add(Token token) {
    const StateId known = find(last_, token);
    if (known == kRoot)
        last_ = append_new(token);
    else if (states_[known].length == states_[last_].length + 1)
        last_ = known;
    else
        last_ = split(last_, token, known);
    count_up(last_);
    ++tokens_;
}

// States split while a cursor stood on them: the shorter match belongs to the split-off part.
void SuffixAutomaton::settle(Cursor& cursor) const {
    while (cursor.state != kRoot && cursor.length <= states_[states_[cursor.state].link].length)
        cursor.state = states_[cursor.state].link;
}

void SuffixAutomaton::read(Cursor& cursor, Token token) const {
    settle(cursor);
    for (;;) {
        const StateId to = find(cursor.state, token);
        if (to != kRoot) {
            cursor.state = to;
            ++cursor.length;
            settle(cursor);
            return;
        }
        if (cursor.state == kRoot) {
            cursor.length = 0;
            return;
        }
        cursor.state = states_[cursor.state].link;
        cursor.length = states_[cursor.state].length;
    }
}

Cursor SuffixAutomaton::repeated() const {
    // The state of the whole text so far: seen in another text, or only here.
    const StateId s = last_ == kRoot || states_[last_].count > 1 ? last_ : states_[last_].link;
    return {.state = s, .length = states_[s].length};
}

Next SuffixAutomaton::likeliest(Cursor& cursor) const {
    settle(cursor);
    const State& s = states_[cursor.state];
    Next best;
    if (s.edges == 0 || cursor.state == kRoot) return best;
    best = {.token = s.token, .state = s.to, .count = states_[s.to].count, .total = s.count};
    // Newest first; the inline edge is the oldest, so it wins no tie.
    int looked = 0;
    bool first = true;
    for (std::uint32_t e = s.list; e != 0 && looked++ < kLikeliestEdges; e = edges_[e - 1].next) {
        const Edge& other = edges_[e - 1];
        const std::uint32_t count = states_[other.to].count;
        if (count < best.count || (count == best.count && !first)) continue;
        best.token = other.token;
        best.state = other.to;
        best.count = count;
        first = false;
    }
    best.count = std::min(best.count, best.total);
    return best;
}

std::size_t SuffixAutomaton::bytes() const {
    constexpr std::size_t kWideBytes = 40;  // a hash node and its share of buckets
    return states_.capacity() * sizeof(State) + edges_.capacity() * sizeof(Edge) +
           wide_.size() * kWideBytes;
}

}  // namespace zerohop::draft
