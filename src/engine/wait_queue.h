// WaitQueue: the requests that wait for a slot of the batch, and whose turn it is.
//
// Order and bounds are admit::FairQueue's. A lane with reserved slots has a queue of its own, so
// that nobody of another lane stands in its way; all other lanes share one. A reservation holds
// while its lane is in use (kLaneMemory): a lane that nobody uses costs the others nothing.
//
// Owner: an engine, under its lock or on its thread. Pointer is what the engine keeps per request;
// the queue owns it from push() to take(). push() fails with kOverloaded and leaves it alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "admit/fair_queue.h"
#include "request/request.h"

namespace zerohop::engine {

inline constexpr MonoNs kLaneMemory = 60 * kNsPerSec;

// What a request stands in the queue with. `planned_output`: what requests of its structure needed
// before; 0: not known, then the estimate of its head holds. Absent both, a short answer.
inline admit::FairItem fair_item(const Request& request, std::uint64_t handle,
                                 std::int64_t input_tokens, double input_token_ns,
                                 double output_token_ns, MonoNs now,
                                 std::int32_t planned_output = 0) {
    constexpr std::int32_t kUnknownOutput = 256;
    const std::int32_t guess =
        request.expected_output > 0 ? request.expected_output : kUnknownOutput;
    const std::int32_t output =
        std::min(request.max_tokens, planned_output > 0 ? planned_output : guess);
    const double work = static_cast<double>(input_tokens) * input_token_ns +
                        static_cast<double>(output) * output_token_ns;
    return {.handle = handle,
            .workspace = request.principal.workspace,
            .priority = request.priority,
            .tokens = input_tokens + output,
            .expected_work_ns = static_cast<MonoNs>(work),
            .arrived_ns = now};
}

template <class Pointer>
class WaitQueue {
  public:
    struct Options {
        admit::FairQueue::Bounds bounds;
        std::shared_ptr<admit::QueueGauge> gauge;  // of the shared queue; may be null
        std::vector<std::uint32_t> reserved;       // slots by lane; absent ones reserve none
        std::uint32_t slots = 1;
    };

    explicit WaitQueue(const Options& options) : slots_(options.slots) {
        classes_.push_back(std::make_unique<Class>(options.bounds, options.gauge));
        std::uint32_t left = slots_ / 2;  // what is kept for some must not lock out the rest
        for (const std::uint32_t wanted : options.reserved) {
            const std::uint32_t reserved = std::min(wanted, left);
            left -= reserved;
            class_of_lane_.push_back(reserved == 0 ? 0 : classes_.size());
            if (reserved == 0) continue;
            classes_.push_back(std::make_unique<Class>(options.bounds, nullptr));
            classes_.back()->reserved = reserved;
        }
    }

    Status push(admit::FairItem item, std::uint8_t lane, Pointer&& pointer, MonoNs now) {
        Class& to = *classes_[class_of(lane)];
        const std::uint64_t handle = item.handle;
        if (Status s = to.queue.push(std::move(item), now); !s) return s;
        to.used_ns = now;
        waiting_.emplace(handle, std::move(pointer));
        return {};
    }

    // One more runs on this lane, or one less.
    void note_running(std::uint8_t lane, int change) {
        Class& c = *classes_[class_of(lane)];
        c.running = static_cast<std::uint32_t>(static_cast<int>(c.running) + change);
    }
    // Whether a request of this lane may take a slot now.
    bool has_room(std::uint8_t lane, MonoNs now) const { return room(class_of(lane), now); }

    // Whose turn it is, of those whose lane has room; null: nobody's. Stays in the queue until
    // take(). `high_only`: null unless that is one of high priority.
    Pointer* next(MonoNs now, bool high_only) {
        next_ = nullptr;
        const admit::FairItem* best = nullptr;
        for (std::size_t i = classes_.size(); i-- > 0;) {  // reserved lanes first
            const admit::FairItem* item = classes_[i]->queue.peek(now);
            if (item == nullptr || !room(i, now)) continue;
            if (high_only && item->priority != Priority::kHigh) continue;
            if (best != nullptr &&
                (best->priority == Priority::kHigh || item->priority != Priority::kHigh))
                continue;
            best = item;
            next_ = classes_[i].get();
        }
        return best == nullptr ? nullptr : &waiting_.find(best->handle)->second;
    }
    // The one that next() gave just before.
    Pointer take(MonoNs now) {
        auto node = waiting_.extract(next_->queue.pop(now)->handle);
        return std::move(node.mapped());
    }
    // A high-priority request waits that next() withholds only because all slots are taken.
    bool high_waits() const {
        return std::ranges::any_of(classes_,
                                   [](const auto& c) { return c->queue.high_waiting() > 0; });
    }

    template <class Predicate>
    void erase_if(Predicate over) {
        for (auto it = waiting_.begin(); it != waiting_.end();) {
            if (!over(it->second)) {
                ++it;
                continue;
            }
            for (auto& c : classes_)
                if (c->queue.remove(it->first)) break;
            it = waiting_.erase(it);
        }
    }
    std::size_t size() const { return waiting_.size(); }
    bool empty() const { return waiting_.empty(); }

  private:
    struct Class {
        Class(const admit::FairQueue::Bounds& bounds, std::shared_ptr<admit::QueueGauge> gauge)
            : queue(bounds, std::move(gauge)) {}
        admit::FairQueue queue;
        std::uint32_t reserved = 0, running = 0;
        MonoNs used_ns = 0;
    };
    std::size_t class_of(std::uint8_t lane) const {
        return lane < class_of_lane_.size() ? class_of_lane_[lane] : 0;
    }
    bool room(std::size_t mine, MonoNs now) const {
        std::uint32_t used = 0;
        for (std::size_t i = 0; i < classes_.size(); ++i) {
            const Class& c = *classes_[i];
            used += c.running;
            const bool holds = c.used_ns != 0 && now - c.used_ns < kLaneMemory;
            if (i != mine && holds && c.reserved > c.running) used += c.reserved - c.running;
        }
        return used < slots_;
    }

    const std::uint32_t slots_;
    std::vector<std::unique_ptr<Class>> classes_;  // 0: all lanes that reserve nothing
    std::vector<std::size_t> class_of_lane_;
    std::unordered_map<std::uint64_t, Pointer> waiting_;  // by FairItem::handle
    Class* next_ = nullptr;
};

}  // namespace zerohop::engine
