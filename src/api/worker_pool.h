// WorkerPool: threads that read large bodies, so that no I/O thread stands still over one and its
// other streams with it.
//
//     I/O thread --submit--> queue --> worker: work() --Ready::signal--> I/O thread
//
// Threads: submit any; work runs on a worker, which gives way to everybody else (background.h).
// Bound: kQueue pieces of work; workspaces take turns.
// Lifetime: what work touches outlives stop(), which ends after the piece each worker is at; what
// waits then is dropped unrun.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/turn_queue.h"

namespace zerohop::api {

class WorkerPool {
  public:
    static constexpr int kThreads = 2;
    static constexpr std::size_t kQueue = 256;
    using Work = std::function<void()>;

    WorkerPool();
    ~WorkerPool() { stop(); }
    WorkerPool(const WorkerPool&) = delete;
    WorkerPool& operator=(const WorkerPool&) = delete;

    // False when the queue is full or it was stopped.
    bool submit(const std::string& workspace, Work work);
    void stop();  // blocks; once is enough

  private:
    void run();

    std::mutex mutex_;
    std::condition_variable wake_;
    TurnQueue<Work> queue_{kQueue};  // guarded by mutex_
    bool stopping_ = false;          // guarded by mutex_
    std::vector<std::thread> threads_;
};

}  // namespace zerohop::api
