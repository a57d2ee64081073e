// Soft KV reservations: cells that a request whose head came, but whose body has not, will want.
//
// One SoftKvBook per workspace; a SoftHold is part of its request's HeadAdmission. A hold counts in
// three sums: the book's (bounded), its key's (bounded) and its model's (read by whoever plans KV).
// Beyond a bound there is simply no hold: the request goes on without. A hold that sees no body
// byte for 2 s lapses; lapsed ones are swept whenever the book is used, and by sweep() on a timer.
// Threads: any; one mutex per book, taken at reserve, at release, and at most every 100 ms in
// between. Lifetime: the book outlives its holds (HeadAdmission keeps it alive); the counters as
// well.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "base/clock.h"

namespace zerohop::admit {

inline constexpr MonoNs kSoftLapseNs = 2 * kNsPerSec;

class SoftKvBook;

class SoftHold {
  public:
    SoftHold() = default;
    SoftHold(const SoftHold&) = delete;
    SoftHold& operator=(const SoftHold&) = delete;
    ~SoftHold() { release(); }

    // Body bytes came. Cheap when called for each chunk. No effect on a lapsed hold.
    void touch(MonoNs now);
    void release();     // idempotent
    bool held() const;  // not lapsed, not released

  private:
    friend class SoftKvBook;
    SoftKvBook* book_ = nullptr;  // null: nothing was reserved
    MonoNs last_touch_ = 0;       // the owner's, to spare the mutex
    // Guarded by the book's mutex:
    bool linked_ = false;
    SoftHold* prev_ = nullptr;
    SoftHold* next_ = nullptr;
    MonoNs touched_ = 0;
    std::int64_t tokens_ = 0;
    std::atomic<std::int64_t>* key_sum_ = nullptr;
    std::atomic<std::int64_t>* model_sum_ = nullptr;
};

class SoftKvBook {
  public:
    SoftKvBook() = default;
    SoftKvBook(const SoftKvBook&) = delete;
    SoftKvBook& operator=(const SoftKvBook&) = delete;

    struct Wish {
        std::int64_t tokens = 0;
        std::int64_t workspace_bound = 0;
        std::int64_t key_bound = 0;
        std::atomic<std::int64_t>* key_sum = nullptr;
        std::atomic<std::int64_t>* model_sum = nullptr;
    };
    // False, and no hold, when a bound would be passed. `hold` must be fresh.
    bool reserve(SoftHold& hold, const Wish& wish, MonoNs now);
    void sweep(MonoNs now);
    std::int64_t sum_approx() const { return sum_.load(std::memory_order_relaxed); }

  private:
    friend class SoftHold;
    void link_last(SoftHold& hold);  // mutex held, as for the rest
    void unlink(SoftHold& hold);
    void drop(SoftHold& hold);
    void sweep_locked(MonoNs now);

    mutable std::mutex mutex_;
    SoftHold* first_ = nullptr;  // longest untouched first
    SoftHold* last_ = nullptr;
    std::atomic<std::int64_t> sum_{0};
};

}  // namespace zerohop::admit
