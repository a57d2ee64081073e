#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

namespace zerohop::engine {
namespace {

constexpr float kNegligible = 30.0F;  // logits this far below the best are never drawn

// Sixteen running maxima: one alone is a chain of dependent comparisons, ten times as slow.
float highest(std::span<const float> logits) {
    constexpr std::size_t kLanes = 16;
    constexpr float kLowest = -std::numeric_limits<float>::infinity();
    float best[kLanes];
    std::fill(std::begin(best), std::end(best), kLowest);
    std::size_t i = 0;
    for (; i + kLanes <= logits.size(); i += kLanes)
        for (std::size_t lane = 0; lane < kLanes; ++lane)
            best[lane] = logits[i + lane] > best[lane] ? logits[i + lane] : best[lane];
    for (; i < logits.size(); ++i) best[0] = logits[i] > best[0] ? logits[i] : best[0];
    return *std::max_element(std::begin(best), std::end(best));
}

}  // namespace

std::int32_t argmax(std::span<const float> logits) {
    const float best = highest(logits);
    for (std::size_t i = 0; i < logits.size(); ++i)
        if (logits[i] == best) return static_cast<std::int32_t>(i);
    return 0;
}

bool are_numbers(std::span<const float> logits) {
    bool wrong = false;
    for (const float logit : logits) wrong |= !(logit <= std::numeric_limits<float>::max());
    return !wrong && highest(logits) > -std::numeric_limits<float>::infinity();
}

Sampler::Sampler(const SamplerParams& params) : params_(params), state_(params.seed) {}

// SplitMix64 (Steele, Lea, Flood 2014): any seed is a good one, and the state is one word.
double Sampler::next_uniform() {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15ULL);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    z ^= z >> 31;
    return static_cast<double>(z >> 11) * 0x1.0p-53;
}

void Sampler::penalize(std::span<float> logits, std::span<const std::int32_t> history) const {
    if (params_.repeat_penalty == 1.0F || params_.penalty_last_n <= 0) return;
    const std::size_t n =
        std::min(history.size(), static_cast<std::size_t>(params_.penalty_last_n));
    std::vector<std::int32_t> recent(history.end() - static_cast<std::ptrdiff_t>(n), history.end());
    std::sort(recent.begin(), recent.end());
    recent.erase(std::unique(recent.begin(), recent.end()), recent.end());
    for (const std::int32_t token : recent) {
        float& logit = logits[static_cast<std::size_t>(token)];
        logit = logit > 0 ? logit / params_.repeat_penalty : logit * params_.repeat_penalty;
    }
}

std::int32_t Sampler::sample(std::span<float> logits, std::span<const std::int32_t> history) {
    penalize(logits, history);
    if (params_.temperature <= 0 || params_.top_k == 1) return argmax(logits);
    const bool all = params_.top_k <= 0 || static_cast<std::size_t>(params_.top_k) >= logits.size();
    if (all && params_.top_p >= 1 && params_.min_p <= 0) return draw_from_all(logits);
    if (all) {
        take_all_plausible(logits);
    } else {
        take_top_k(logits);
    }
    if (candidates_.empty()) return argmax(logits);
    if (params_.top_p < 1) cut_top_p();
    if (params_.min_p > 0) {
        const float least = candidates_.front().logit + std::min(std::log(params_.min_p), 0.0F);
        std::erase_if(candidates_, [least](const Candidate& c) { return c.logit < least; });
    }
    return draw_from(candidates_);
}

std::int32_t Sampler::draw_from_all(std::span<const float> logits) {
    const float best = highest(logits);
    const float scale = 1.0F / params_.temperature;
    const float floor = best - kNegligible * params_.temperature;
    candidates_.clear();
    double sum = 0;
    for (std::size_t i = 0; i < logits.size(); ++i) {
        if (!(logits[i] >= floor)) continue;
        const float weight = std::exp((logits[i] - best) * scale);
        candidates_.push_back({weight, static_cast<std::int32_t>(i)});
        sum += static_cast<double>(weight);
    }
    double left = next_uniform() * sum;
    for (const Candidate& candidate : candidates_) {
        left -= static_cast<double>(candidate.logit);
        if (left < 0) return candidate.token;
    }
    return argmax(logits);
}

void Sampler::take_top_k(std::span<const float> logits) {
    const auto k = static_cast<std::size_t>(params_.top_k);
    const auto above = [](const Candidate& a, const Candidate& b) { return a.logit > b.logit; };
    candidates_.clear();
    // A heap whose front is the least of the best k: almost every token fails one comparison.
    for (std::size_t i = 0; i < logits.size(); ++i) {
        const float logit = logits[i];
        if (candidates_.size() == k) {
            if (!(logit > candidates_.front().logit)) continue;
            std::pop_heap(candidates_.begin(), candidates_.end(), above);
            candidates_.back() = {logit, static_cast<std::int32_t>(i)};
        } else if (logit > -std::numeric_limits<float>::infinity()) {
            candidates_.push_back({logit, static_cast<std::int32_t>(i)});
        } else {
            continue;
        }
        std::push_heap(candidates_.begin(), candidates_.end(), above);
    }
    std::sort_heap(candidates_.begin(), candidates_.end(), above);
}

void Sampler::take_all_plausible(std::span<const float> logits) {
    const float floor = highest(logits) - kNegligible * std::max(1.0F, params_.temperature);
    candidates_.clear();
    for (std::size_t i = 0; i < logits.size(); ++i)
        if (logits[i] >= floor) candidates_.push_back({logits[i], static_cast<std::int32_t>(i)});
    const auto best =
        std::max_element(candidates_.begin(), candidates_.end(),
                         [](const Candidate& a, const Candidate& b) { return a.logit < b.logit; });
    if (best != candidates_.end()) std::iter_swap(candidates_.begin(), best);
}

// Sorts only as far as the sum needs: a handful of tokens in the usual, peaked case.
void Sampler::cut_top_p() {
    const float best = candidates_.front().logit;
    double sum = 0;
    for (const Candidate& candidate : candidates_)
        sum += static_cast<double>(std::exp(candidate.logit - best));
    const double enough = static_cast<double>(params_.top_p) * sum;
    double cumulative = 0;
    std::size_t done = 0;
    for (std::size_t sorted = 64; done < candidates_.size(); sorted *= 4) {
        const std::size_t end = std::min(sorted, candidates_.size());
        const auto from = candidates_.begin() + static_cast<std::ptrdiff_t>(done);
        std::partial_sort(from, candidates_.begin() + static_cast<std::ptrdiff_t>(end),
                          candidates_.end(),
                          [](const Candidate& a, const Candidate& b) { return a.logit > b.logit; });
        for (; done < end; ++done) {
            cumulative += static_cast<double>(std::exp(candidates_[done].logit - best));
            if (cumulative < enough) continue;
            candidates_.resize(done + 1);
            return;
        }
    }
}

std::int32_t Sampler::draw_from(std::span<const Candidate> candidates) {
    const float best = candidates.front().logit;
    const float scale = 1.0F / params_.temperature;
    double sum = 0;
    for (const Candidate& c : candidates)
        sum += static_cast<double>(std::exp((c.logit - best) * scale));
    double left = next_uniform() * sum;
    for (const Candidate& c : candidates) {
        left -= static_cast<double>(std::exp((c.logit - best) * scale));
        if (left < 0) return c.token;
    }
    return candidates.front().token;
}

}  // namespace zerohop::engine
