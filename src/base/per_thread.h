// PerThread<T>: one T for each thread that asks, made on first use, freed when that thread ends.
//
// get() from any thread: a thread-local look-up, no lock. The owner never sees other threads'
// values. A T may therefore outlive its PerThread (until its thread ends) and must not point into
// the owner.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace zerohop {

template <class T>
class PerThread {
  public:
    PerThread() = default;
    PerThread(const PerThread&) = delete;
    PerThread& operator=(const PerThread&) = delete;

    T& get() {
        Slots& slots = mine();
        if (slots.last_id == id_) [[likely]]
            return *slots.last;
        for (auto& [id, value] : slots.all) {
            if (id != id_) continue;
            slots.last_id = id;
            slots.last = value.get();
            return *value;
        }
        slots.all.emplace_back(id_, std::make_unique<T>());
        slots.last_id = id_;
        slots.last = slots.all.back().second.get();
        return *slots.last;
    }

  private:
    struct Slots {
        std::uint64_t last_id = 0;
        T* last = nullptr;
        std::vector<std::pair<std::uint64_t, std::unique_ptr<T>>> all;
    };
    static Slots& mine() {
        thread_local Slots slots;
        return slots;
    }
    static std::uint64_t next_id() {
        static std::atomic<std::uint64_t> next{1};
        return next.fetch_add(1, std::memory_order_relaxed);
    }

    const std::uint64_t id_ =
        next_id();  // never used twice, so a dead owner's values are not found
};

}  // namespace zerohop
