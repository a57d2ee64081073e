#include "api/worker_pool.h"

#include <utility>

#include "base/background.h"

namespace zerohop::api {

WorkerPool::WorkerPool() {
    for (int i = 0; i < kThreads; ++i)
        threads_.emplace_back([this] {
            give_way_to_others();
            run();
        });
}

bool WorkerPool::submit(const std::string& workspace, Work work) {
    {
        const std::lock_guard lock(mutex_);
        if (stopping_ || !queue_.push(workspace, std::move(work))) return false;
    }
    wake_.notify_one();
    return true;
}

void WorkerPool::stop() {
    std::vector<Work> left;  // freed outside the lock
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
        while (!queue_.empty()) left.push_back(queue_.pop());
    }
    wake_.notify_all();
    for (std::thread& thread : std::exchange(threads_, {})) thread.join();
}

void WorkerPool::run() {
    while (true) {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
        if (stopping_) return;
        const Work work = queue_.pop();
        lock.unlock();
        work();
    }
}

}  // namespace zerohop::api
