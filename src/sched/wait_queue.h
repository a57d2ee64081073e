// WaitQueue: the requests that wait for a slot of the batch, and whose turn it is.
//
// Order and bounds are FairQueue's. A lane with reserved slots has a queue of its own, so
// that nobody of another lane stands in its way; all other lanes share one. A reservation holds
// while its lane is in use (kLaneMemory): a lane that nobody uses costs the others nothing.
//
// Its gauge is told for each lane whether its queue is full, and how long a high-priority request
// would wait now: for a slot, for the prompts before it and for the running step, all from what was
// expected of those that were taken. next() refreshes it, so an engine calls that after every
// change, also before it sleeps.
//
// Owner: an engine, under its lock or on its thread. Pointer is what the engine keeps per request;
// the queue owns it from push() to take(). push() fails with kOverloaded and leaves it alone.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "request/request.h"
#include "sched/fair_queue.h"
#include "sched/lane_slots.h"
#include "sched/queue_gauge.h"

namespace zerohop::sched {

inline constexpr MonoNs kLaneMemory = 60 * kNsPerSec;

// What a request stands in the queue with. `input_tokens`: those that are left to compute, in
// `first_token_ns`. `planned_output`: what requests of its structure needed before; 0: not known,
// then the estimate of its head holds. Absent both, a short answer.
inline FairItem fair_item(const Request& request, std::uint64_t handle, std::int64_t input_tokens,
                          double first_token_ns, double output_token_ns, MonoNs now,
                          std::int32_t planned_output = 0) {
    constexpr std::int32_t kUnknownOutput = 256;
    const std::int32_t guess =
        request.expected_output > 0 ? request.expected_output : kUnknownOutput;
    const std::int32_t output =
        std::min(request.max_tokens, planned_output > 0 ? planned_output : guess);
    const double work = first_token_ns + static_cast<double>(output) * output_token_ns;
    return {.handle = handle,
            .workspace = request.principal.workspace,
            .priority = request.priority,
            .tokens = input_tokens + output,
            .expected_work_ns = static_cast<MonoNs>(work),
            .first_token_ns = static_cast<MonoNs>(first_token_ns),
            .arrived_ns = now};
}

template <class Pointer>
class WaitQueue {
  public:
    struct Options {
        FairQueue::Bounds bounds;
        std::shared_ptr<QueueGauge> gauge;    // kept up to date; may be null
        std::vector<std::uint32_t> reserved;  // slots by lane; absent ones reserve none
        std::uint32_t slots = 1;
        // The engine computes in steps that it looks here between, prompts one after the other, and
        // lets high priority pre-empt low. False: all at once, each for itself.
        bool stepped = true;
    };

    explicit WaitQueue(const Options& options)
        : slots_(options.slots), stepped_(options.stepped), gauge_(options.gauge) {
        classes_.push_back(std::make_unique<Class>(options.bounds));
        if (gauge_) {
            gauge_->max_requests = options.bounds.max_requests;
            gauge_->max_tokens = static_cast<std::uint64_t>(options.bounds.max_tokens);
        }
        for (const std::uint32_t reserved : granted_slots(options.reserved, slots_)) {
            class_of_lane_.push_back(reserved == 0 ? 0 : classes_.size());
            if (reserved == 0) continue;
            classes_.push_back(std::make_unique<Class>(options.bounds));
            classes_.back()->reserved = reserved;
        }
    }

    Status push(FairItem item, std::uint8_t lane, Pointer&& pointer, MonoNs now) {
        Class& to = *classes_[class_of(lane)];
        const std::uint64_t handle = item.handle;
        if (Status s = to.queue.push(std::move(item), now); !s) return s;
        to.used_ns = now;
        waiting_.emplace(handle, std::move(pointer));
        publish(now);
        return {};
    }

