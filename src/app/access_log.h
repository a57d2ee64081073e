// AccessLog: one JSON line per ended request, into a file or standard output. Never prompt text.
//
//     {"time":"…Z","request_id":"req_…","trace_id":"…","peer":"…","protocol":"h2","tls":true,
//      "method":"POST","path":"/v1/messages","status":200,"complete":true,"model":"…",
//      "workspace":"…","key_id":"…","input_tokens":12,"output_tokens":34,"first_token_ms":56.7,
//      "total_ms":890.1,"bytes_out":2345}
// What is not known is left out. status 499: the client left before any answer was begun.
//
// Threads: record() on any, it only formats and queues; one thread of its own writes. When the
// queue is full (a stuck disk) lines are dropped and counted; the count is written as a line of its
// own once there is room. reopen() is for log rotation (SIGHUP): the writer opens the path anew
// before its next line; on failure it keeps the old file. The destructor writes what is queued, but
// waits only a second for a pipe that nobody reads.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "api/access.h"
#include "base/error.h"

namespace zerohop::app {

std::string access_line(const api::AccessRecord& record, WallNs now);

class AccessLog final : public api::AccessSink {
  public:
    static constexpr std::size_t kQueueLines = 8192;

    // "-": standard output. Errors: the path cannot be opened, and why.
    static Result<std::unique_ptr<AccessLog>> open(const std::string& path,
                                                   std::size_t queue_lines = kQueueLines);
    ~AccessLog() override;
    AccessLog(const AccessLog&) = delete;
    AccessLog& operator=(const AccessLog&) = delete;

    void record(const api::AccessRecord& record) noexcept override;
    void reopen();
    std::uint64_t dropped() const;  // so far

  private:
    AccessLog(std::string path, int fd, std::size_t queue_lines);
    void run();
    bool is_stopping() const;
    bool write_all(const std::string& bytes);

    const std::string path_;
    const std::size_t queue_lines_;
    int fd_;  // the writer's

    mutable std::mutex mutex_;
    std::condition_variable wake_;
    std::vector<std::string> queue_;
    std::uint64_t dropped_ = 0;
    bool reopen_ = false;
    bool stopping_ = false;
    std::thread thread_;
};

}  // namespace zerohop::app
