#include "app/access_log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

namespace zerohop::app {
namespace {

namespace fs = std::filesystem;

class AccessLogTest : public ::testing::Test {
  protected:
    AccessLogTest() {
        std::string pattern = (fs::temp_directory_path() / "zerohop-access-XXXXXX").string();
        folder_ = ::mkdtemp(pattern.data());
    }
    ~AccessLogTest() override { fs::remove_all(folder_); }
    static std::string text_of(const fs::path& path) {
        std::ifstream in(path);
        std::ostringstream out;
        out << in.rdbuf();
        return out.str();
    }
    static std::size_t lines_of(const fs::path& path) {
        const std::string text = text_of(path);
        return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
    }
    fs::path folder_;
};

api::AccessRecord a_record() {
    api::AccessRecord record;
    record.request_id = "req_1";
    record.peer = "127.0.0.1";
    record.method = "POST";
    record.path = "/v1/messages";
    record.model = "m";
    record.workspace = "w";
    record.key_id = "k";
    record.protocol = wire::Protocol::kHttp2;
    record.status = 200;
    record.complete = true;
    record.input_tokens = 3;
    record.output_tokens = 4;
    record.received_ns = kNsPerSec;
    record.first_token_ns = kNsPerSec + 5 * kNsPerMs;
    record.end_ns = kNsPerSec + 7 * kNsPerMs;
    record.bytes_out = 99;
    return record;
}

TEST_F(AccessLogTest, LineSaysWhatIsKnown) {
    EXPECT_EQ(access_line(a_record(), 0),
              "{\"time\":\"1970-01-01T00:00:00Z\",\"request_id\":\"req_1\",\"peer\":\"127.0.0.1\","
              "\"protocol\":\"h2\",\"tls\":false,\"method\":\"POST\",\"path\":\"/v1/messages\","
              "\"status\":200,\"complete\":true,\"model\":\"m\",\"workspace\":\"w\","
              "\"key_id\":\"k\",\"input_tokens\":3,\"output_tokens\":4,\"first_token_ms\":5.000,"
              "\"total_ms\":7.000,\"bytes_out\":99}\n");
    api::AccessRecord gone;
    gone.path = "/\"\x1b[2J\xff" + std::string(1000, 'x');
    const std::string line = access_line(gone, 0);
    EXPECT_NE(line.find("\"status\":499,\"complete\":false,\"total_ms\""), std::string::npos);
    EXPECT_NE(line.find("\"path\":\"/\\\"?[2J?xxx"), std::string::npos) << line;
    EXPECT_LT(line.size(), 500U);
}

TEST_F(AccessLogTest, WritesEverythingBeforeItEndsAndReopens) {
    const fs::path path = folder_ / "access.log";
    auto log = AccessLog::open(path.string());
    ASSERT_TRUE(log.has_value()) << log.error().detail;
    for (int i = 0; i < 100; ++i) (*log)->record(a_record());
    for (int i = 0; i < 200 && lines_of(path) < 100; ++i) ::usleep(10'000);
    EXPECT_EQ(lines_of(path), 100U);
    fs::rename(path, folder_ / "access.log.1");
    (*log)->reopen();
    for (int i = 0; i < 200 && !fs::exists(path); ++i) ::usleep(10'000);
    for (int i = 0; i < 50; ++i) (*log)->record(a_record());
    log->reset();
    EXPECT_EQ(lines_of(folder_ / "access.log.1"), 100U);
    EXPECT_EQ(lines_of(path), 50U);
    struct stat s{};
    ASSERT_EQ(::stat(path.c_str(), &s), 0);
    EXPECT_EQ(s.st_mode & 0007, 0U);  // not for everybody
}

// A reader that does not read: the pipe fills, then the queue, and the requests never notice.
TEST_F(AccessLogTest, DropsAndCountsWhenTheFileIsStuck) {
    const fs::path path = folder_ / "pipe";
    ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
    std::thread reader;
    std::string read;
    const int hold = ::open(path.c_str(), O_RDONLY | O_NONBLOCK);
    ASSERT_GE(hold, 0);
    {
        auto log = AccessLog::open(path.string(), 64);
        ASSERT_TRUE(log.has_value());
        for (int i = 0; i < 20'000; ++i) (*log)->record(a_record());
        EXPECT_GT((*log)->dropped(), 10'000U);
        ASSERT_EQ(::fcntl(hold, F_SETFL, 0), 0);
        reader = std::thread([&] {
            char buffer[65'536];
            for (ssize_t n; (n = ::read(hold, buffer, sizeof buffer)) > 0;)
                read.append(buffer, static_cast<std::size_t>(n));
        });
    }  // writes the rest; then the pipe ends
    reader.join();
    ::close(hold);
    EXPECT_NE(read.find("\"lines_dropped\":"), std::string::npos);
    EXPECT_TRUE(read.ends_with("}\n"));
}

TEST_F(AccessLogTest, EndsThoughNobodyReads) {
    const fs::path path = folder_ / "pipe";
    ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
    const int hold = ::open(path.c_str(), O_RDONLY | O_NONBLOCK);
    ASSERT_GE(hold, 0);
    auto log = AccessLog::open(path.string());
    ASSERT_TRUE(log.has_value());
    for (int i = 0; i < 2000; ++i) (*log)->record(a_record());
    const MonoNs began = mono_now();
    log->reset();
    EXPECT_LT(mono_now() - began, 5 * kNsPerSec);
    ::close(hold);
}

TEST_F(AccessLogTest, SaysWhyItCannotWrite) {
    const auto log = AccessLog::open((folder_ / "missing" / "log").string());
    ASSERT_FALSE(log.has_value());
    EXPECT_NE(log.error().detail.find("server.access_log"), std::string::npos);
}

}  // namespace
}  // namespace zerohop::app
