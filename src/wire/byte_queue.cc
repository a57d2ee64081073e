#include "wire/byte_queue.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace zerohop::wire {
namespace {

// One TLS record's payload: a chunk is what one write call gets.
constexpr std::size_t kChunkBytes = 16 * 1024;
constexpr std::size_t kFirstChunkBytes = 1024;  // most streamed events are smaller

}  // namespace

ByteQueue::ByteQueue(ByteQueue&& other) noexcept
    : head_(std::move(other.head_)),
      tail_(std::exchange(other.tail_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

ByteQueue& ByteQueue::operator=(ByteQueue&& other) noexcept {
    if (this != &other) {
        clear();
        head_ = std::move(other.head_);
        tail_ = std::exchange(other.tail_, nullptr);
        size_ = std::exchange(other.size_, 0);
    }
    return *this;
}

void ByteQueue::append(std::string_view bytes) {
    size_ += bytes.size();
    while (!bytes.empty()) {
        if (tail_ == nullptr || tail_->end == tail_->capacity) {
            auto chunk = std::make_unique<Chunk>();
            const std::size_t least = tail_ == nullptr ? kFirstChunkBytes : kChunkBytes;
            chunk->capacity = std::clamp(bytes.size(), least, kChunkBytes);
            chunk->data = std::make_unique_for_overwrite<char[]>(chunk->capacity);
            Chunk* raw = chunk.get();
            (tail_ == nullptr ? head_ : tail_->next) = std::move(chunk);
            tail_ = raw;
        }
        const std::size_t n = std::min(bytes.size(), tail_->capacity - tail_->end);
        std::memcpy(tail_->data.get() + tail_->end, bytes.data(), n);
        tail_->end += n;
        bytes.remove_prefix(n);
    }
}

void ByteQueue::splice(ByteQueue&& other) {
    if (other.empty()) return;
    (tail_ == nullptr ? head_ : tail_->next) = std::move(other.head_);
    tail_ = std::exchange(other.tail_, nullptr);
    size_ += std::exchange(other.size_, 0);
}

std::string_view ByteQueue::front() const {
    if (head_ == nullptr) return {};
    return {head_->data.get() + head_->begin, head_->end - head_->begin};
}

void ByteQueue::consume(std::size_t n) {
    ZH_CHECK(n <= size_);
    size_ -= n;
    while (head_ != nullptr) {
        const std::size_t take = std::min(n, head_->end - head_->begin);
        head_->begin += take;
        n -= take;
        if (head_->begin != head_->end) return;
        head_ = std::move(head_->next);
        if (head_ == nullptr) tail_ = nullptr;
    }
}

std::size_t ByteQueue::read(char* to, std::size_t most) {
    std::size_t done = 0;
    while (done < most && head_ != nullptr) {
        const std::string_view part = front().substr(0, most - done);
        std::memcpy(to + done, part.data(), part.size());
        done += part.size();
        consume(part.size());
    }
    return done;
}

void ByteQueue::clear() {
    while (head_ != nullptr) head_ = std::move(head_->next);  // no recursion along the chain
    tail_ = nullptr;
    size_ = 0;
}

}  // namespace zerohop::wire
