#include "admit/soft_kv.h"

namespace zerohop::admit {
namespace {
constexpr MonoNs kTouchEvery = 100 * kNsPerMs;
}

void SoftHold::touch(MonoNs now) {
    if (book_ == nullptr || now - last_touch_ < kTouchEvery) return;
    last_touch_ = now;
    const std::scoped_lock lock(book_->mutex_);
    book_->sweep_locked(now);
    if (!linked_) return;
    book_->unlink(*this);
    touched_ = now;
    book_->link_last(*this);
}

void SoftHold::release() {
    if (book_ == nullptr) return;
    const std::scoped_lock lock(book_->mutex_);
    if (linked_) book_->drop(*this);
}

bool SoftHold::held() const {
    if (book_ == nullptr) return false;
    const std::scoped_lock lock(book_->mutex_);
    return linked_;
}

void SoftKvBook::link_last(SoftHold& hold) {
    hold.prev_ = last_;
    hold.next_ = nullptr;
    (last_ == nullptr ? first_ : last_->next_) = &hold;
    last_ = &hold;
    hold.linked_ = true;
}

void SoftKvBook::unlink(SoftHold& hold) {
    (hold.prev_ == nullptr ? first_ : hold.prev_->next_) = hold.next_;
    (hold.next_ == nullptr ? last_ : hold.next_->prev_) = hold.prev_;
    hold.linked_ = false;
}

void SoftKvBook::drop(SoftHold& hold) {
    unlink(hold);
    sum_.fetch_sub(hold.tokens_, std::memory_order_relaxed);
    hold.key_sum_->fetch_sub(hold.tokens_, std::memory_order_relaxed);
    hold.model_sum_->fetch_sub(hold.tokens_, std::memory_order_relaxed);
}

void SoftKvBook::sweep_locked(MonoNs now) {
    while (first_ != nullptr && now - first_->touched_ >= kSoftLapseNs) drop(*first_);
}

void SoftKvBook::sweep(MonoNs now) {
    const std::scoped_lock lock(mutex_);
    sweep_locked(now);
}

bool SoftKvBook::reserve(SoftHold& hold, const Wish& wish, MonoNs now) {
    const std::scoped_lock lock(mutex_);
    sweep_locked(now);
    if (sum_.load(std::memory_order_relaxed) + wish.tokens > wish.workspace_bound) return false;
    if (wish.key_sum->load(std::memory_order_relaxed) + wish.tokens > wish.key_bound) return false;
    hold.book_ = this;
    hold.last_touch_ = hold.touched_ = now;
    hold.tokens_ = wish.tokens;
    hold.key_sum_ = wish.key_sum;
    hold.model_sum_ = wish.model_sum;
    sum_.fetch_add(wish.tokens, std::memory_order_relaxed);
    wish.key_sum->fetch_add(wish.tokens, std::memory_order_relaxed);
    wish.model_sum->fetch_add(wish.tokens, std::memory_order_relaxed);
    link_last(hold);
    return true;
}

}  // namespace zerohop::admit
