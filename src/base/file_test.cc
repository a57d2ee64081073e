#include "base/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace zerohop {
namespace {

namespace fs = std::filesystem;

TEST(File, ReadsRegularFilesAndWaitsForNothing) {
    const fs::path folder =
        fs::temp_directory_path() / ("zerohop-file-test-" + std::to_string(getpid()));
    fs::create_directories(folder);
    const std::string file = folder / "file", pipe = folder / "pipe", link = folder / "link";
    std::ofstream(file) << std::string(100'000, 'x');
    ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
    fs::create_symlink(file, link);
    EXPECT_EQ(read_file(file, "test").value().size(), 100'000U);
    EXPECT_EQ(read_file(link, "test").value().size(), 100'000U);
    EXPECT_TRUE(check_file(file, "test").has_value());
    EXPECT_EQ(read_file(folder / "none", "test").error().code, Code::kNotFound);
    const Result<std::string> of_pipe = read_file(pipe, "test");  // must not block
    ASSERT_FALSE(of_pipe.has_value());
    EXPECT_EQ(of_pipe.error().detail, pipe + ": is a pipe, but must be a regular file");
    EXPECT_FALSE(check_file(pipe, "test").has_value());
    EXPECT_FALSE(read_file(folder, "test").has_value());
    EXPECT_FALSE(read_file("/dev/zero", "test").has_value());
    fs::remove_all(folder);
}

}  // namespace
}  // namespace zerohop
