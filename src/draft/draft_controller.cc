#include "draft/draft_controller.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

namespace zerohop::draft {
namespace {

constexpr double kLossShare = 0.01;     // the promise: losses stay below this share of the time
constexpr double kCreditShare = 0.003;  // and gains above this one are not carried over
constexpr double kFade = 1.0 / 400;     // per step: the ledger's memory
constexpr double kCostRate = 0.1;       // weight of a new measurement
constexpr double kMargin = 1.05;        // expected gain before a step gets drafts
constexpr float kBucketMemory = 200;    // tries after which old ones fade
constexpr float kLuckMemory = 12;
constexpr std::uint32_t kPlainEvery = 64;  // a plain step now and then keeps cost(n) true

constexpr std::array<double, 8> kPriorByConfidence = {0.2, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.9};
constexpr double kPriorWeight = 4;

}  // namespace

// Confidence: (count + ½) / (total + 1) in eighths, so that one occurrence counts less than ten.
Evidence evidence_of(std::uint8_t source, std::uint32_t match_length, std::uint32_t count,
                     std::uint32_t total) {
    const std::uint32_t seen = std::max(total, count);
    const double share = (count + 0.5) / (seen + 1.0);
    const auto step = static_cast<int>(share * 8);
    const int length = match_length < 4 ? static_cast<int>(match_length)
                                        : static_cast<int>(std::bit_width(match_length)) + 1;
    return {.source = std::min<std::uint8_t>(source, 3),
            .length = static_cast<std::uint8_t>(std::clamp(length, 0, 7)),
            .confidence = static_cast<std::uint8_t>(std::clamp(step, 0, 7))};
}

float Luck::factor() const { return std::clamp(accepted / expected, 0.05F, 1.25F); }

void Luck::rest() {
    constexpr float kRate = 0.01F;
    accepted += (2 - accepted) * kRate;
    expected += (2 - expected) * kRate;
}

// One cell per count up to 16, then four per doubling.
std::size_t StepCost::cell(std::uint32_t tokens) {
    if (tokens <= 16) return tokens;
    const double octave = std::log2(static_cast<double>(tokens) / 16);
    return std::min<std::size_t>(16 + static_cast<std::size_t>(std::lround(4 * octave)), 39);
}

double StepCost::centre(std::size_t cell) {
    if (cell <= 16) return static_cast<double>(cell);
    return 16 * std::exp2(static_cast<double>(cell - 16) / 4);
}

void StepCost::observe(std::uint32_t tokens, double ns) {
    Cell& c = cells_[cell(tokens)];
    // One slow step (a page fault, another process) must not pass for the cost, in the first ones
    // of a size least of all: what looks dear is not tried again. The least of those counts.
    const double before = std::exchange(c.weight, std::min(c.weight + 1, 1 / kCostRate));
    if (before >= kTrusted)
        c.ns += (std::clamp(ns, c.ns / 2, c.ns * 2) - c.ns) / c.weight;
    else
        c.ns = before > 0 ? std::min(ns, c.ns) : ns;
    any_trusted_ = any_trusted_ || c.weight >= kTrusted;
}

bool StepCost::known(std::uint32_t tokens) const { return cells_[cell(tokens)].weight > 0; }

double StepCost::at(std::uint32_t tokens) const {
    // Others are as if they had not been measured.
    const double least = any_trusted_ ? kTrusted : 1;
    const std::size_t at = cell(tokens);
    if (cells_[at].weight >= least) return cells_[at].ns;
    std::size_t below = at, above = at;
    while (below > 0 && cells_[below].weight < least) --below;
    while (above + 1 < cells_.size() && cells_[above].weight < least) ++above;
    const bool has_below = cells_[below].weight >= least, has_above = cells_[above].weight >= least;
    if (has_below && has_above) {
        const double share = (tokens - centre(below)) / (centre(above) - centre(below));
        return cells_[below].ns + share * (cells_[above].ns - cells_[below].ns);
    }
    if (!has_below) return has_above ? cells_[above].ns : 0;
    // Beyond what was measured: on along the line, or a guess that one more token costs a quarter.
    // explored() keeps the steps that test such guesses small.
    std::size_t first = 0;
    while (cells_[first].weight < least) ++first;
    double slope = cells_[below].ns / std::max(1.0, centre(below)) / 4;
    if (first < below)
        slope =
            std::max(0.0, (cells_[below].ns - cells_[first].ns) / (centre(below) - centre(first)));
    return cells_[below].ns + slope * (tokens - centre(below));
}

std::uint32_t StepCost::explored() const {
    std::size_t top = cells_.size();
    while (top > 0 && cells_[top - 1].weight == 0) --top;
    return top == 0 ? 0 : static_cast<std::uint32_t>(2 * centre(top - 1));
}

double DraftController::chance(const Evidence& e) const {
    const Bucket& b = buckets_[bucket(e)];
    const double prior = kPriorByConfidence[e.confidence] * (e.length < 2 ? 0.7 : 1.0);
    return (b.hits + prior * kPriorWeight) / (b.tries + kPriorWeight);
}

bool DraftController::paused() const { return balance_ns_ < -kLossShare * spent_ns_; }

void DraftController::allocate(std::span<Wish> wishes, std::uint32_t plain_tokens,
                               std::uint32_t other_tokens) {
    for (Wish& w : wishes) w.allowed = 0;
    if (plain_tokens == 0 || paused()) return;
    const std::uint32_t base = plain_tokens + other_tokens;
    if (!cost_.known(base) || drafted_run_ >= kPlainEvery) return;  // learn the plain cost first
    scratch_.clear();
    for (std::uint32_t w = 0; w < wishes.size(); ++w) {
        const Wish& wish = wishes[w];
        if (wish.draft == nullptr) continue;
        double all = 1;  // chance that everything up to here is accepted
        const double luck = wish.luck == nullptr ? 1 : wish.luck->factor();
        const auto n = static_cast<std::uint32_t>(wish.draft->tokens.size());
        for (std::uint32_t i = 0; i < std::min(n, kMaxDraft); ++i) {
            all *= std::min(0.98, chance(wish.draft->evidence[i]) * luck);
            scratch_.push_back({.chance = all, .wish = w, .position = i});
        }
    }
    // Chances fall along a proposal, so any cut of this order leaves prefixes.
    std::ranges::sort(scratch_, [](const Candidate& a, const Candidate& b) {
        if (a.chance != b.chance) return a.chance > b.chance;
        return a.wish != b.wish ? a.wish < b.wish : a.position < b.position;
    });
    const std::size_t take = best_cut(plain_tokens, other_tokens);
    for (std::size_t k = 0; k < take; ++k) ++wishes[scratch_[k].wish].allowed;
    forgive(wishes);
}

// How many of scratch_'s tokens to try.
std::size_t DraftController::best_cut(std::uint32_t plain_tokens,
                                      std::uint32_t other_tokens) const {
    const std::uint32_t base = plain_tokens + other_tokens;
    const std::uint32_t most = std::min(kMaxStepTokens, cost_.explored());
    const double own = own_step_ns(plain_tokens, other_tokens);
    const double base_cost = cost_.at(base);
    double best = other_tokens > 0 ? 0 : kMargin * plain_tokens / base_cost;
    double accepted = 0;
    std::size_t take = 0;
    for (std::size_t k = 0; k < scratch_.size() && base + k + 1 <= most; ++k) {
        accepted += scratch_[k].chance;
        const double cost = cost_.at(static_cast<std::uint32_t>(base + k + 1));
        const double worth = other_tokens > 0 ? accepted * own - kMargin * (cost - base_cost)
                                              : (plain_tokens + accepted) / cost;
        if (worth <= best) continue;
        best = worth;
        take = k + 1;
    }
    return take;
}

// What a token would cost in a plain step of its sequences.
double DraftController::own_step_ns(std::uint32_t plain_tokens, std::uint32_t other_tokens) const {
    if (other_tokens > 0 && !cost_.known(plain_tokens)) return 0;
    return cost_.at(plain_tokens) / plain_tokens;
}

// What is never tried can never be found to have become right: the memory of what was refused
// fades, and the ledger pays for the next try.
void DraftController::forgive(std::span<Wish> wishes) {
    constexpr float kForget = 0.998F;
    for (const Wish& w : wishes) {
        if (w.draft == nullptr || w.draft->tokens.empty() || w.allowed > 0) continue;
        if (w.luck != nullptr) w.luck->rest();
        Bucket& b = buckets_[bucket(w.draft->evidence.front())];
        b.tries *= kForget;
        b.hits *= kForget;
    }
}

void DraftController::accepted(const Draft& draft, std::uint32_t allowed, std::uint32_t accepted,
                               Luck& luck) {
    for (std::uint32_t i = 0; i < allowed && i <= accepted && i < draft.tokens.size(); ++i) {
        const Evidence& e = draft.evidence[i];
        const auto expected = static_cast<float>(chance(e));
        Bucket& b = buckets_[bucket(e)];
        const float hit = i < accepted ? 1 : 0;
        if (b.tries >= kBucketMemory) {
            b.tries *= 0.5F;
            b.hits *= 0.5F;
        }
        b.tries += 1;
        b.hits += hit;
        luck.accepted += hit;
        luck.expected += expected;
        if (luck.expected > kLuckMemory) {
            luck.accepted *= 0.5F;
            luck.expected *= 0.5F;
        }
    }
    drafted_ += allowed;
    accepted_ += std::min(accepted, allowed);
}

void DraftController::step_done(std::uint32_t plain_tokens, std::uint32_t other_tokens,
                                std::uint32_t drafted, std::uint32_t accepted, double ns) {
    const std::uint32_t base = plain_tokens + other_tokens;
    drafted_run_ = drafted > 0 ? drafted_run_ + 1 : 0;
    if (drafted > 0 && plain_tokens > 0) {
        // Without drafts the accepted tokens would have taken steps of this batch's plain cost.
        const double saved = accepted * own_step_ns(plain_tokens, other_tokens);
        balance_ns_ += cost_.at(base) + saved - ns;
    }
    cost_.observe(base + drafted, ns);
    spent_ns_ += ns;
    spent_ns_ -= spent_ns_ * kFade;
    balance_ns_ -= balance_ns_ * kFade;
    balance_ns_ = std::min(balance_ns_, kCreditShare * spent_ns_);
}

}  // namespace zerohop::draft
