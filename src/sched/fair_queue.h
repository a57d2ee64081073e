// FairQueue: who is admitted to the batch next.
//
// Order, strongest first:
//   1. High priority before the rest; but after kHighInARow high ones in a row, one of the others
//      that has waited ≥ 2 s gets its turn, so that nothing starves.
//   2. Among workspaces, deficit round robin over estimated tokens with the smallest quantum: the
//      one that has been given the fewest tokens is next, however many requests it has queued. One
//      that had nothing queued for a while keeps what it is ahead, so that coming one by one gains
//      nothing, and what it is behind up to kMaxCredit, so that who has few requests at a time is
//      next whenever one comes; more it cannot save up. Low priority counts 100 ms later: a
//      workspace whose best item is a low one younger than that steps back behind those with due
//      items.
//      A place that one of its requests leaves is kept for it for a moment (kReturn) when it has
//      nothing queued and would be next: who keeps n requests in flight keeps n places.
//   3. Inside a workspace, by counted arrival + min(expected work, 2 s): shorter work overtakes
//      longer work that came at most 2 s before it, never more.
//
// Bound: `max_requests` and `max_tokens`. Nobody may fill it alone: a workspace gets at most 7/8,
// and the last quarter is for workspaces below their share of those waiting. Full-policy: push()
// fails with kOverloaded (529) and the time in which a place is likely.
//
// Not thread-safe: owned by the engine thread. Time is passed in. Items are values; `handle` is the
// owner's. Cost: O(log n) per operation, O(workspaces) for peek.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "request/priority.h"

namespace zerohop::sched {

struct FairItem {
    std::uint64_t handle = 0;  // unique among the queued
    std::string workspace;
    Priority priority = Priority::kNormal;
    std::int64_t tokens = 0;      // input to compute + expected output
    MonoNs expected_work_ns = 0;  // how long it will keep the engine busy
    MonoNs first_token_ns = 0;    // of it, from a slot to the first token
    MonoNs arrived_ns = 0;
};

class FairQueue {
  public:
    struct Bounds {
        std::uint32_t max_requests = 256;
        std::int64_t max_tokens = 1'000'000;
        std::string model = {};  // whose requests these are, for messages; may be empty
    };
    static constexpr MonoNs kLowDelay = 100 * kNsPerMs;
    static constexpr MonoNs kMaxOvertake = 2 * kNsPerSec;
    static constexpr int kHighInARow = 8;
    // Both bought by simulation (eight slots, 100–500-token prompts, 4 in flight beside 64): the
    // share that is left of what the 4 get beside 4 others. Credit: 0.90 with none, 0.94 with 256,
    // 0.97 with 1,024, 0.99 from here on; more would only let one take more at once. Return: 0.89
    // with none (WhoReturnsLaterLosesItsPlace), 0.99 with this; on loopback a client was back after
    // 4–16 ms.
    static constexpr std::int64_t kMaxCredit = 2048;  // tokens
    static constexpr MonoNs kReturn = 20 * kNsPerMs;

    explicit FairQueue(const Bounds& bounds) : bounds_(bounds) {}
    FairQueue(const FairQueue&) = delete;
    FairQueue& operator=(const FairQueue&) = delete;

    Status push(FairItem item, MonoNs now);
    // The item that pop() would give; nullptr when there is none. Valid until the next change.
    const FairItem* peek(MonoNs now) const;
    std::optional<FairItem> pop(MonoNs now);
    // Takes one out that was cancelled or has a passed deadline; false when it is not queued.
    bool remove(std::uint64_t handle);

    // Of these workspaces only high priority has a turn, until the next call.
    void hold_back(const std::vector<std::string>& workspaces) { held_back_ = workspaces; }

    // A request of this workspace ended well …
    void note_end(const std::string& workspace, MonoNs now);
    // … so many free places are to be kept for those that had one, instead of going to peek().
    std::size_t kept(MonoNs now) const;

    std::size_t size() const { return by_handle_.size(); }
    std::int64_t tokens() const { return tokens_; }
    bool full() const { return size() >= bounds_.max_requests || tokens_ >= bounds_.max_tokens; }
    std::size_t high_waiting() const { return count_[1]; }
    MonoNs high_first_token_ns() const { return high_first_token_ns_; }  // of them all
    // Expected wait of one pushed now, from how fast the queue has been moving; ≥ 1 s for messages.
    std::int64_t retry_after_ms() const;

  private:
    struct Entry {
        MonoNs order = 0;  // see 3. above
        std::uint64_t sequence = 0;
        FairItem item;
        bool operator<(const Entry& other) const {
            return order != other.order ? order < other.order : sequence < other.sequence;
        }
    };
    struct Workspace {
        std::string name;
        std::set<Entry> entries[2];      // 0: normal and low, 1: high
        std::int64_t given[2] = {0, 0};  // tokens, on the scale of level_
        std::int64_t tokens = 0;
        std::size_t requests() const { return entries[0].size() + entries[1].size(); }
    };
    using Ring = std::list<Workspace*>;  // front: longest without a turn
    struct Place {
        Workspace* workspace = nullptr;
        int band = 0;
        std::set<Entry>::iterator entry;
    };

    Status check_bounds(const FairItem& item) const;
    void insert(FairItem item);
    FairItem take(const Place& place);
    std::optional<Place> choose(MonoNs now) const;
    std::optional<Place> choose_in(int band, MonoNs now, bool due_only) const;
    std::int64_t given_to(const std::string& workspace, int band) const;
    void enter(Workspace& workspace, int band);
    void leave(Workspace& workspace, int band);
    bool others_overdue(MonoNs now) const;

    const Bounds bounds_;
    std::unordered_map<std::string, std::unique_ptr<Workspace>> workspaces_;
    Ring ring_[2];
    // The most that one had been given when it was its turn: who comes anew starts here.
    std::int64_t level_[2] = {0, 0};
    // What those that have nothing queued had been given, while that is above level_ - kMaxCredit.
    std::unordered_map<std::string, std::int64_t> away_[2];
    std::vector<std::string> held_back_;
    std::deque<std::pair<MonoNs, std::string>> ended_;  // within kReturn, oldest first
    std::unordered_map<std::uint64_t, Place> by_handle_;
    std::size_t count_[2] = {0, 0};
    std::int64_t tokens_ = 0;
    MonoNs high_first_token_ns_ = 0;
    std::uint64_t next_sequence_ = 1;
    int high_in_a_row_ = 0;
    MonoNs last_pop_ns_ = 0;
    double ns_per_pop_ = 0;  // moving average
};

}  // namespace zerohop::sched
