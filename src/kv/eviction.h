// Eviction: which leaf of the prefix tree loses its last block.
//
// Plain LRU, corrected by what the traffic teaches. Leaves stand in three lists, each in LRU order:
//
//   kOnce      [oldest … newest]    seen by one request so far
//   kReused    [oldest … newest]    a later request came through it
//   kShortTail [oldest … newest]    a small new end behind a long known prefix (a question, a turn)
//
// The victim is the list head with the smallest  stamp + bonus[class]. bonus is in blocks of
// traffic: "kept as if used that much later". Evicted blocks leave a 64-bit mark of their prefix in
// a bounded FIFO per class (ghosts). When a request asks for a marked block, keeping that class
// longer would have been right: its bonus rises by one block, the others' fall in proportion to
// their share of ghosts (ARC's rule, Megiddo & Modha, FAST 2003, with recency kept comparable
// between the lists). |bonus| ≤ capacity, so no list can lock another out. bench/mooncake compares
// it with plain LRU.
//
// Threads: the engine thread. Memory: one set node per leaf, 8·ghosts bytes. Nothing fails.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

namespace zerohop::kv {

using NodeId = std::uint32_t;

enum class LeafClass : std::uint8_t { kOnce, kReused, kShortTail };
inline constexpr std::size_t kLeafClasses = 3;

class Eviction {
  public:
    explicit Eviction(std::uint64_t capacity_blocks, bool adaptive = true);

    void insert(NodeId node, LeafClass cls, std::uint64_t stamp);
    void erase(NodeId node, LeafClass cls, std::uint64_t stamp);
    std::optional<NodeId> victim() const;
    bool empty() const;

    // A block of that class was evicted; mark names its prefix.
    void evicted(std::uint64_t mark, LeafClass cls);
    // A request needs a block that is not there. True if it was evicted not long ago.
    bool missed(std::uint64_t mark);

    std::int64_t bonus(LeafClass cls) const;

  private:
    using List = std::set<std::pair<std::uint64_t, NodeId>>;
    static std::size_t index(LeafClass cls) { return static_cast<std::size_t>(cls); }
    void learn(std::size_t cls);

    double limit_;
    std::size_t max_ghosts_;
    bool adaptive_;
    std::array<List, kLeafClasses> lists_;
    std::array<double, kLeafClasses> bonus_{};
    struct Ghost {
        std::uint8_t cls;
        std::uint64_t serial;
    };
    std::unordered_map<std::uint64_t, Ghost> ghosts_;
    std::deque<std::pair<std::uint64_t, std::uint64_t>> order_;  // mark, serial; oldest first
    std::array<std::uint64_t, kLeafClasses> ghost_count_{};
    std::uint64_t serial_ = 0;
};

}  // namespace zerohop::kv
