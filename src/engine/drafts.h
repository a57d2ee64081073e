// Drafts of one engine: what is remembered of earlier outputs, and how much of it each step tries.
//
//     open()      a sequence starts: reads its prompt
//     propose()   before a decode call: fills sequence.draft, says how many tokens to try
//     settle()    after it: what was accepted, what it took
//     learn()     a sequence ended well
//
// Proposals only: the model verifies each token, so a draft changes time, never text. Threads: the
// engine's. Nothing fails.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "draft/draft_controller.h"
#include "draft/suffix_store.h"
#include "engine/sequence.h"

namespace zerohop::engine {

struct Drafted {
    Sequence* sequence = nullptr;
    std::uint32_t rows = 1;    // of the call without drafts
    bool samples = true;       // its last row is sampled: drafts may follow
    std::uint32_t room = 0;    // most tokens it may try
    std::uint32_t tokens = 0;  // to try: the first ones of sequence->draft
    std::uint32_t accepted = 0;
};

class Drafts {
  public:
    static constexpr std::uint32_t kMostRows = 64;  // drafted tokens of one step

    // always: every proposal is tried, for tests; else those that are worth their time.
    Drafts(std::int64_t bytes, bool always)
        : always_(always),
          store_({.max_bytes = static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1 << 20))}) {}

    void open(Sequence& sequence);
    // `call`: all sequences of one.
    void propose(std::span<Drafted> call);
    void settle(std::span<const Drafted> call, std::int64_t took_ns);
    void learn(const Sequence& sequence);
    void forget(std::uint64_t owner) { store_.forget(owner); }  // kv::Namespace::owner

    std::uint64_t proposed() const { return controller_.drafted(); }
    std::uint64_t accepted() const { return controller_.accepted_total(); }

  private:
    struct Rows {
        std::uint32_t plain = 0, other = 0;
    };
    static Rows rows_of(std::span<const Drafted> call);

    const bool always_;
    draft::SuffixStore store_;
    draft::DraftController controller_;
    std::vector<draft::DraftController::Wish> wishes_;
};

}  // namespace zerohop::engine
