// LoopInbox: intrusive multi-producer queue of Ready objects for one I/O loop.
//
// push() from any thread, drain() on the loop's thread. Bounded by the number of live Ready
// objects: each is in the queue at most once. Order: first pushed, first drained within one
// drain().
#pragma once

#include "base/loop.h"

namespace zerohop {

class LoopInbox {
  public:
    LoopInbox() = default;
    LoopInbox(const LoopInbox&) = delete;
    LoopInbox& operator=(const LoopInbox&) = delete;
    ~LoopInbox() {
        drain([](Ready&) {});
    }

    // Returns true when the queue was empty before, i.e. when the loop has to be woken if it
    // sleeps.
    bool push(Ready& ready) noexcept {
        if (ready.queued_.exchange(true, std::memory_order_acq_rel)) return false;
        ready.keep_ = ready.shared_from_this();
        Ready* head = head_.load(std::memory_order_relaxed);
        do {
            ready.next_ = head;
        } while (!head_.compare_exchange_weak(head, &ready, std::memory_order_seq_cst,
                                              std::memory_order_relaxed));
        return head == nullptr;
    }

    // Any thread. In one order with push() and the loop's own flag of sleeping (seq_cst): either
    // the loop sees what was pushed, or who pushed sees that it sleeps.
    bool empty() const noexcept { return head_.load() == nullptr; }

    // Calls fn(Ready&) for everything queued so far.
    template <class Fn>
    void drain(Fn&& fn) {
        Ready* list = head_.exchange(nullptr, std::memory_order_acquire);
        Ready* in_order = nullptr;
        while (list != nullptr) {
            Ready* next = list->next_;
            list->next_ = in_order;
            in_order = list;
            list = next;
        }
        while (in_order != nullptr) {
            Ready* next = in_order->next_;
            std::shared_ptr<Ready> keep = std::move(in_order->keep_);
            // Cleared before the call: a signal that comes while it runs queues it again. An
            // exchange, not a store: it must read what a coalesced push() published before it.
            keep->queued_.exchange(false, std::memory_order_acq_rel);
            fn(*keep);
            in_order = next;
        }
    }

  private:
    std::atomic<Ready*> head_{nullptr};
};

}  // namespace zerohop
