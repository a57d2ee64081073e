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
}

}  // namespace zerohop::admit
