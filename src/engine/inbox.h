// Inbox: what other threads give an engine's thread, in the order it came.
//
// push(): any thread; take(), close(): the engine's. Unbounded: what is in it came from bounded
// queues, and the engine looks at every turn. Nothing fails.
#pragma once

#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

namespace zerohop::engine {

template <class T>
class Inbox {
  public:
    enum class Pushed : std::uint8_t { kFirst, kMore, kClosed };

    // kFirst: it was empty, its owner has to be woken. kClosed: `item` is as it was.
    Pushed push(T&& item) {
        const std::lock_guard lock(mutex_);
        if (closed_) return Pushed::kClosed;
        items_.push_back(std::move(item));
        return items_.size() == 1 ? Pushed::kFirst : Pushed::kMore;
    }

    // `out` becomes what has come; its memory is used for what comes.
    void take(std::vector<T>& out) {
        out.clear();
        const std::lock_guard lock(mutex_);
        out.swap(items_);
    }

    void close(std::vector<T>& left) {
        left.clear();
        const std::lock_guard lock(mutex_);
        closed_ = true;
        left.swap(items_);
    }

  private:
    std::mutex mutex_;
    std::vector<T> items_;  // guarded by mutex_
    bool closed_ = false;   // guarded by mutex_
};

}  // namespace zerohop::engine
