#include "admit/length_learner.h"

#include <algorithm>
#include <bit>

namespace zerohop::admit {
namespace {
constexpr double kQuantile = 0.8;
constexpr double kFade = 1.02;
}  // namespace

LengthLearner::LengthLearner() {
    weight_[bucket_of(kPrior)] = 1;
    total_ = 1;
}

std::size_t LengthLearner::bucket_of(std::int32_t tokens) {
    const auto n = static_cast<std::uint32_t>(std::clamp(tokens, 1, 1 << 20));
    if (n < 4) return n;
    const int exponent = std::bit_width(n) - 1;  // ≥ 2
    const std::size_t bucket =
        static_cast<std::size_t>(exponent - 1) * 4 + ((n >> (exponent - 2)) & 3);
    return std::min(bucket, kBuckets - 1);
}

std::int32_t LengthLearner::upper_edge(std::size_t bucket) {
    if (bucket < 4) return static_cast<std::int32_t>(bucket);
    const int exponent = static_cast<int>(bucket / 4) + 1;
    const auto quarter = static_cast<std::int32_t>(bucket % 4);
    return ((4 + quarter + 1) << (exponent - 2)) - 1;
}

void LengthLearner::observe(std::int32_t output_tokens) {
    const std::scoped_lock lock(mutex_);
    weight_[bucket_of(output_tokens)] += next_;
    total_ += next_;
    next_ *= kFade;
    if (next_ > 1e12) {
        for (double& w : weight_) w /= next_;
        total_ /= next_;
        next_ = 1;
    }
    double below = 0;
    std::size_t bucket = 0;
    while (bucket + 1 < kBuckets && below + weight_[bucket] < kQuantile * total_)
        below += weight_[bucket++];
    estimate_.store(upper_edge(bucket), std::memory_order_relaxed);
    // The prior, whose weight is 1 or, by now, less, no longer reaches the quantile by itself.
    if (total_ - 1 >= kQuantile * total_) learned_.store(true, std::memory_order_relaxed);
}

void StructureLengths::observe(std::span<const StructureKey> structure,
                               std::int32_t output_tokens) {
    const std::scoped_lock lock(mutex_);
    ++clock_;
    for (const StructureKey& key : structure) {
        if (key.empty()) continue;
        if (!entries_.contains(key.lo)) make_room();
        Entry& entry = entries_[key.lo];
        if (entry.used == clock_) continue;  // two of its keys are one
        entry.used = clock_;
        entry.learner.observe(output_tokens);
    }
}

void StructureLengths::forget() {
    const std::scoped_lock lock(mutex_);
    entries_.clear();
}

void StructureLengths::make_room() {
    if (entries_.size() < kMost) return;
    entries_.erase(std::ranges::min_element(entries_, {},
                                            [](const auto& entry) { return entry.second.used; }));
}

std::optional<std::int32_t> StructureLengths::estimate(
    std::span<const StructureKey> structure) const {
    if (std::ranges::all_of(structure, &StructureKey::empty)) return {};
    const std::scoped_lock lock(mutex_);
    for (const StructureKey& key : structure) {
        const auto it = key.empty() ? entries_.end() : entries_.find(key.lo);
        if (it != entries_.end() && it->second.learner.learned())
            return it->second.learner.estimate();
    }
    return {};
}

}  // namespace zerohop::admit
