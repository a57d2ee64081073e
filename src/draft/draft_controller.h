// DraftController: how many draft tokens each sequence of a step may put to the model's test.
//
// A step of n sequences costs cost(n); k draft tokens make it cost(n + k), of which some are
// accepted. Drafts are worth their time only while
//
//     (n + expected accepted) / cost(n + k)   is at its largest over k,
//
// so allocate() takes the tokens of all proposals in order of their chance to be accepted and cuts
// where this is best. A step that also computes m tokens of prompts, to whose ends drafts are put,
// is there anyway: its drafts are worth the difference cost(m + n + k) - cost(m + n) while that is
// less than what the accepted tokens would cost in steps of their own. cost() is learnt from the
// engine's measured steps, a chance from what became of earlier tokens with the same evidence
// (Evidence below) and from this sequence's own luck.
//
// Promise: over time no slower than without drafts by more than ~1 %. A ledger holds, in ns, what
// drafted steps gained against plain ones; when the losses exceed that share of the time spent, no
// drafts are given until it has recovered. Old entries fade, and gains are credited only up to half
// the share, so that a good hour cannot pay for a bad minute.
//
// Threads: the engine thread of one context. Fixed memory apart from scratch. Nothing fails.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "kv/namespace.h"

namespace zerohop::draft {

using kv::Token;

inline constexpr std::uint32_t kMaxDraft = 32;        // tokens of one proposal
inline constexpr std::uint32_t kMaxStepTokens = 512;  // cost() is learnt up to here

// What speaks for a draft token; tokens with equal evidence share one learnt chance.
struct Evidence {
    std::uint8_t source = 0;      // 0: own text, 1 …: the key chain, whole first
    std::uint8_t length = 0;      // matched tokens, in steps (evidence_of)
    std::uint8_t confidence = 0;  // share of the occurrences that went on like this, in steps
};
Evidence evidence_of(std::uint8_t source, std::uint32_t match_length, std::uint32_t count,
                     std::uint32_t total);

struct Draft {
    std::vector<Token> tokens;
    std::vector<Evidence> evidence;  // one per token
    void clear() {
        tokens.clear();
        evidence.clear();
    }
};

// A sequence's own luck: accepted against expected, fading.
struct Luck {
    float accepted = 2, expected = 2;
    float factor() const;
    void rest();  // a step without drafts: bad luck fades, so that it is tried again
};

// Learnt cost of a step by its number of tokens, in ns.
class StepCost {
  public:
    static constexpr int kTrusted = 3;  // measurements of a size before it is believed

    void observe(std::uint32_t tokens, double ns);
    double at(std::uint32_t tokens) const;  // 0 while nothing is known
    bool known(std::uint32_t tokens) const;
    std::uint32_t explored()
        const;  // twice the largest step measured: as far as at() may be trusted

  private:
    struct Cell {
        double ns = 0;
        double weight = 0;
    };
    static std::size_t cell(std::uint32_t tokens);
    static double centre(std::size_t cell);
    std::array<Cell, 40> cells_{};
    bool any_trusted_ = false;  // some cell is: weights never fall
};

class DraftController {
  public:
    struct Wish {
        const Draft* draft = nullptr;
        Luck* luck = nullptr;
        std::uint32_t allowed = 0;  // result: tokens to verify, a prefix of the draft
    };

    // plain_tokens: the rows that are sampled anyway (one per sequence); other_tokens: the rest of
    // the call, tokens of prompts.
    void allocate(std::span<Wish> wishes, std::uint32_t plain_tokens,
                  std::uint32_t other_tokens = 0);

    // After the step: per drafted sequence how many of the `allowed` were accepted …
    void accepted(const Draft& draft, std::uint32_t allowed, std::uint32_t accepted, Luck& luck);
    // … and once per step: its tokens, drafts among them, accepted in all, measured time.
    void step_done(std::uint32_t plain_tokens, std::uint32_t other_tokens, std::uint32_t drafted,
                   std::uint32_t accepted, double ns);

    // Measured at start (ENGINE.md: costs depend on layout and machine); later steps refine it.
    void seed_cost(std::uint32_t tokens, double ns) {
        for (int i = 0; i < StepCost::kTrusted; ++i) cost_.observe(tokens, ns);
    }

    double chance(const Evidence& e) const;
    bool paused() const;  // the ledger forbids drafts now
    std::uint64_t drafted() const { return drafted_; }
    std::uint64_t accepted_total() const { return accepted_; }

  private:
    struct Bucket {
        float hits = 0, tries = 0;
    };
    static std::size_t bucket(const Evidence& e) {
        return (e.source * 8U + e.length) * 8U + e.confidence;
    }
    void forgive(std::span<Wish> wishes);
    std::size_t best_cut(std::uint32_t plain_tokens, std::uint32_t other_tokens) const;
    double own_step_ns(std::uint32_t plain_tokens, std::uint32_t other_tokens) const;

    StepCost cost_;
    std::array<Bucket, 4 * 8 * 8> buckets_{};
    double spent_ns_ = 0, balance_ns_ = 0;
    std::uint32_t drafted_run_ = 0;  // steps with drafts since the last plain one
    std::uint64_t drafted_ = 0, accepted_ = 0;
    struct Candidate {
        double chance;
        std::uint32_t wish, position;
    };
    std::vector<Candidate> scratch_;
};

}  // namespace zerohop::draft