    // One more runs on this lane, or one less.
    void note_running(std::uint8_t lane, int change) {
        Class& c = *classes_[class_of(lane)];
        c.running = static_cast<std::uint32_t>(static_cast<int>(c.running) + change);
    }
    // One of this lane and workspace ended well: its client may come back at once.
    void note_end(std::uint8_t lane, const std::string& workspace, MonoNs now) {
        if (stepped_) classes_[class_of(lane)]->queue.note_end(workspace, now);
    }
    // Of these workspaces only high priority has a turn, until the next call.
    void hold_back(const std::vector<std::string>& workspaces) {
        for (auto& c : classes_) c->queue.hold_back(workspaces);
    }
    // Whether a request of this lane may take a slot now.
    bool has_room(std::uint8_t lane, MonoNs now) const { return room(class_of(lane), now); }

    // Whose turn it is, of those whose lane has room; null: nobody's. Stays in the queue until
    // take(). `high_only`: null unless that is one of high priority.
    Pointer* next(MonoNs now, bool high_only) {
        note_step(now);
        forget_ended();
        publish(now);
        next_ = nullptr;
        const FairItem* best = nullptr;
        for (std::size_t i = classes_.size(); i-- > 0;) {  // reserved lanes first
            const FairItem* item = classes_[i]->queue.peek(now);
            if (item == nullptr || slots_used(i, now) + kept(i, now) >= slots_) continue;
            if (high_only && item->priority != Priority::kHigh) continue;
            if (best != nullptr &&
                (best->priority == Priority::kHigh || item->priority != Priority::kHigh))
                continue;
            best = item;
            next_ = classes_[i].get();
        }
        return best == nullptr ? nullptr : &waiting_.find(best->handle)->second;
    }
    // Whose turn it would be, of those whose lane has no room; null: nobody's.
    const Pointer* next_without_room(MonoNs now) const {
        for (std::size_t i = classes_.size(); i-- > 0;)
            if (const FairItem* item = classes_[i]->queue.peek(now);
                item != nullptr && !room(i, now))
                return &waiting_.find(item->handle)->second;
        return nullptr;
    }
    // Whether these two take the same slots: neither has reserved ones that the other has not.
    bool same_slots(std::uint8_t lane, std::uint8_t other) const {
        return class_of(lane) == class_of(other);
    }
    // The one that next() gave just before.
    Pointer take(MonoNs now) {
        const std::optional<FairItem> item = next_->queue.pop(now);
        auto node = waiting_.extract(item->handle);
        std::size_t at = 0;
        while (classes_[at].get() != next_) ++at;
        taken_.push_back({.begin = now,
                          .end = now + item->expected_work_ns,
                          .prefill_end = now + item->first_token_ns,
                          .at = at,
                          .low = item->priority == Priority::kLow});
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
    std::size_t queues() const { return classes_.size(); }  // each with the bounds of the options
    bool empty() const { return waiting_.empty(); }

  private:
    struct Class {
        explicit Class(const FairQueue::Bounds& bounds) : queue(bounds) {}
        FairQueue queue;
        std::uint32_t reserved = 0, running = 0;
        std::uint32_t start_ms = 0;
        MonoNs used_ns = 0;
    };
    std::size_t class_of(std::uint8_t lane) const {
        return lane < class_of_lane_.size() ? class_of_lane_[lane] : 0;
    }
    bool room(std::size_t mine, MonoNs now) const { return slots_used(mine, now) < slots_; }
    // Only while somebody runs: who decodes looks here again and again.
    std::size_t kept(std::size_t mine, MonoNs now) const {
        return any_running() ? classes_[mine]->queue.kept(now) : 0;
    }
    bool any_running() const {
        return std::ranges::any_of(classes_, [](const auto& c) { return c->running > 0; });
    }
    std::uint32_t slots_used(std::size_t mine, MonoNs now) const {
        std::uint32_t used = 0;
        for (std::size_t i = 0; i < classes_.size(); ++i) {
            const Class& c = *classes_[i];
            used += c.running;
            const bool holds = c.used_ns != 0 && now - c.used_ns < kLaneMemory;
            if (i != mine && holds && c.reserved > c.running) used += c.reserved - c.running;
        }
        return used;
    }

    // The longest step of late: its last turns count most.
    void note_step(MonoNs now) {
        if (!stepped_) return;
        if (was_running_ && now > last_look_ns_)
            step_ns_ = std::max(now - last_look_ns_, step_ns_ / 16 * 15);
        last_look_ns_ = now;
        was_running_ = any_running();
        if (!was_running_) step_ns_ = 0;
    }
    // Which of those taken have ended nobody says: those whose end was expected first.
    void forget_ended() {
        for (std::size_t at = 0; at < classes_.size(); ++at) {
            auto count = std::ranges::count(taken_, at, &Taken::at);
            for (; count > static_cast<std::ptrdiff_t>(classes_[at]->running); --count) {
                auto first = taken_.end();
                for (auto it = taken_.begin(); it != taken_.end(); ++it)
                    if (it->at == at && (first == taken_.end() || it->end < first->end)) first = it;
                taken_.erase(first);
            }
        }
    }
    MonoNs slot_wait(std::size_t mine, MonoNs now) const {
        const std::uint32_t used = slots_used(mine, now);
        std::size_t free = used < slots_ ? slots_ - used : 0;
        for (const Taken& t : taken_) free += stepped_ && t.low ? 1 : 0;
        const std::size_t before = classes_[mine]->queue.high_waiting();
        if (before < free) return 0;
        std::vector<MonoNs> ends;
        for (const Taken& t : taken_)
            if (t.at == mine || t.at == 0) ends.push_back(std::max(t.left(now), step_ns_));
        if (ends.empty()) return 0;
        std::ranges::sort(ends);
        const std::size_t turn = before - free;
        return ends[turn % ends.size()] +
               ends.back() * static_cast<MonoNs>(turn / ends.size());  // those of the next rounds
    }
    void publish(MonoNs now) {
        if (!gauge_) return;
        MonoNs before = 0;
        if (stepped_) {
            before = step_ns_;
            for (const Taken& t : taken_) before += std::max<MonoNs>(t.prefill_end - now, 0);
            for (const auto& c : classes_) before += c->queue.high_first_token_ns();
        }
        for (std::size_t at = 0; at < classes_.size(); ++at) {
            const MonoNs wait = (before + slot_wait(at, now) + kNsPerMs - 1) / kNsPerMs;
            classes_[at]->start_ms = static_cast<std::uint32_t>(std::min<MonoNs>(wait, 1 << 30));
        }
        std::uint64_t tokens = 0;
        for (const auto& c : classes_) tokens += static_cast<std::uint64_t>(c->queue.tokens());
        tell(gauge_->requests, static_cast<std::uint32_t>(size()));
        tell(gauge_->tokens, tokens);
        for (std::size_t lane = 0; lane < gauge_->lanes.size(); ++lane) {
            const Class& c = *classes_[class_of(static_cast<std::uint8_t>(lane))];
            tell(gauge_->lanes[lane].high_start_ms, c.start_ms);
            tell(gauge_->lanes[lane].full, c.queue.full());
            if (c.queue.full()) tell(gauge_->lanes[lane].retry_after_ms, c.queue.retry_after_ms());
        }
    }
    // Reading what is right already leaves the line where it is; all threads share it.
    template <class T>
    static void tell(std::atomic<T>& to, T value) {
        if (to.load(std::memory_order_relaxed) != value) to.store(value, std::memory_order_relaxed);
    }

    struct Taken {  // and not known to have ended
        MonoNs begin = 0, end = 0, prefill_end = 0;
        std::size_t at = 0;  // its class
        bool low = false;
        // One that outlived what was expected is taken to be half way.
        MonoNs left(MonoNs now) const { return end > now ? end - now : now - begin; }
    };

    const std::uint32_t slots_;
    const bool stepped_;
    const std::shared_ptr<QueueGauge> gauge_;
    std::vector<std::unique_ptr<Class>> classes_;  // 0: all lanes that reserve nothing
    std::vector<std::size_t> class_of_lane_;
    std::unordered_map<std::uint64_t, Pointer> waiting_;  // by FairItem::handle
    Class* next_ = nullptr;
    std::vector<Taken> taken_;
    MonoNs step_ns_ = 0, last_look_ns_ = 0;
    bool was_running_ = false;
};

}  // namespace zerohop::sched
