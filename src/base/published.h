// Published<T>: an immutable value that one thread replaces and many threads read.
//
// Writers: store() from any thread, serialized by a mutex. Readers: each thread owns a Reader and
// calls get(); unless a new value was stored since, that is one acquire load and no shared write,
// so readers never slow each other down. A reference from get() is valid until that Reader's next
// get(): the Reader keeps the value alive, and an idle thread keeps an old value until it reads
// again. (std::atomic<shared_ptr> would bounce its reference count between all readers on every
// request.)
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

namespace zerohop {

template <class T>
class Published {
  public:
    explicit Published(std::shared_ptr<const T> first) : current_(std::move(first)) {}
    Published(const Published&) = delete;
    Published& operator=(const Published&) = delete;

    void store(std::shared_ptr<const T> next) {
        const std::scoped_lock lock(mutex_);
        current_.swap(next);
        version_.fetch_add(1, std::memory_order_release);
    }

    // For threads that read seldom.
    std::shared_ptr<const T> load() const {
        const std::scoped_lock lock(mutex_);
        return current_;
    }

    class Reader {
      public:
        // Never null if only non-null values are stored.
        const std::shared_ptr<const T>& get(const Published& from) {
            if (from.version_.load(std::memory_order_acquire) != seen_) [[unlikely]] {
                const std::scoped_lock lock(from.mutex_);
                held_ = from.current_;
                seen_ = from.version_.load(std::memory_order_relaxed);
            }
            return held_;
        }

      private:
        std::uint64_t seen_ = 0;
        std::shared_ptr<const T> held_;
    };

  private:
    mutable std::mutex mutex_;
    std::shared_ptr<const T> current_;
    std::atomic<std::uint64_t> version_{1};
};

}  // namespace zerohop
