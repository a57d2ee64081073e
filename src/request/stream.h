// Stream: the bounded ring between the engine and one exchange, and the exchange's cancel flag.
//
//     tokenizer pool, then engine thread  --Event-->  I/O thread
//     I/O thread                          --cancel, "room again"-->  engine
//
// Single producer at a time (the tokenizer hands over to the engine through a queue, which orders
// them), single consumer. Bound: kCapacity events, of which the last two places are kept for Done
// or Failed, so ending a stream never waits. Full-policy: try_push says no; the engine pauses that
// sequence until the ring is half empty again (the consumer then notifies the producer).
// Lifetime: shared_ptr held by both sides; whoever is last frees it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/loop.h"
#include "base/notify.h"
#include "request/event.h"

namespace zerohop {

enum class CancelReason : std::uint8_t { kNone, kDisconnect, kDeadline };

class Stream {
  public:
    static constexpr std::uint32_t kCapacity = 128;  // events; a power of two

    // `ready` is signalled on `loop` after each push; it is kept alive by the loop while queued,
    // and by this stream. Both may be null (tests that poll).
    Stream(Loop* loop, std::shared_ptr<Ready> ready) : loop_(loop), ready_(std::move(ready)) {}
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
    ~Stream() {
        for (std::uint32_t i = head_.load(); i != tail_.load(); ++i) std::destroy_at(at(i));
    }

    // --- producer -------------------------------------------------------------------------------
    // Who is to be told of cancel and of room; set once, before the first push that could fill it.
    void set_producer(Notifier* producer) { producer_.store(producer, std::memory_order_release); }

    // False when there is no room (Prepared and Text leave two places free; Done and Failed do
    // not).
    bool try_push(Event&& event) {
        const bool final = event.index() >= 2;
        const std::uint32_t tail = tail_.load(std::memory_order_relaxed);
        const std::uint32_t used = tail - head_.load(std::memory_order_acquire);
        if (used >= (final ? kCapacity : kCapacity - 2)) {
            starved_.store(true, std::memory_order_seq_cst);
            // The consumer may have drained between the check and the flag: look once more.
            if (tail - head_.load(std::memory_order_seq_cst) >= (final ? kCapacity : kCapacity - 2))
                return false;
            starved_.store(false, std::memory_order_relaxed);
        }
        std::construct_at(at(tail), std::move(event));
        tail_.store(tail + 1, std::memory_order_release);
        if (loop_ != nullptr && ready_ != nullptr) loop_->signal(*ready_);
        return true;
    }

    // From being accepted until something is computed for it nothing is to be paid.
    void set_queued(bool queued) { queued_.store(queued, std::memory_order_release); }

    CancelReason cancelled() const { return cancel_.load(std::memory_order_acquire); }

    // --- consumer (I/O thread) ------------------------------------------------------------------
    bool try_pop(Event& out) {
        const std::uint32_t head = head_.load(std::memory_order_relaxed);
        const std::uint32_t tail = tail_.load(std::memory_order_acquire);
        if (head == tail) return false;
        out = std::move(*at(head));
        std::destroy_at(at(head));
        head_.store(head + 1, std::memory_order_seq_cst);
        if (tail - head - 1 <= kCapacity / 2 && starved_.load(std::memory_order_seq_cst)) {
            starved_.store(false, std::memory_order_relaxed);
            notify_producer();
        }
        return true;
    }

    // Racy where it matters little: its turn may come in this moment.
    bool queued_approx() const { return queued_.load(std::memory_order_acquire); }

    // Any thread; the first reason stays.
    void cancel(CancelReason why) {
        CancelReason none = CancelReason::kNone;
        if (cancel_.compare_exchange_strong(none, why, std::memory_order_acq_rel))
            notify_producer();
    }

  private:
    void notify_producer() {
        if (Notifier* producer = producer_.load(std::memory_order_acquire)) producer->notify();
    }

    // A place of the ring holds an event from push to pop: most streams use few of them.
    Event* at(std::uint32_t index) {
        return reinterpret_cast<Event*>(ring_ + sizeof(Event) * (index % kCapacity));
    }

    alignas(Event) std::byte ring_[sizeof(Event) * kCapacity];
    alignas(64) std::atomic<std::uint32_t> tail_{0};
    alignas(64) std::atomic<std::uint32_t> head_{0};
    std::atomic<bool> starved_{false};
    std::atomic<bool> queued_{false};
    std::atomic<CancelReason> cancel_{CancelReason::kNone};
    std::atomic<Notifier*> producer_{nullptr};
    Loop* loop_;
    std::shared_ptr<Ready> ready_;
};

using StreamPtr = std::shared_ptr<Stream>;

}  // namespace zerohop
