// Pages: memory that takes from the system what was touched, and gives it back when it is told to.
//
// ggml's CPU buffers (KV, what graphs compute, logits) are mapped one by one once use_own_pages()
// was called. A KV cache is cleared when it is made: here that is nothing, as fresh pages are zeros
// already, so it takes what its used cells take; llama_memory_clear(…, true) gives all of it back.
//
// Threads: any. Errors: none; a buffer that cannot be mapped is null, as ggml's own is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace zerohop::engine {

// Of the whole process, for buffers that are made from now on.
void use_own_pages();

// While it lives, buffers that this thread makes belong to `owner`, any address.
class BufferOwner {
  public:
    explicit BufferOwner(const void* owner);
    BufferOwner(const BufferOwner&) = delete;
    BufferOwner& operator=(const BufferOwner&) = delete;
    ~BufferOwner();

  private:
    const void* before_;
};

// What the owner's graphs computed, of which nothing may be needed any more: none is running, and
// logits lie elsewhere. The next step takes pages again.
void give_back_computed(const void* owner);

// Gives back what was read of a file's mappings: it is read again where it is needed. Weights that
// were repacked never are.
void drop_file_pages(const std::string& path);

// Bytes of their own, not cleared first; gone from the process when freed.
class PageBuffer {
  public:
    PageBuffer() = default;
    explicit PageBuffer(std::size_t bytes);  // empty when there is no memory
    PageBuffer(PageBuffer&& other) noexcept { *this = static_cast<PageBuffer&&>(other); }
    PageBuffer& operator=(PageBuffer&& other) noexcept;
    ~PageBuffer();

    std::uint8_t* data() { return data_; }
    std::size_t size() const { return size_; }
    bool empty() const { return size_ == 0; }

  private:
    std::uint8_t* data_ = nullptr;
    std::size_t size_ = 0;
};

}  // namespace zerohop::engine
