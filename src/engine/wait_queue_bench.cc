// handoff_ns: a tokenized Request is handed to the engine → the engine thread has it in hand, by
// the queue, lock and wake-up that engines use. Target: p50 ≤ 1,200 (issue 4), for an engine thread
// that is awake, as it is while anything runs (what is left of its step is not part of the
// handoff). handoff_asleep_ns is the same for an idle engine: mostly the kernel's wake-up.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/wait_queue.h"
#include "engine/wake.h"

namespace zerohop::engine {
namespace {

// Spins for a moment, then lets others run: on a busy machine the other thread may not.
class Spin {
  public:
    void once() {
#if defined(__x86_64__)
        if (++count_ % 256 != 0) return __builtin_ia32_pause();
#endif
        std::this_thread::yield();
    }

  private:
    unsigned count_ = 0;
};

struct Job {
    RequestPtr request;
    StreamPtr stream;
};

// The engine's side: a thread that takes what is there.
class Taker {
  public:
    explicit Taker(bool sleeps) : sleeps_(sleeps), thread_([this] { run(); }) {}
    ~Taker() {
        stop_ = true;
        wake_.signal();
        thread_.join();
    }
    // Returns how long it took.
    MonoNs hand_over(std::unique_ptr<Job> job) {
        const MonoNs begin = mono_now();
        const RequestPtr request = job->request;
        {
            const std::lock_guard lock(mutex_);
            if (!queue_.push(fair_item(*request, ++handle_, 300, 1e6, 1e7, begin), 0,
                             std::move(job), begin))
                return -1;
        }
        wake_.signal();
        given_.store(true, std::memory_order_release);
        Spin spin;
        while (taken_ns_.load(std::memory_order_acquire) == 0) spin.once();
        return taken_ns_.exchange(0, std::memory_order_acq_rel) - begin;
    }

  private:
    void run() {
        Spin spin;
        while (!stop_.load(std::memory_order_acquire)) {
            if (!sleeps_ && !given_.exchange(false, std::memory_order_acq_rel)) {
                spin.once();  // a step that ends just after the handoff
                continue;
            }
            std::unique_ptr<Job> job;
            {
                const std::lock_guard lock(mutex_);
                if (queue_.next(mono_now(), false) != nullptr) job = queue_.take(mono_now());
            }
            if (job)
                taken_ns_.store(mono_now(), std::memory_order_release);
            else if (sleeps_)
                wake_.wait(-1);
        }
    }

    const bool sleeps_;
    std::mutex mutex_;
    WaitQueue<std::unique_ptr<Job>> queue_{WaitQueue<std::unique_ptr<Job>>::Options{
        .bounds = {}, .gauge = std::make_shared<admit::QueueGauge>(), .reserved = {}, .slots = 8}};
    Wake wake_;
    std::uint64_t handle_ = 0;
    std::atomic<MonoNs> taken_ns_{0};
    std::atomic<bool> stop_{false}, given_{false};
    std::thread thread_;  // last: it uses the rest
};

void hand_over(benchmark::State& state, bool sleeps) {
    Taker taker(sleeps);
    std::vector<MonoNs> times;
    auto request = std::make_shared<Request>();
    request->max_tokens = 256;
    request->turns.push_back({Role::kUser, {std::string(1200, 'x')}});
    for (auto _ : state) {
        auto job = std::make_unique<Job>();
        job->request = std::make_shared<Request>(*request);
        job->stream = std::make_shared<Stream>(nullptr, nullptr);
        if (sleeps) std::this_thread::sleep_for(std::chrono::microseconds(200));
        const MonoNs took = taker.hand_over(std::move(job));
        if (took < 0) return state.SkipWithError("the queue refused");
        times.push_back(took);
        state.SetIterationTime(static_cast<double>(took) / 1e9);
    }
    std::ranges::sort(times);
    state.counters["p50_ns"] = static_cast<double>(times[times.size() / 2]);
    state.counters["p99_ns"] = static_cast<double>(times[times.size() * 99 / 100]);
}

BENCHMARK_CAPTURE(hand_over, awake, false)->Name("handoff_ns")->UseManualTime()->Iterations(1'000);
BENCHMARK_CAPTURE(hand_over, asleep, true)
    ->Name("handoff_asleep_ns")
    ->UseManualTime()
    ->Iterations(200);

}  // namespace
}  // namespace zerohop::engine
