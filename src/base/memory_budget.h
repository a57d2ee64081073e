// MemoryBudget: what all requests may hold together of what clients sent, and each workspace of
// that: one client that sends much must not shut out the others. MemoryCharge: one holder's part.
//
// The charge of a request begins with the first byte of its body, covers what is decoded and parsed
// from it, and ends when the last copy of that is gone (Request::memory).
// Threads: MemoryBudget any; a MemoryCharge one at a time. The budget outlives its charges.
// Nothing fails but by saying no.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>

namespace zerohop {

class MemoryBudget {
  public:
    static constexpr std::size_t kSlots = 256;
    static constexpr std::size_t kNoShare = kSlots;  // a slot: counts in the total only
    // A holder of no more than this has a sixteenth beyond cap and share: what large ones fill for
    // as long as they may does not keep small ones out.
    static constexpr std::size_t kSmall = 64 * 1024;

    // share_bytes: of one workspace (of a few that fall into one slot, when there are many).
    MemoryBudget(std::int64_t cap_bytes, std::int64_t share_bytes)
        : cap_(cap_bytes), share_(share_bytes) {}

    static std::size_t slot_of(std::string_view workspace) {
        return std::hash<std::string_view>{}(workspace) % kSlots;
    }
    // `bytes` more, for one who then holds `in_all`. False, and nothing changed, when that would
    // exceed the cap or the share.
    bool take(std::size_t slot, std::size_t bytes, std::size_t in_all) {
        const auto more = static_cast<std::int64_t>(bytes);
        const std::int64_t all = used_.fetch_add(more, std::memory_order_relaxed) + more;
        const std::int64_t own = slots_[slot].fetch_add(more, std::memory_order_relaxed) + more;
        if (all <= most(cap_, in_all) && (slot == kNoShare || own <= most(share_, in_all)))
            return true;
        give_back(slot, bytes);
        return false;
    }
    void give_back(std::size_t slot, std::size_t bytes) {
        used_.fetch_sub(static_cast<std::int64_t>(bytes), std::memory_order_relaxed);
        slots_[slot].fetch_sub(static_cast<std::int64_t>(bytes), std::memory_order_relaxed);
    }
    std::int64_t used_bytes() const { return used_.load(std::memory_order_relaxed); }
    // Whether so much could be taken now; an answer for refusing early, no promise.
    bool has_room_for(std::size_t slot, std::int64_t bytes) const {
        const auto in_all = static_cast<std::size_t>(bytes);
        return bytes <= most(cap_, in_all) - used_bytes() &&
               bytes <= most(share_, in_all) - slots_[slot].load(std::memory_order_relaxed);
    }

  private:
    static std::int64_t most(std::int64_t bound, std::size_t in_all) {
        return in_all <= kSmall ? bound + bound / 16 : bound;
    }

    const std::int64_t cap_;
    const std::int64_t share_;
    std::atomic<std::int64_t> used_{0};
    std::array<std::atomic<std::int64_t>, kSlots + 1> slots_{};
};

class MemoryCharge {
  public:
    MemoryCharge() = default;  // without a budget everything fits
    MemoryCharge(MemoryBudget* budget, std::size_t slot) : budget_(budget), slot_(slot) {}
    MemoryCharge(MemoryCharge&& other) noexcept
        : budget_(other.budget_), slot_(other.slot_), bytes_(std::exchange(other.bytes_, 0)) {}
    MemoryCharge& operator=(MemoryCharge&& other) noexcept {
        if (this == &other) return *this;
        (void)resize(0);
        budget_ = other.budget_;
        slot_ = other.slot_;
        bytes_ = std::exchange(other.bytes_, 0);
        return *this;
    }
    ~MemoryCharge() { (void)resize(0); }

    // From now on it is `bytes` in all. False, and nothing changed, when that does not fit.
    bool resize(std::size_t bytes) {
        if (budget_ != nullptr) {
            if (bytes > bytes_ && !budget_->take(slot_, bytes - bytes_, bytes)) return false;
            if (bytes < bytes_) budget_->give_back(slot_, bytes_ - bytes);
        }
        bytes_ = bytes;
        return true;
    }
    std::size_t bytes() const { return bytes_; }

    // An empty one on the same budget, for what is needed for a moment while working on what this
    // one pays for: in the total, not in the workspace's share.
    MemoryCharge for_a_moment() const { return {budget_, MemoryBudget::kNoShare}; }

  private:
    MemoryBudget* budget_ = nullptr;
    std::size_t slot_ = MemoryBudget::kNoShare;
    std::size_t bytes_ = 0;
};

}  // namespace zerohop
