#include "engine/pages.h"

#include <fcntl.h>
#include <ggml-backend.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <utility>
#include <vector>

namespace zerohop::engine {
namespace {

constexpr std::size_t kSize = 8 << 20;

// Bytes of [at, at + bytes) that are in memory; at: a page's begin.
std::size_t resident(void* at, std::size_t bytes) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    std::vector<unsigned char> there((bytes + page - 1) / page);
    EXPECT_EQ(mincore(at, bytes, there.data()), 0);
    return page * static_cast<std::size_t>(
                      std::ranges::count_if(there, [](unsigned char p) { return (p & 1) != 0; }));
}

class Buffer {
  public:
    Buffer() {
        use_own_pages();
        buffer_ = ggml_backend_buft_alloc_buffer(ggml_backend_cpu_buffer_type(), kSize);
    }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    ~Buffer() { ggml_backend_buffer_free(buffer_); }
    ggml_backend_buffer_t get() { return buffer_; }
    char* data() { return static_cast<char*>(ggml_backend_buffer_get_base(buffer_)); }
    std::size_t resident() { return engine::resident(data(), kSize); }

  private:
    ggml_backend_buffer_t buffer_;
};

TEST(Pages, ACacheTakesWhatWasUsedOfIt) {
    Buffer buffer;
    ggml_backend_buffer_clear(buffer.get(), 0);  // as llama.cpp does with a new one
    EXPECT_EQ(buffer.resident(), 0U);
    std::memset(buffer.data(), 1, kSize / 8);
    EXPECT_GE(buffer.resident(), kSize / 8);
    EXPECT_LT(buffer.resident(), kSize);
    ggml_backend_buffer_clear(buffer.get(), 0);
    EXPECT_EQ(buffer.resident(), 0U);
    EXPECT_TRUE(std::all_of(buffer.data(), buffer.data() + kSize, [](char c) { return c == 0; }));
    ggml_backend_buffer_clear(buffer.get(), 7);
    EXPECT_TRUE(std::all_of(buffer.data(), buffer.data() + kSize, [](char c) { return c == 7; }));
}

TEST(Pages, ComputedOnesGoOfTheirOwnerOnly) {
    int owner = 0, other = 0;
    const auto make = [](const void* whose, ggml_backend_buffer_usage usage) {
        const BufferOwner scope(whose);
        auto buffer = std::make_unique<Buffer>();
        ggml_backend_buffer_set_usage(buffer->get(), usage);
        std::memset(buffer->data(), 1, kSize);
        return buffer;
    };
    const auto computed = make(&owner, GGML_BACKEND_BUFFER_USAGE_COMPUTE);
    const auto kept = make(&owner, GGML_BACKEND_BUFFER_USAGE_ANY);
    const auto others = make(&other, GGML_BACKEND_BUFFER_USAGE_COMPUTE);
    const auto nobodys = make(nullptr, GGML_BACKEND_BUFFER_USAGE_COMPUTE);
    give_back_computed(&owner);
    EXPECT_EQ(computed->resident(), 0U);
    EXPECT_EQ(kept->resident(), kSize);
    EXPECT_EQ(others->resident(), kSize);
    EXPECT_EQ(nobodys->resident(), kSize);
}

TEST(Pages, FilePagesAreReadAgain) {
    const std::filesystem::path path =
        std::filesystem::temp_directory_path() / ("zerohop-pages-" + std::to_string(getpid()));
    std::ofstream(path) << std::string(kSize, 'x');
    const int file = open(path.c_str(), O_RDONLY);
    auto* at =
        static_cast<char*>(mmap(nullptr, kSize, PROT_READ, MAP_SHARED | MAP_POPULATE, file, 0));
    close(file);
    ASSERT_NE(at, MAP_FAILED);
    const auto resident_kib = [&] {  // of this process, which mincore() does not tell of files
        std::ifstream maps("/proc/self/smaps");
        bool here = false;
        for (std::string line; std::getline(maps, line);) {
            if (line.ends_with(path.string())) here = true;
            if (here && line.starts_with("Rss:")) return std::stol(line.substr(4));
        }
        return -1L;
    };
    EXPECT_EQ(resident_kib(), static_cast<long>(kSize >> 10));
    drop_file_pages(path.string());
    EXPECT_EQ(resident_kib(), 0);
    EXPECT_TRUE(std::all_of(at, at + kSize, [](char c) { return c == 'x'; }));
    munmap(at, kSize);
    std::filesystem::remove(path);
}

TEST(Pages, BuffersMove) {
    for (const std::size_t size : {std::size_t{100}, kSize}) {
        PageBuffer first(size);
        ASSERT_EQ(first.size(), size);
        std::memset(first.data(), 3, size);
        PageBuffer second(std::move(first));
        EXPECT_EQ(second.data()[size - 1], 3);
        first = PageBuffer();
        EXPECT_TRUE(first.empty());
        first = std::move(second);
        EXPECT_EQ(first.size(), size);
        EXPECT_EQ(first.data()[0], 3);
    }
    EXPECT_TRUE(PageBuffer(std::size_t{1} << 62).empty());
}

}  // namespace
}  // namespace zerohop::engine
