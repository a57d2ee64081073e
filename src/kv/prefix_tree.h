// PrefixTree: which token prefixes have KV, who holds them, who is computing them, who may lose
// them.
//
//   namespace A ── root ──┬─ [sys: 950 tokens] ──┬─ [question 1 + answer] ← entry 7, idle
//                         │     through 3        ├─ [question 2]          ← entry 8, running,
//                         │     full 2           │                           length 970, computed
//                         960 │                      └─ … └─ [other prompt] ← entry 3, idle, pinned
//                         until t
//   namespace B ── root ── …            (nothing is ever shared between roots)
//
// A node is an edge label: the tokens at depths [start, start + label). An *entry* is one holder of
// KV, a running sequence or a cached one; it ends at the end of a node, so every leaf has at least
// one and a node lives exactly as long as some entry passes through it. `length` is what the entry
// holds or has promised to compute; `computed` ≤ length is what is there. A waiting request that
// needs a promised prefix sees who computes it and how far it is (Match).
//
// Per node: `through` entries pass or end there, `full` of them have computed all of it. A node
// with full = 0 is being computed; only entries in the `incomplete` list can hold a part of it.
//
// Accounting is exact in tokens, each tree token counted once however many entries share it; blocks
// of 16 are the unit of eviction and of the counters. Eviction takes the last block of the leaf
// that Eviction names: never one where a running entry ends and never a pinned one. What it takes
// is told to the caller as Trims, which the caller applies to the real KV.
//
// Pins protect a prefix for a time; the tokens only they protect are charged to the owner of the
// namespace up to a cap. A pin holds no KV: when its last entry is dropped the pin is lost
// (counted).
//
// Threads: one, the engine's. Memory: bounded by capacity tokens (the caller calls make_room), the
// entries the caller opens, and the eviction ghosts. Ids of dead entries are recognised and
// ignored.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "kv/eviction.h"
#include "kv/namespace.h"

namespace zerohop::kv {

inline constexpr std::uint32_t kBlockTokens = 16;

using EntryId = std::uint64_t;  // index + generation; 0 names nothing
using PinId = std::uint64_t;    // 0 names nothing

// What is known of a prompt. Depths in tokens. `node` is valid until the tree changes.
struct Match {
    std::uint32_t cached = 0;    // computed: can be used now
    std::uint32_t promised = 0;  // ≥ cached: an entry has it or is computing it
    EntryId computing = 0;       // who computes [cached, promised) and is furthest; 0 if none
    NodeId node = 0;             // deepest node of which cached reaches a part
};

struct Trim {
    EntryId entry = 0;
    std::uint32_t length = 0;  // what is left; 0: the entry is gone
    std::uint64_t tag = 0;     // the entry's, also when it is gone
};

struct EntryInfo {
    std::uint32_t length = 0;
    std::uint32_t computed = 0;
    bool running = false;
    std::uint64_t tag = 0;  // the caller's, for instance a slot
};

struct TreeCounters {
    std::uint64_t block_needs = 0;  // whole blocks of the prompts opened
    std::uint64_t block_hits = 0;   // of these, found computed
    std::uint64_t evicted_blocks = 0;
    std::uint64_t pins_lost = 0;     // a pin whose last entry was dropped
    std::uint64_t pins_refused = 0;  // over the owner's cap
    std::uint64_t used_tokens = 0;
    std::uint64_t capacity_tokens = 0;
    std::uint64_t pinned_tokens = 0;
    std::uint32_t entries = 0;
    std::uint32_t nodes = 0;
};

struct TreeConfig {
    std::uint64_t capacity_tokens = 0;
    std::uint64_t pin_cap_tokens = 0;        // per owner
    std::uint64_t pin_total_tokens = ~0ULL;  // of all owners together
    bool adaptive = true;                    // false: plain LRU
};

class PrefixTree {
  public:
    explicit PrefixTree(const TreeConfig& config);
    ~PrefixTree();
    PrefixTree(const PrefixTree&) = delete;
    PrefixTree& operator=(const PrefixTree&) = delete;

    // Changes nothing, not even recency.
    Match lookup(const Namespace& ns, std::span<const Token> tokens) const;

    // A sequence that will hold all of `tokens` starts running, `computed` of them already there.
    EntryId open(const Namespace& ns, std::span<const Token> tokens, std::uint32_t computed,
                 std::uint64_t tag);
    // Sampled or further tokens: promised until advance() passes them.
    void append(EntryId id, std::span<const Token> tokens);
    void advance(EntryId id, std::uint32_t computed);
    // The sequence ends and stays cached, cut to what it has computed; with nothing computed it is
    // dropped. Returns the length kept.
    std::uint32_t close(EntryId id);
    void drop(EntryId id);

    bool alive(EntryId id) const;
    EntryInfo info(EntryId id) const;  // zeros for a dead id
    // Tokens that vanish from the cache if this entry does (those it has computed alone).
    std::uint32_t unique_tail(EntryId id) const;
    // Tokens of its length that no other entry passes, computed or not: its share of used_tokens.
    std::uint32_t sole_tail(EntryId id) const;
    bool pinned(EntryId id) const;  // a pin lies in the part only this entry holds
    double heat(EntryId id) const;  // order of eviction: the coldest goes first
    EntryId coldest() const;        // whose tokens evict() takes next; 0: nothing may go
    std::vector<Token> tokens_of(EntryId id) const;
    // The deepest pin on the entry's way; length 0: none.
    struct PinInfo {
        std::uint32_t length = 0;
        MonoNs until = 0;
    };
    PinInfo pin_of(EntryId id) const;

    // Up to `limit` entries that have computed at least `depth` tokens of the matched prompt, depth
    // ≤ match.cached: those that end on the path, then some below it.
    void holders(const Match& match, std::uint32_t depth, std::size_t limit,
                 std::vector<EntryId>& out) const;

    // Idle entries that are a computed prefix of the matched prompt, longest first: all that a
    // model without partial removal can take over or copy.
    void prefixes(const Match& match, std::vector<EntryId>& out) const;

    // Evicts until `tokens` more fit or nothing may be evicted; appends what it took. True: they
    // fit.
    bool make_room(std::uint64_t tokens, std::vector<Trim>& out);
    // Up to `tokens` of the coldest leaf, whole blocks, at least one. False: nothing may be
    // evicted.
    bool evict(std::uint64_t tokens, std::vector<Trim>& out);
    // Tokens of the entries that run, each counted once: what eviction can never get below.
    std::uint64_t running_tokens() const;

    // Protects the entry's first `length` tokens until then; kRateLimited beyond the owner's cap or
    // that of all together.
    // One pin per prefix: pinning it again gives the same id and keeps the later time.
    Result<PinId> pin(EntryId id, std::uint32_t length, MonoNs until);
    void unpin(PinId id);
    void expire(MonoNs now);  // pins whose time has come; cheap when there are none

    TreeCounters counters() const;
    std::int64_t eviction_bonus(LeafClass cls) const;

    // Walks everything and CHECKs every invariant stated above. For tests.
    void check() const;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace zerohop::kv
