// The memory behind an Analysis: growable arrays of plain values that are reused from call to call.
//
// Threads: that of the Arena's user. Freed by the Arena. Fails only by bad_alloc.
#pragma once

#include <cstdlib>
#include <cstring>
#include <new>
#include <string_view>
#include <type_traits>

#include "skeleton/skeleton.h"

namespace zerohop::skeleton {

template <class T>
class Buffer {
    static_assert(std::is_trivially_copyable_v<T>);

  public:
    Buffer() = default;
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    ~Buffer() { std::free(data_); }

    T* data() { return data_; }
    const T* data() const { return data_; }
    std::size_t size() const { return size_; }
    std::size_t capacity_bytes() const { return capacity_ * sizeof(T); }
    T& operator[](std::size_t i) { return data_[i]; }
    const T& operator[](std::size_t i) const { return data_[i]; }
    T& back() { return data_[size_ - 1]; }
    void clear() { size_ = 0; }
    void resize_down(std::size_t size) { size_ = size; }

    T& push(const T& value) {
        if (size_ == capacity_) [[unlikely]]
            grow(1);
        data_[size_] = value;
        return data_[size_++];
    }
    // Room for n more; write at end(), then commit.
    T* reserve_more(std::size_t n) {
        if (capacity_ - size_ < n) [[unlikely]]
            grow(n);
        return data_ + size_;
    }
    void commit(std::size_t n) { size_ += n; }
    void append(const T* from, std::size_t n) {
        if (n == 0) return;
        std::memcpy(static_cast<void*>(reserve_more(n)), from, n * sizeof(T));
        size_ += n;
    }
    void release() {
        std::free(data_);
        data_ = nullptr;
        size_ = capacity_ = 0;
    }

  private:
    [[gnu::noinline]] void grow(std::size_t n) {
        std::size_t want = capacity_ * 2;
        if (want < size_ + n) want = size_ + n;
        if (want < 64) want = 64;
        void* grown = std::realloc(static_cast<void*>(data_), want * sizeof(T));
        if (grown == nullptr) throw std::bad_alloc();
        data_ = static_cast<T*>(grown);
        capacity_ = want;
    }
    T* data_ = nullptr;
    std::size_t size_ = 0;
    std::size_t capacity_ = 0;
};

struct Arena::State {
    Buffer<Node> nodes;
    Buffer<std::string_view> blocks;
    Buffer<std::string_view> names;
    Buffer<char> shapes;
    Buffer<char> canonical;
    Buffer<Volatile> volatiles;
    Buffer<ParseError> errors;
    std::array<std::uint64_t, kProblems> error_counts{};
    std::uint64_t error_count = 0;
    std::uint64_t volatile_count = 0;

    void reset() {
        nodes.clear();
        blocks.clear();
        names.clear();
        shapes.clear();
        canonical.clear();
        volatiles.clear();
        errors.clear();
        error_counts.fill(0);
        error_count = 0;
        volatile_count = 0;
    }
    void report(Problem problem, std::size_t block, std::size_t offset) {
        ++error_count;
        ++error_counts[static_cast<std::size_t>(problem)];
        if (errors.size() < kMaxErrors)
            errors.push(
                {problem, static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(offset)});
    }
};

}  // namespace zerohop::skeleton
