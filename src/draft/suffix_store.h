// SuffixStore: what earlier outputs of the same structure said next, and what this very text said.
//
//   (namespace, skeleton key) ── corpus ── automaton now    ≤ half the corpus's tokens
//                                       └─ automaton before  the half before it; dropped on the
//                                       next turn
//   session (one running sequence) ─┬─ own automaton over its prompt's end and its output
//                                   └─ per key of its chain a cursor into both automata
//
// A request has a chain of keys (whole, last turn, system + tools): its output is learnt under
// each, a proposal asks them in that order and the own text, and takes the source whose next token
// has the best chance. Drafts are proposals only: the model verifies each, so a wrong one costs
// time, never content. Entries of other namespaces are other keys: they are not consulted and
// cannot be timed.
//
// Owning thread: the engine's. Memory: total bytes bounded, least recently used corpora go first;
// sessions notice (generation) and read their last tokens again. Nothing fails.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "draft/draft_controller.h"
#include "draft/suffix_automaton.h"
#include "kv/namespace.h"

namespace zerohop::draft {

inline constexpr std::size_t kChain = 3;
inline constexpr std::size_t kContext = 16;  // prompt tokens kept before an output, and re-read

struct DraftKey {
    kv::Namespace ns;
    std::uint64_t lo = 0, hi = 0;  // skeleton hash
    friend bool operator==(const DraftKey&, const DraftKey&) = default;
};
struct DraftKeyHash {
    std::size_t operator()(const DraftKey& k) const noexcept {
        return kv::NamespaceHash{}(k.ns) * 0x9E3779B97F4A7C15ULL ^ k.lo ^ (k.hi << 1);
    }
};

struct SuffixStoreConfig {
    std::size_t max_bytes = 256U << 20;
    std::uint32_t corpus_tokens = 16384;  // per key, both halves
    std::uint32_t output_tokens = 4096;   // learnt of one output, from its start
    std::uint32_t own_tokens = 16384;     // of prompt + output, from the end
};

class SuffixStore {
  public:
    explicit SuffixStore(const SuffixStoreConfig& config) : config_(config) {}

    // A finished output under each key of its chain (empty keys skipped, repeated ones once), and
    // how lucky its drafts were: the next of that structure begins with it.
    void learn(std::span<const DraftKey> chain, std::span<const Token> prompt,
               std::span<const Token> output, const Luck& luck = {});

    // All that is kept of an owner's (kv::Namespace); its sessions go on without.
    void forget(std::uint64_t owner);

    std::size_t bytes() const { return bytes_; }
    std::size_t corpora() const { return corpora_.size(); }

  private:
    friend class DraftSession;
    struct Corpus {
        DraftKey key;
        SuffixAutomaton now, before;
        std::uint64_t generation = 0;  // changes when `before` goes
        float luck = 1;                // Luck::factor() of those that ended lately
        std::size_t bytes = 0;
    };
    using List = std::list<Corpus>;
    Corpus* find(const DraftKey& key);  // and makes it the most recent
    Corpus& create(const DraftKey& key);
    void add(Corpus& corpus, std::span<const Token> prompt, std::span<const Token> output);
    void shrink();

    SuffixStoreConfig config_;
    List order_;  // most recently used first
    std::unordered_map<DraftKey, List::iterator, DraftKeyHash> corpora_;
    std::size_t bytes_ = 0;
    std::uint64_t next_generation_ = 1;
};

class DraftSession {
  public:
    // The store outlives the session. Reads the prompt: ~0.1 µs a token.
    DraftSession(SuffixStore& store, std::span<const DraftKey> chain,
                 std::span<const Token> prompt);

    void accept(Token token);
    // At most `limit` tokens after the accepted ones; none if nothing speaks for any.
    void propose(std::uint32_t limit, const DraftController& controller, Draft& out);

    Luck luck;

  private:
    struct Source {
        DraftKey key;
        std::uint64_t generation = 0;
        Cursor now, before;
    };
    struct Best {
        const SuffixAutomaton* automaton = nullptr;
        Cursor cursor;
        std::uint8_t source = 0;
        double chance = 0;
    };
    void sync(Source& source, SuffixStore::Corpus* corpus);
    void follow(const Best& best, std::uint32_t limit, Draft& out) const;
    static void consider(const SuffixAutomaton& automaton, Cursor& cursor, std::uint8_t source,
                         const DraftController& controller, Best& best);

    SuffixStore* store_;
    std::array<Source, kChain> sources_;
    std::size_t source_count_ = 0;
    SuffixAutomaton own_;
    std::vector<Token> recent_;  // the last tokens, for re-reading and for own_'s turn
};

}  // namespace zerohop::draft
