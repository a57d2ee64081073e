// TurnQueue<T>: a bounded queue in which keys (workspaces) take turns: who has much waiting does
// not make others wait for all of it.
//
// Not locked: its owner's mutex guards it. Cost: push and pop look at one entry per waiting key.
#pragma once

#include <cstddef>
#include <deque>
#include <list>
#include <string>
#include <utility>

namespace zerohop {

template <class T>
class TurnQueue {
  public:
    explicit TurnQueue(std::size_t most) : most_(most) {}

    // False, and `item` as it was, when it is full.
    bool push(const std::string& key, T&& item) {
        if (size_ >= most_) return false;
        auto line = lines_.begin();
        while (line != lines_.end() && line->key != key) ++line;
        if (line == lines_.end()) line = lines_.insert(line, Line{.key = key, .items = {}});
        line->items.push_back(std::move(item));
        ++size_;
        return true;
    }

    // The next one in turn. Not of an empty queue.
    T pop() {
        Line& line = lines_.front();
        T item = std::move(line.items.front());
        line.items.pop_front();
        --size_;
        if (line.items.empty())
            lines_.pop_front();
        else
            lines_.splice(lines_.end(), lines_, lines_.begin());
        return item;
    }

    bool empty() const { return size_ == 0; }

  private:
    struct Line {
        std::string key;
        std::deque<T> items;
    };
    const std::size_t most_;
    std::size_t size_ = 0;
    std::list<Line> lines_;  // the front's turn is next
};

}  // namespace zerohop
