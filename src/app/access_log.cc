#include "app/access_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <iterator>
#include <string_view>
#include <utility>

#include "api/json_text.h"
#include "base/log.h"
#include "base/rfc3339.h"

namespace zerohop::app {
namespace {

constexpr std::size_t kTextBytes = 256;  // of a value a client chose
constexpr int kClientGone = 499;
constexpr int kPatienceMs = 250;
constexpr int kLastPatience = 4;  // times that, once the process ends

int open_path(const std::string& path) {
    if (path == "-") return ::dup(STDOUT_FILENO);
    // A pipe is fine, but who opens it does not wait for its reader (ENXIO).
    return ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK | O_CLOEXEC, 0640);
}

const char* open_error() {
    return errno == ENXIO ? "nobody reads this pipe" : std::strerror(errno);
}

// Bounded and printable, whatever a client sent: a log line is read by terminals and tools.
std::string plain(std::string_view text) {
    std::string out(text.substr(0, kTextBytes));
    for (char& c : out)
        if (c < ' ' || c > '~') c = '?';
    return out;
}

void add_text(std::string& line, std::string_view name, std::string_view value) {
    if (value.empty()) return;
    fmt::format_to(std::back_inserter(line), ",\"{}\":", name);
    api::append_json_string(line, plain(value));
}

template <class T>
void add(std::string& line, std::string_view name, T value) {
    fmt::format_to(std::back_inserter(line), ",\"{}\":{}", name, value);
}

void add_ms(std::string& line, std::string_view name, MonoNs ns) {
    fmt::format_to(std::back_inserter(line), ",\"{}\":{:.3f}", name,
                   static_cast<double>(ns) / static_cast<double>(kNsPerMs));
}

}  // namespace

std::string access_line(const api::AccessRecord& record, WallNs now) {
    std::string line = fmt::format(R"({{"time":"{}")", format_rfc3339(now));
    add_text(line, "request_id", record.request_id);
    add_text(line, "trace_id", record.trace_id);
    add_text(line, "peer", record.peer);
    add_text(line, "protocol", record.protocol == wire::Protocol::kHttp2 ? "h2" : "http/1.1");
    add(line, "tls", record.tls);
    add_text(line, "method", record.method);
    add_text(line, "path", record.path);
    add(line, "status", record.status == 0 ? kClientGone : record.status);
    add(line, "complete", record.complete);
    add_text(line, "model", record.model);
    add_text(line, "workspace", record.workspace);
    add_text(line, "key_id", record.key_id);
    if (record.input_tokens >= 0) add(line, "input_tokens", record.input_tokens);
    if (record.output_tokens >= 0) add(line, "output_tokens", record.output_tokens);
    if (record.first_token_ns != 0)
        add_ms(line, "first_token_ms", record.first_token_ns - record.received_ns);
    add_ms(line, "total_ms", record.end_ns - record.received_ns);
    add(line, "bytes_out", record.bytes_out);
    line += "}\n";
    return line;
}

Result<std::unique_ptr<AccessLog>> AccessLog::open(const std::string& path,
                                                   std::size_t queue_lines) {
    const int fd = open_path(path);
    if (fd < 0)
        return fail(
            Code::kInvalidRequest, "config",
            fmt::format("server.access_log: {} cannot be written ({})", path, open_error()));
    return std::unique_ptr<AccessLog>(new AccessLog(path, fd, queue_lines));
}

AccessLog::AccessLog(std::string path, int fd, std::size_t queue_lines)
    : path_(std::move(path)), queue_lines_(queue_lines), fd_(fd), thread_([this] { run(); }) {}

AccessLog::~AccessLog() {
    {
        std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    wake_.notify_one();
    thread_.join();
    ::close(fd_);
}

void AccessLog::record(const api::AccessRecord& record) noexcept {
    try {
        std::string line = access_line(record, wall_now());
        std::lock_guard lock(mutex_);
        if (queue_.size() >= queue_lines_) {
            ++dropped_;
            return;
        }
        queue_.push_back(std::move(line));
        if (queue_.size() > 1) return;  // the writer has been told
    } catch (...) {  // no memory for a line: the request it tells of must not suffer
        return;
    }
    wake_.notify_one();
}

void AccessLog::reopen() {
    {
        std::lock_guard lock(mutex_);
        reopen_ = true;
    }
    wake_.notify_one();
}

std::uint64_t AccessLog::dropped() const {
    std::lock_guard lock(mutex_);
    return dropped_;
}

void AccessLog::run() {
    std::vector<std::string> lines;
    std::uint64_t reported = 0;
    std::unique_lock lock(mutex_);
    for (;;) {
        wake_.wait(lock, [this] { return !queue_.empty() || reopen_ || stopping_; });
        lines.clear();
        lines.swap(queue_);
        const bool reopen = std::exchange(reopen_, false);
        const bool last = stopping_;
        const std::uint64_t dropped = dropped_;
        lock.unlock();
        if (reopen) {
            const int fresh = open_path(path_);
            if (fresh < 0)
                log_error("access", "{} cannot be opened anew, the old file stays: {}", path_,
                          open_error());
            else
                ::close(std::exchange(fd_, fresh));
        }
        std::string bytes;
        for (const std::string& line : lines) bytes += line;
        if (dropped != reported) {
            bytes += fmt::format("{{\"time\":\"{}\",\"lines_dropped\":{}}}\n",
                                 format_rfc3339(wall_now()), dropped - reported);
            reported = dropped;
        }
        const bool written = write_all(bytes);
        lock.lock();
        if (!written) dropped_ += lines.size();
        if (last && queue_.empty()) return;
    }
}

bool AccessLog::is_stopping() const {
    std::lock_guard lock(mutex_);
    return stopping_;
}

bool AccessLog::write_all(const std::string& bytes) {
    struct stat s{};
    const bool file = ::fstat(fd_, &s) == 0 && S_ISREG(s.st_mode);
    std::string_view left = bytes;
    for (int silent = 0; !left.empty();) {
        // A pipe that is ready takes PIPE_BUF bytes without blocking: nobody waits for its reader
        // when the process ends.
        pollfd ready{.fd = fd_, .events = POLLOUT, .revents = 0};
        if (::poll(&ready, 1, kPatienceMs) == 0) {
            if (++silent >= kLastPatience && is_stopping()) return false;
            continue;
        }
        const ssize_t n = ::write(
            fd_, left.data(), file ? left.size() : std::min<std::size_t>(left.size(), PIPE_BUF));
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        silent = 0;
        if (n <= 0) {
            log_error("access", "{} takes no more lines: {}", path_, std::strerror(errno));
            return false;
        }
        left.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
}

}  // namespace zerohop::app
