// LengthLearner: how long a key's answers usually are, for pricing and ordering.
//
// The 80 % quantile of recent output lengths, from a histogram whose old samples fade (half-life
// ~35 requests). Starts at a prior that four real samples outweigh. Threads: observe() any (a
// mutex); estimate() any, one relaxed load. Nothing fails.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>

#include "request/request.h"

namespace zerohop::admit {

class LengthLearner {
  public:
    static constexpr std::int32_t kPrior = 256;  // tokens

    LengthLearner();
    void observe(std::int32_t output_tokens);
    std::int32_t estimate() const { return estimate_.load(std::memory_order_relaxed); }
    // Whether the estimate is answers' and not the prior's.
    bool learned() const { return learned_.load(std::memory_order_relaxed); }

  private:
    // Four buckets per power of two up to 2^20: an estimate is at most 25 % too high, never too
    // low.
    static constexpr std::size_t kBuckets = 80;
    static std::size_t bucket_of(std::int32_t tokens);
    static std::int32_t upper_edge(std::size_t bucket);

    std::mutex mutex_;
    std::array<double, kBuckets> weight_{};
    double total_ = 0;
    double next_ = 1;  // weight of the next sample; grows, so that old ones fade
    std::atomic<std::int32_t> estimate_{kPrior};
    std::atomic<bool> learned_{false};
};

// The same for prompts of one structure (request.h), within a workspace: the first of its structure
// keys that was answered often enough counts. Memory: kMost structures, the least recently used
// go. Threads: any (a mutex). Nothing fails.
class StructureLengths {
  public:
    static constexpr std::size_t kMost = 256;

    void observe(std::span<const StructureKey> structure, std::int32_t output_tokens);
    std::optional<std::int32_t> estimate(std::span<const StructureKey> structure) const;
    void forget();

  private:
    struct Entry {
        LengthLearner learner;
        std::uint64_t used = 0;
    };
    void make_room();

    mutable std::mutex mutex_;
    std::unordered_map<std::uint64_t, Entry> entries_;  // by the low half of the hash
    std::uint64_t clock_ = 0;
};

}  // namespace zerohop::admit
