// KvPool: who may use how much of the KV cache. Bookkeeping only; the engine moves the cells.
//
// A request is admitted with a grant: a sequence id and a reservation of tokens. It may grow past
// its reservation while there is room. In a unified cache the reservations share `total` tokens;
// with a stream per sequence each id owns `per_sequence` tokens and only ids run out. This is the
// seam for shared prefixes: `cached` of a grant says how many tokens of the request are already in
// the cache of its sequence (none yet).
//
// Threads: the engine's. Nothing fails but by saying no; releasing what was not granted is a bug.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace zerohop::engine {

struct KvGrant {
    std::int32_t sequence = -1;
    std::int32_t cached = 0;
};

class KvPool {
  public:
    // total: tokens of the whole cache. per_sequence: most tokens one sequence may hold.
    KvPool(std::int32_t sequences, std::int64_t total, std::int64_t per_sequence, bool unified);

    // Room for `reserve` tokens (capped at per_sequence) and a free id; nullopt when there is none.
    std::optional<KvGrant> admit(std::span<const std::int32_t> tokens, std::int64_t reserve);

    // Makes the reservation cover `tokens`, with some to spare when there is; false: no room.
    bool cover(std::int32_t sequence, std::int64_t tokens);

    void release(std::int32_t sequence);

    std::int64_t total() const { return total_; }
    std::int64_t reserved() const { return reserved_; }
    std::int32_t free_sequences() const { return static_cast<std::int32_t>(free_.size()); }

  private:
    static constexpr std::int64_t kStride = 64;  // tokens a reservation grows by

    std::int64_t total_, per_sequence_, reserved_ = 0;
    bool unified_;
    std::vector<std::int32_t> free_;  // last is next
    std::vector<std::int64_t> held_;  // per id; -1: free
};

}  // namespace zerohop::engine
