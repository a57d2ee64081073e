// Plans: what requests of one structure have needed before: output length, for pricing, ordering
// and KV reservation.
//
// Per (namespace, skeleton): a fading mean and a fading histogram with two cells per doubling, so
// that the quantile follows a change within some 30 requests. A look-up takes the first key of the
// chain (whole, last turn, system + tools) that has seen enough; without one, the model's own
// numbers over all requests; without those, the configured default.
//
// Threads: externally synchronized (engine thread, or admission under its own lock). Memory: at
// most max_entries, the least recently used go. Nothing fails.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <unordered_map>

#include "kv/namespace.h"

namespace zerohop::kv {

struct PlanKey {
    Namespace ns;
    std::uint64_t lo = 0, hi = 0;  // skeleton hash; both 0: none
    friend bool operator==(const PlanKey&, const PlanKey&) = default;
};

struct Expectation {
    double mean_tokens = 0;
    std::uint32_t reserve_tokens = 0;  // 90 % of the outputs were no longer
    std::uint32_t samples = 0;         // 0: a default
};

struct PlansConfig {
    std::size_t max_entries = 65536;
    std::uint32_t default_output = 256;
    std::uint32_t enough = 3;  // samples before a key is believed
};

class Plans {
  public:
    explicit Plans(const PlansConfig& config) : config_(config) {}

    // Never more than `cap` (the request's max_tokens; 0: none).
    Expectation expect(std::span<const PlanKey> chain, std::uint32_t cap);
    // Only finished outputs: a cancelled one says nothing about the structure. One cut by its cap
    // counts as at least that long.
    void learn(std::span<const PlanKey> chain, std::uint32_t output_tokens);

    void forget(std::uint64_t owner);  // Namespace::owner

    std::size_t size() const { return entries_.size(); }

  private:
    static constexpr std::size_t kCells = 42;  // up to 2^20 tokens
    struct Record {
        PlanKey key;
        double mean = 0;
        std::array<float, kCells> cells{};
        std::uint32_t samples = 0;
    };
    struct KeyHash {
        std::size_t operator()(const PlanKey& k) const noexcept {
            return NamespaceHash{}(k.ns) * 0x9E3779B97F4A7C15ULL ^ k.lo ^ (k.hi << 1);
        }
    };
    // All requests of a namespace share this key; a real skeleton hash is never all ones.
    static PlanKey any(const Namespace& ns) { return {.ns = ns, .lo = ~0ULL, .hi = ~0ULL}; }
    void learn_key(const PlanKey& key, std::uint32_t output_tokens);
    static void update(Record& record, std::uint32_t tokens);
    static Expectation read(const Record& record, std::uint32_t cap);

    PlansConfig config_;
    std::list<Record> order_;  // most recently used first
    std::unordered_map<PlanKey, std::list<Record>::iterator, KeyHash> entries_;
};

}  // namespace zerohop::kv
