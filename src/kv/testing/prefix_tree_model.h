// A slow, plain model of PrefixTree for tests: every entry is its list of tokens. run_against_model
// drives both with the operations that `bytes` spells and CHECKs that they agree.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "kv/prefix_tree.h"

namespace zerohop::kv::testing {

class TreeModel {
  public:
    TreeModel(std::span<const std::uint8_t> bytes, const TreeConfig& config)
        : bytes_(bytes), tree_(config), config_(config) {}

    void run() {
        while (!bytes_.empty()) {
            step();
            tree_.check();
            compare();
        }
    }

  private:
    struct Held {
        int ns = 0;
        std::vector<Token> tokens;
        std::uint32_t computed = 0;
        bool running = false;
    };

    std::uint8_t next() {
        if (bytes_.empty()) return 0;
        const std::uint8_t b = bytes_.front();
        bytes_ = bytes_.subspan(1);
        return b;
    }
    static Namespace name(int ns) { return derive_namespace(ns == 0 ? "a" : "b", "m"); }

    // Prompts are made of few distinct runs, so that they share prefixes and split inside runs.
    std::vector<Token> prompt() {
        std::vector<Token> out;
        const int runs = 1 + next() % 4;
        for (int r = 0; r < runs; ++r) {
            const std::uint8_t b = next();
            const int length = 1 + (b >> 2) % 40;
            for (int i = 0; i < length; ++i) out.push_back((b & 3) * 100 + i);
        }
        return out;
    }
    EntryId pick() {
        if (held_.empty()) return 0;
        auto it = held_.begin();
        std::advance(it, next() % held_.size());
        return it->first;
    }
    static std::uint32_t common(std::span<const Token> a, std::span<const Token> b) {
        std::uint32_t n = 0;
        while (n < a.size() && n < b.size() && a[n] == b[n]) ++n;
        return n;
    }

    void step() {
        switch (next() % 10) {
            case 0:
            case 1:
                open();
                break;
            case 2:
                append();
                break;
            case 3:
            case 4:
                advance();
                break;
            case 5:
            case 6:
                close();
                break;
            case 7:
                evict();
                break;
            case 8:
                pin();
                break;
            default:
                now_ += next();
                expire();
                break;
        }
    }
    void open() {
        const int ns = next() % 2;
        std::vector<Token> tokens = prompt();
        const Match m = tree_.lookup(name(ns), tokens);
        const EntryId id = tree_.open(name(ns), tokens, m.cached, 5);
        ZH_CHECK(!held_.contains(id));
        held_[id] = {.ns = ns, .tokens = std::move(tokens), .computed = m.cached, .running = true};
    }
    void append() {
        const EntryId id = pick();
        const std::vector<Token> more = prompt();
        if (id == 0 || !held_[id].running) return;
        tree_.append(id, more);
        held_[id].tokens.insert(held_[id].tokens.end(), more.begin(), more.end());
    }
    void advance() {
        const EntryId id = pick();
        if (id == 0) return;
        Held& h = held_[id];
        const std::uint32_t to = std::min<std::uint32_t>(
            h.computed + next(), static_cast<std::uint32_t>(h.tokens.size()));
        tree_.advance(id, to);
        h.computed = to;
    }
    void close() {
        const EntryId id = pick();
        if (id == 0) return;
        Held& h = held_[id];
        ZH_CHECK(tree_.close(id) == h.computed);
        h.running = false;
        h.tokens.resize(h.computed);
        if (h.computed == 0) held_.erase(id);
    }
    void shrink(EntryId id, std::uint32_t to) {
        Held& h = held_[id];
        if (to < h.tokens.size()) h.tokens.resize(to);
        h.computed = std::min(h.computed, to);
        if (h.tokens.empty()) held_.erase(id);
    }
    void evict() {
        std::vector<Trim> trims;
        const auto before = tree_.counters();
        const std::uint32_t want = next();
        const bool fits = tree_.make_room(want, trims);
        ZH_CHECK(!fits || tree_.counters().used_tokens + want <= config_.capacity_tokens);
        ZH_CHECK(before.pins_lost == tree_.counters().pins_lost);
        for (const Trim& t : trims) {
            ZH_CHECK(held_.contains(t.entry) && !held_[t.entry].running);
            ZH_CHECK(t.length == 0 || t.length < held_[t.entry].tokens.size());
            shrink(t.entry, t.length);
        }
    }
    void pin() {
        const EntryId id = pick();
        if (id == 0) return;
        const auto length = 1 + next() % static_cast<std::uint32_t>(held_[id].tokens.size());
        (void)tree_.pin(id, length, now_ + next());
        for (const std::uint64_t owned : {tree_.counters().pinned_tokens})
            ZH_CHECK(owned <= 2 * config_.pin_cap_tokens);
    }
    void expire() { tree_.expire(now_); }

