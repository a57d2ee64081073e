#include "engine/pages.h"

#include <ggml-backend-impl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>
#include <unordered_map>
#include <utility>

namespace zerohop::engine {
namespace {

constexpr std::size_t kLeastMapped = 256 << 10;  // bytes; smaller ones are the allocator's

thread_local const void* t_owner = nullptr;

std::mutex mutex;
std::unordered_map<ggml_backend_buffer_t, const void*> owners;  // guarded by mutex

ggml_backend_buffer_t (*usual)(ggml_backend_buffer_type_t, std::size_t) = nullptr;
ggml_backend_buffer_i mapped{};  // ggml's own functions but for two

void* map(std::size_t bytes) {
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return at == MAP_FAILED ? nullptr : at;
}

void free_buffer(ggml_backend_buffer_t buffer) {
    {
        const std::lock_guard lock(mutex);
        owners.erase(buffer);
    }
    munmap(buffer->context, buffer->size);
}

void clear_buffer(ggml_backend_buffer_t buffer, std::uint8_t value) {
    if (value == 0)
        madvise(buffer->context, buffer->size, MADV_DONTNEED);
    else
        std::memset(buffer->context, value, buffer->size);
}

ggml_backend_buffer_t allocate(ggml_backend_buffer_type_t type, std::size_t bytes) {
    if (bytes < kLeastMapped) return usual(type, bytes);
    void* at = map(bytes);
    if (at == nullptr) return nullptr;
    const ggml_backend_buffer_t buffer = ggml_backend_buffer_init(type, mapped, at, bytes);
    const std::lock_guard lock(mutex);
    owners.emplace(buffer, t_owner);
    return buffer;
}

}  // namespace

void use_own_pages() {
    static std::once_flag once;
    std::call_once(once, [] {
        const ggml_backend_buffer_type_t type = ggml_backend_cpu_buffer_type();
        const ggml_backend_buffer_t pattern = ggml_backend_buft_alloc_buffer(type, 64);
        if (pattern == nullptr) return;
        mapped = pattern->iface;
        ggml_backend_buffer_free(pattern);
        mapped.free_buffer = free_buffer;
        mapped.clear = clear_buffer;
        usual = std::exchange(type->iface.alloc_buffer, allocate);
    });
}

BufferOwner::BufferOwner(const void* owner) : before_(std::exchange(t_owner, owner)) {}
BufferOwner::~BufferOwner() { t_owner = before_; }

void give_back_computed(const void* owner) {
    const std::lock_guard lock(mutex);
    for (const auto& [buffer, whose] : owners)
        if (whose == owner && buffer->usage == GGML_BACKEND_BUFFER_USAGE_COMPUTE)
            clear_buffer(buffer, 0);
}

void drop_file_pages(const std::string& path) {
    std::error_code ignored;
    const std::string name = " " + std::filesystem::canonical(path, ignored).string();
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        if (name.size() < 2 || !line.ends_with(name)) continue;
        std::istringstream fields(line);
        std::uintptr_t begin = 0, end = 0;
        char dash = 0;
        if (fields >> std::hex >> begin >> dash >> end)
            madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
    }
}

PageBuffer::PageBuffer(std::size_t bytes) {
    data_ = bytes < kLeastMapped ? new std::uint8_t[bytes] : static_cast<std::uint8_t*>(map(bytes));
    size_ = data_ == nullptr ? 0 : bytes;
}

PageBuffer& PageBuffer::operator=(PageBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
}

PageBuffer::~PageBuffer() {
    if (size_ < kLeastMapped)
        delete[] data_;
    else
        munmap(data_, size_);
}

}  // namespace zerohop::engine
