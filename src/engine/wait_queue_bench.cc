// handoff_ns: a tokenized Request is handed to the engine → the engine thread has it, by the inbox
// and wake-up that engines use. Target: p50 ≤ 1,200 (issue 4), for an engine thread that is awake,
// as it is while anything runs (what is left of its step is not part of the handoff);
// queued_p50_ns is until it has also been through the wait queue. handoff_asleep_ns is the same for
// an idle engine: mostly the kernel's wake-up.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "engine/inbox.h"
#include "engine/wake.h"
#include "request/stream.h"
#include "sched/wait_queue.h"

namespace zerohop::engine {
namespace {

// Spins for a moment, then lets others run: on a busy machine the other thread may not. No pause
// instructions: in a virtual machine a loop of them is interrupted, for longer than what is
// measured.
class Spin {
  public:
    void once() {
        if (++count_ % 65536 == 0) std::this_thread::yield();
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
    struct Took {
        MonoNs seen = 0, queued = 0;
    };
    Took hand_over(std::unique_ptr<Job> job) {
        const MonoNs begin = mono_now();
        (void)inbox_.push(std::move(job));
        wake_.signal();
        given_.store(true, std::memory_order_release);
        Spin spin;
        while (taken_ns_.load(std::memory_order_acquire) == 0) spin.once();
        return {.seen = seen_ns_ - begin,
                .queued = taken_ns_.exchange(0, std::memory_order_acq_rel) - begin};
    }

  private:
    void run() {
        Spin spin;
        while (!stop_.load(std::memory_order_acquire)) {
            if (!sleeps_ && !given_.load(std::memory_order_acquire)) {
                spin.once();  // a step that ends just after the handoff
                continue;
            }
            given_.store(false, std::memory_order_relaxed);
            inbox_.take(arrived_);
            if (!arrived_.empty())
                look_at(std::exchange(arrived_.front(), nullptr));
            else if (sleeps_)
                wake_.wait(-1);
        }
    }

    void look_at(std::unique_ptr<Job> job) {
        seen_ns_ = mono_now();
        const RequestPtr request = job->request;
        (void)queue_.push(sched::fair_item(*request, ++handle_, 300, 3e8, 1e7, seen_ns_), 0,
                          std::move(job), seen_ns_);
        if (queue_.next(seen_ns_, false) != nullptr) job = queue_.take(seen_ns_);
        taken_ns_.store(mono_now(), std::memory_order_release);
    }

    const bool sleeps_;
    Inbox<std::unique_ptr<Job>> inbox_;
    std::vector<std::unique_ptr<Job>> arrived_;
    sched::WaitQueue<std::unique_ptr<Job>> queue_{sched::WaitQueue<std::unique_ptr<Job>>::Options{
        .bounds = {}, .gauge = std::make_shared<sched::QueueGauge>(), .reserved = {}, .slots = 8}};
    Wake wake_;
    std::uint64_t handle_ = 0;
    MonoNs seen_ns_ = 0;  // before taken_ns_
    std::atomic<MonoNs> taken_ns_{0};
    std::atomic<bool> stop_{false}, given_{false};
    std::thread thread_;  // last: it uses the rest
};

void hand_over(benchmark::State& state, bool sleeps) {
    Taker taker(sleeps);
    std::vector<MonoNs> times, queued;
    auto request = std::make_shared<Request>();
    request->max_tokens = 256;
    request->turns.push_back({Role::kUser, {std::string(1200, 'x')}});
    for ([[maybe_unused]] const auto _ : state) {
        auto job = std::make_unique<Job>();
        job->request = std::make_shared<Request>(*request);
        job->stream = std::make_shared<Stream>(nullptr, nullptr);
        if (sleeps) std::this_thread::sleep_for(std::chrono::milliseconds(2));
        // Else the engine thread would still be freeing the last one.
        for (const MonoNs built = mono_now(); mono_now() - built < 20'000;) {
        }
        const Taker::Took took = taker.hand_over(std::move(job));
        times.push_back(took.seen);
        queued.push_back(took.queued);
        state.SetIterationTime(static_cast<double>(took.seen) / 1e9);
    }
    std::ranges::sort(times);
    state.counters["p50_ns"] = static_cast<double>(times[times.size() / 2]);
    std::ranges::sort(queued);
    state.counters["queued_p50_ns"] = static_cast<double>(queued[queued.size() / 2]);
    state.counters["p99_ns"] = static_cast<double>(times[times.size() * 99 / 100]);
}

BENCHMARK_CAPTURE(hand_over, awake, false)->Name("handoff_ns")->UseManualTime()->Iterations(1'000);
BENCHMARK_CAPTURE(hand_over, asleep, true)
    ->Name("handoff_asleep_ns")
    ->UseManualTime()
    ->Iterations(200);

}  // namespace
}  // namespace zerohop::engine
