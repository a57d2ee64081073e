// ByteQueue: bytes on their way out, as a chain of chunks. An empty queue holds no memory.
//
// Owning thread: whoever owns the queue; not shared. Appends copy; front() stays valid until the
// next append, consume or clear. Unbounded by itself: its users watch size().
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

namespace zerohop::wire {

class ByteQueue {
  public:
    ByteQueue() = default;
    ByteQueue(ByteQueue&& other) noexcept;
    ByteQueue& operator=(ByteQueue&& other) noexcept;
    ByteQueue(const ByteQueue&) = delete;
    ByteQueue& operator=(const ByteQueue&) = delete;
    ~ByteQueue() { clear(); }

    std::size_t size() const { return size_; }
    bool empty() const { return size_ == 0; }
    void append(std::string_view bytes);
    // Takes over everything in `other`, in order, without copying.
    void splice(ByteQueue&& other);
    std::string_view front() const;                // first contiguous bytes, "" when empty
    void consume(std::size_t n);                   // n <= size()
    std::size_t read(char* to, std::size_t most);  // copies and consumes; returns how many
    void clear();

  private:
    struct Chunk {
        std::unique_ptr<Chunk> next;
        std::size_t begin = 0;
        std::size_t end = 0;
        std::size_t capacity = 0;
        std::unique_ptr<char[]> data;
    };
    std::unique_ptr<Chunk> head_;
    Chunk* tail_ = nullptr;
    std::size_t size_ = 0;
};

}  // namespace zerohop::wire