    void compare() {
        std::set<std::pair<int, std::vector<Token>>> prefixes;
        for (const auto& [id, h] : held_) {
            const EntryInfo info = tree_.info(id);
            ZH_CHECK(info.length == h.tokens.size() && info.computed == h.computed);
            ZH_CHECK(info.running == h.running && info.tag == 5);
            for (std::size_t n = 1; n <= h.tokens.size(); ++n)
                prefixes.emplace(h.ns, std::vector<Token>(h.tokens.begin(),
                                                          h.tokens.begin() + std::ptrdiff_t(n)));
            ZH_CHECK(tree_.unique_tail(id) == unique(id));
        }
        ZH_CHECK(prefixes.size() == tree_.counters().used_tokens);
        ZH_CHECK(held_.size() == tree_.counters().entries);
        std::uint64_t salt = bytes_.size();
        for (int probe = 0; probe < 3; ++probe) probe_lookup(salt++);
    }
    std::uint32_t unique(EntryId id) const {
        const Held& h = held_.at(id);
        std::uint32_t shared = 0;
        for (const auto& [other, o] : held_)
            if (other != id && o.ns == h.ns)
                shared = std::max(shared, common(h.tokens, std::span(o.tokens).first(o.computed)));
        return h.computed > shared ? h.computed - shared : 0;
    }
    void probe_lookup(std::uint64_t salt) {
        if (held_.empty()) return;
        auto it = held_.begin();
        std::advance(it, salt % held_.size());
        std::vector<Token> tokens = it->second.tokens;
        if (salt % 3 == 0) tokens.push_back(1);
        if (salt % 5 == 0) tokens[tokens.size() / 2] += 1;
        const int ns = static_cast<int>(salt / 7 % 2);
        std::uint32_t cached = 0, promised = 0;
        for (const auto& [id, h] : held_) {
            if (h.ns != ns) continue;
            cached = std::max(cached, common(tokens, std::span(h.tokens).first(h.computed)));
            promised = std::max(promised, common(tokens, h.tokens));
        }
        const Match m = tree_.lookup(name(ns), tokens);
        ZH_CHECK(m.cached == cached && m.promised == promised);
        ZH_CHECK((m.computing != 0) == (promised > cached));
        if (m.computing != 0) {
            const Held& owner = held_.at(m.computing);
            ZH_CHECK(owner.running && common(tokens, owner.tokens) == promised);
        }
        std::vector<EntryId> who;
        tree_.holders(m, m.cached, 4, who);
        ZH_CHECK((cached == 0) == who.empty());
        for (const EntryId id : who)
            ZH_CHECK(common(tokens, std::span(held_.at(id).tokens).first(held_.at(id).computed)) >=
                     cached);
    }

    std::span<const std::uint8_t> bytes_;
    PrefixTree tree_;
    TreeConfig config_;
    std::map<EntryId, Held> held_;
    MonoNs now_ = 0;
};

}  // namespace zerohop::kv::testing
