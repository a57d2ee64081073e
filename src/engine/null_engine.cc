// One thread, one heap of due times. A request moves inbox → waiting → running (a slot) → gone; a
// running sequence is either in the heap (its next token has a time) or paused by a full ring. One
// whose reader is slow gives its slot away: running → lagging → waiting (sched/occupancy.h).
#include "engine/null_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <mutex>
#include <queue>
#include <thread>
#include <utility>
#include <vector>

#include "engine/inbox.h"
#include "engine/null_script.h"
#include "engine/too_long.h"
#include "engine/wake.h"
#include "request/output_text.h"
#include "sched/wait_queue.h"

namespace zerohop::engine {
namespace {

constexpr MonoNs kNever = std::numeric_limits<MonoNs>::max();
constexpr MonoNs kLookAtReaders = kNsPerSec / 4;  // at readers

struct Sequence {
    RequestPtr request;
    StreamPtr stream;
    NullScript script;
    std::vector<std::string> pieces;
    OutputText output{{}};
    std::int32_t input_tokens = 0;
    std::int32_t sampled = 0;
    std::string unsent;  // text the ring had no room for
    sched::ReaderLag lag;
    bool paused = false;
    bool gone = false;
    MonoNs due = 0;
    MonoNs admitted_ns = 0, prefill_done_ns = 0, first_token_ns = 0;
};

using SequencePtr = std::shared_ptr<Sequence>;

struct Later {
    bool operator()(const std::pair<MonoNs, SequencePtr>& a,
                    const std::pair<MonoNs, SequencePtr>& b) const {
        return a.first > b.first;
    }
};

class NullEngine final : public EnginePort {
  public:
    NullEngine(NullConfig config, std::vector<std::uint32_t> lane_reserved,
               const std::shared_ptr<sched::QueueGauge>& gauge,
               const sched::OccupancyLimits& occupancy)
        : config_(std::move(config)),
          occupancy_(occupancy),
          waiting_({.bounds = {.max_requests = std::max(config_.queue, 1U),
                               .max_tokens = std::int64_t{1} << 60,
                               .model = config_.id},
                    .gauge = gauge,
                    .reserved = std::move(lane_reserved),
                    .slots = static_cast<std::uint32_t>(config_.slots),
                    .stepped = false}) {
        if (gauge) gauge->prefill_fixed_ns = config_.script.prefill_ns;
        info_.id = config_.id;
        info_.display_name = config_.id;
        info_.architecture = "null";
        info_.created_ns = wall_now();
        info_.context_tokens = config_.context;
        info_.max_sequences = static_cast<std::int32_t>(config_.slots);
        thread_ = std::thread([this] { run(); });
    }
    ~NullEngine() override { stop(); }

    void notify() noexcept override {
        look_.store(true, std::memory_order_release);
        wake_.signal();
    }
    const ModelInfo& info() const override { return info_; }
    void submit(RequestPtr request, StreamPtr stream) override;
    EngineStats stats_approx() const override;
    void drain() override { draining_.store(true, std::memory_order_release); }
    void stop() override;

  private:
    void run();
    void enqueue(SequencePtr&& sequence, MonoNs now);
    void fill_slots(MonoNs now);
    void look_at_all(MonoNs now);
    void look_at_readers(MonoNs now);
    void resume(const SequencePtr& sequence);
    bool end_if_over(const SequencePtr& sequence, MonoNs now);
    void step(const SequencePtr& sequence, MonoNs now);
    bool send(Sequence& sequence, std::string&& text);
    void finish(Sequence& sequence, StopReason reason, MonoNs now);
    void end(Sequence& sequence);
    void fail_stream(Sequence& sequence, Code code, std::string detail);
    std::int64_t sleep_ns(MonoNs now);

    const NullConfig config_;
    const sched::OccupancyLimits occupancy_;
    ModelInfo info_;
    Wake wake_;
    std::atomic<bool> look_{false}, draining_{false}, stopping_{false};
    // In the engine beyond submit, for the bound of inbox and queue together: sched::WaitQueue
    // keeps its own, and nobody waits there with queue=0.
    std::atomic<std::uint32_t> inside_{0};

    Inbox<SequencePtr> inbox_;

    // The engine thread's own.
    sched::WaitQueue<SequencePtr> waiting_;
    std::uint64_t next_handle_ = 0;
    std::vector<SequencePtr> running_, lagging_;
    MonoNs next_deadline_ = kNever;
    std::priority_queue<std::pair<MonoNs, SequencePtr>, std::vector<std::pair<MonoNs, SequencePtr>>,
                        Later>
        due_;

    std::atomic<std::uint32_t> n_waiting_{0}, n_running_{0}, n_paused_{0};
    std::atomic<std::uint64_t> steps_{0}, prompt_tokens_{0}, output_tokens_{0}, cancelled_{0},
        last_cancel_ns_{0};
    std::mutex join_mutex_;
    std::thread thread_;
};

void push_final(Stream& stream, Event&& event) { (void)stream.try_push(std::move(event)); }

void NullEngine::submit(RequestPtr request, StreamPtr stream) {
    stream->set_producer(this);
    const auto refuse = [&](Error error) { push_final(*stream, Failed{std::move(error)}); };
    if (draining_.load(std::memory_order_acquire))
        return refuse({.code = Code::kUnavailable, .detail = "shutting down", .origin = "engine"});
    Result<NullScript> script = script_for(config_.script, *request);
    if (!script) return refuse(std::move(script.error()));
    if (script->fail && script->fail_after < 0) {
        Error error{.code = *script->fail, .detail = "scripted failure", .origin = "engine"};
        if (*script->fail == Code::kOverloaded || *script->fail == Code::kRateLimited)
            error.retry_after_ms = script->retry_after_ms;
        return refuse(std::move(error));
    }
    const std::int32_t input = count_input(*request);
    if (request->work == Work::kCount) {
        (void)stream->try_push(Prepared{input});
        return;
    }
    if (input >= config_.context)
        return refuse({.code = Code::kInvalidRequest,
                       .detail = too_long_text("", static_cast<std::size_t>(input),
                                               static_cast<std::size_t>(config_.context)),
                       .origin = "engine"});
    drop_turns(*request);
    if (inside_.fetch_add(1, std::memory_order_acq_rel) >=
        config_.slots + config_.queue * waiting_.queues()) {
        inside_.fetch_sub(1, std::memory_order_acq_rel);
        const std::int64_t retry_ms = config_.script.retry_after_ms;
        return refuse({.code = Code::kOverloaded,
                       .detail = fmt::format(
                           "overloaded: the queue of model \"{}\" is full; try again in {} s",
                           config_.id, (retry_ms + 999) / 1000),
                       .origin = "engine",
                       .retry_after_ms = retry_ms});
    }
    auto sequence = std::make_shared<Sequence>();
    sequence->output = OutputText(request->stop_sequences, request->stop_rule);
    sequence->pieces = pieces_of(*script);
    sequence->script = std::move(*script);
    sequence->input_tokens = input;
    sequence->request = std::move(request);
    sequence->stream = std::move(stream);
    sequence->stream->set_queued(true);
    (void)sequence->stream->try_push(Prepared{input});
    const SequencePtr kept = sequence;
    const auto pushed = inbox_.push(std::move(sequence));
    if (pushed == Inbox<SequencePtr>::Pushed::kFirst) wake_.signal();
    if (pushed != Inbox<SequencePtr>::Pushed::kClosed) return;
    inside_.fetch_sub(1, std::memory_order_acq_rel);
    fail_stream(*kept, Code::kUnavailable, "shutting down");
}

EngineStats NullEngine::stats_approx() const {
    EngineStats stats;
    stats.waiting = n_waiting_.load(std::memory_order_relaxed);
    stats.running = n_running_.load(std::memory_order_relaxed);
    stats.paused = n_paused_.load(std::memory_order_relaxed);
    stats.steps = steps_.load(std::memory_order_relaxed);
    stats.prompt_tokens_computed = prompt_tokens_.load(std::memory_order_relaxed);
    stats.output_tokens = output_tokens_.load(std::memory_order_relaxed);
    stats.cancelled = cancelled_.load(std::memory_order_relaxed);
    stats.last_cancel_ns = last_cancel_ns_.load(std::memory_order_relaxed);
    return stats;
}

void NullEngine::stop() {
    drain();
    stopping_.store(true, std::memory_order_release);
    wake_.signal();
    const std::lock_guard lock(join_mutex_);
    if (thread_.joinable()) thread_.join();
}

void NullEngine::fail_stream(Sequence& sequence, Code code, std::string detail) {
    Error error{.code = code, .detail = std::move(detail), .origin = "engine"};
    if (code == Code::kOverloaded || code == Code::kRateLimited)
        error.retry_after_ms = sequence.script.retry_after_ms;
    push_final(*sequence.stream, Failed{std::move(error)});
}

void NullEngine::run() {
    std::vector<SequencePtr> taken;
    while (!stopping_.load(std::memory_order_acquire)) {
        inbox_.take(taken);
        for (SequencePtr& sequence : taken) {
            if (const MonoNs deadline = sequence->request->deadline_ns; deadline != 0)
                next_deadline_ = std::min(next_deadline_, deadline);
            enqueue(std::move(sequence), mono_now());
            fill_slots(mono_now());  // one by one: who finds a slot does not count as waiting
        }
        MonoNs now = mono_now();
        const bool told = look_.exchange(false, std::memory_order_acq_rel);
        if (told || now >= next_deadline_) look_at_all(now);
        if (n_paused_.load(std::memory_order_relaxed) > 0) look_at_readers(now);
        fill_slots(now);
        // One token of every sequence that is due, then look at the inbox again.
        for (std::size_t n = due_.size(); n > 0 && !due_.empty() && due_.top().first <= now; --n) {
            const SequencePtr sequence = due_.top().second;
            due_.pop();
            if (!sequence->gone && !sequence->paused) step(sequence, now);
        }
        steps_.fetch_add(1, std::memory_order_relaxed);
        std::erase_if(running_, [this](const SequencePtr& s) {
            if (!s->gone) return false;
            waiting_.note_running(s->request->lane, -1);
            // The heap may hold it until it would have been due; nothing else may.
            s->stream.reset();
            s->request.reset();
            return true;
        });
        n_waiting_.store(static_cast<std::uint32_t>(waiting_.size()), std::memory_order_relaxed);
        n_running_.store(static_cast<std::uint32_t>(running_.size()), std::memory_order_relaxed);
        now = mono_now();
        wake_.wait(sleep_ns(now));
    }
    inbox_.close(taken);
    for (SequencePtr& sequence : taken) enqueue(std::move(sequence), mono_now());
    waiting_.erase_if([this](const SequencePtr& sequence) {
        fail_stream(*sequence, Code::kUnavailable, "shutting down");
        end(*sequence);
        return true;
    });
    for (auto* list : {&running_, &lagging_}) {
        for (const SequencePtr& sequence : *list) {
            fail_stream(*sequence, Code::kUnavailable, "shutting down");
            end(*sequence);
        }
        list->clear();
    }
}

std::int64_t NullEngine::sleep_ns(MonoNs now) {
    if (waiting_.next(now, false) != nullptr) return 0;
    MonoNs next = next_deadline_;
    if (!due_.empty()) next = std::min(next, due_.top().first);
    if (n_paused_.load(std::memory_order_relaxed) > 0) next = std::min(next, now + kLookAtReaders);
    return next == kNever ? -1 : std::max<std::int64_t>(0, next - now);
}

void NullEngine::enqueue(SequencePtr&& sequence, MonoNs now) {
    // A cancel before it was taken from the inbox told a turn that did not know of it yet.
    if (end_if_over(sequence, now)) return;
    const std::uint8_t lane = sequence->request->lane;
    sched::FairItem item =
        sched::fair_item(*sequence->request, ++next_handle_, sequence->input_tokens,
                         static_cast<double>(sequence->script.prefill_ns),
                         static_cast<double>(sequence->script.delay_ns), now);
    const SequencePtr kept = sequence;
    const Status queued = waiting_.push(std::move(item), lane, std::move(sequence), now);
    if (queued) return;
    push_final(*kept->stream, Failed{queued.error()});
    end(*kept);
}

void NullEngine::fill_slots(MonoNs now) {
    while (waiting_.next(now, false) != nullptr) {
        const SequencePtr sequence = waiting_.take(now);
        if (end_if_over(sequence, now)) continue;
        running_.push_back(sequence);
        waiting_.note_running(sequence->request->lane, 1);
        if (sequence->admitted_ns == 0) {
            sequence->stream->set_queued(false);
            sequence->admitted_ns = now;
            sequence->prefill_done_ns = now + sequence->script.prefill_ns;
            prompt_tokens_.fetch_add(static_cast<std::uint64_t>(sequence->input_tokens),
                                     std::memory_order_relaxed);
        }
        sequence->due = std::max(now, sequence->prefill_done_ns);
        due_.emplace(sequence->due, sequence);
    }
}

// After notify(): somebody cancelled, or a ring has room again. Also where deadlines are seen.
void NullEngine::look_at_all(MonoNs now) {
    next_deadline_ = kNever;
    const auto note_deadline = [this](const Sequence& sequence) {
        if (sequence.request->deadline_ns != 0)
            next_deadline_ = std::min(next_deadline_, sequence.request->deadline_ns);
    };
    waiting_.erase_if([&](const SequencePtr& sequence) {
        if (end_if_over(sequence, now)) return true;
        note_deadline(*sequence);
        return false;
    });
    for (const SequencePtr& sequence : running_) {
        if (end_if_over(sequence, now)) continue;
        note_deadline(*sequence);
        if (!sequence->paused) continue;
        resume(sequence);
        sequence->due = std::max(now, sequence->due);
        due_.emplace(sequence->due, sequence);
    }
    std::erase_if(lagging_, [&](const SequencePtr& sequence) {
        if (end_if_over(sequence, now)) return true;
        note_deadline(*sequence);
        resume(sequence);
        if (!send(*sequence, std::exchange(sequence->unsent, {}))) return false;
        enqueue(SequencePtr(sequence), now);
        return true;
    });
}

void NullEngine::resume(const SequencePtr& sequence) {
    sequence->paused = false;
    n_paused_.fetch_sub(1, std::memory_order_relaxed);
}

// Who does not read gives its slot to those who wait for one, or ends.
void NullEngine::look_at_readers(MonoNs now) {
    const auto stalled = [&](const SequencePtr& sequence) {
        if (!sequence->gone && sequence->lag.stalled(occupancy_, now)) {
            fail_stream(*sequence, Code::kTimeout, "the answer was not read for too long");
            end(*sequence);
        }
        return sequence->gone;
    };
    std::erase_if(lagging_, stalled);
    std::erase_if(running_, [&](const SequencePtr& sequence) {
        if (stalled(sequence) || waiting_.empty() || !sequence->lag.slow(occupancy_, now))
            return false;
        waiting_.note_running(sequence->request->lane, -1);
        lagging_.push_back(sequence);
        return true;
    });
}

bool NullEngine::end_if_over(const SequencePtr& sequence, MonoNs now) {
    if (sequence->gone) return true;
    const MonoNs deadline = sequence->request->deadline_ns;
    const CancelReason why = sequence->stream->cancelled();
    if (why != CancelReason::kNone) {
        const MonoNs seen = mono_now();
        if (why == CancelReason::kDeadline)
            fail_stream(*sequence, Code::kTimeout, "deadline exceeded");
        end(*sequence);
        cancelled_.fetch_add(1, std::memory_order_relaxed);
        last_cancel_ns_.store(static_cast<std::uint64_t>(mono_now() - seen),
                              std::memory_order_relaxed);
        return true;
    }
    if (deadline != 0 && now >= deadline) {
        fail_stream(*sequence, Code::kTimeout, "deadline exceeded");
        end(*sequence);
        return true;
    }
    return false;
}

void NullEngine::end(Sequence& sequence) {
    sequence.gone = true;
    if (sequence.paused) n_paused_.fetch_sub(1, std::memory_order_relaxed);
    sequence.paused = false;
    inside_.fetch_sub(1, std::memory_order_acq_rel);
}

bool NullEngine::send(Sequence& sequence, std::string&& text) {
    if (text.empty()) return true;
    Event event = Text{std::move(text),
                       sequence.sampled,
                       sequence.admitted_ns,
                       sequence.prefill_done_ns,
                       {.input_tokens = sequence.input_tokens}};
    if (sequence.stream->try_push(std::move(event))) {
        if (sequence.lag.starved()) sequence.lag.feed(mono_now());
        return true;
    }
    sequence.lag.starve(mono_now());
    sequence.unsent = std::move(std::get<Text>(event).delta);
    sequence.paused = true;
    n_paused_.fetch_add(1, std::memory_order_relaxed);
    return false;
}

void NullEngine::finish(Sequence& sequence, StopReason reason, MonoNs now) {
    std::string rest;
    sequence.output.flush(rest);
    // The two places kept for the end do not hold text: wait until the rest has gone out.
    if (!send(sequence, std::move(rest))) {
        sequence.script.tokens = sequence.sampled;
        sequence.script.end = reason;
        return;
    }
    Done done;
    done.reason = reason;
    if (reason == StopReason::kStopSequence && sequence.output.matched() >= 0)
        done.stop_sequence =
            sequence.request->stop_sequences[static_cast<std::size_t>(sequence.output.matched())];
    done.usage = {.input_tokens = sequence.input_tokens,
                  .cache_read_tokens = 0,
                  .output_tokens = sequence.sampled};
    done.admitted_ns = sequence.admitted_ns;
    done.prefill_done_ns = sequence.prefill_done_ns;
    done.first_token_ns = sequence.first_token_ns;
    done.done_ns = now;
    end(sequence);
    push_final(*sequence.stream, std::move(done));
}

void NullEngine::step(const SequencePtr& pointer, MonoNs now) {
    Sequence& sequence = *pointer;
    if (end_if_over(pointer, now)) return;
    if (!sequence.unsent.empty() && !send(sequence, std::exchange(sequence.unsent, {}))) return;
    const NullScript& script = sequence.script;
    if (sequence.output.matched() >= 0) return finish(sequence, StopReason::kStopSequence, now);
    if (script.fail && sequence.sampled >= script.fail_after) {
        fail_stream(sequence, *script.fail, "scripted failure");
        return end(sequence);
    }
    if (sequence.sampled >= script.tokens) return finish(sequence, script.end, now);
    if (sequence.sampled >= output_cap(*sequence.request, sequence.input_tokens))
        return finish(sequence, StopReason::kMaxTokens, now);
    if (sequence.input_tokens + sequence.sampled >= config_.context)
        return finish(sequence, StopReason::kContextWindow, now);

    const auto index = static_cast<std::size_t>(sequence.sampled) % sequence.pieces.size();
    if (sequence.sampled++ == 0) sequence.first_token_ns = now;
    output_tokens_.fetch_add(1, std::memory_order_relaxed);
    std::string out;
    sequence.output.append(sequence.pieces[index], out);
    sequence.due = now + script.delay_ns;
    if (send(sequence, std::move(out))) {
        const bool last = sequence.output.matched() >= 0 || sequence.sampled >= script.tokens ||
                          sequence.sampled >= output_cap(*sequence.request, sequence.input_tokens);
        if (last && !script.fail) return step(pointer, now);
        due_.emplace(sequence.due, pointer);
    }
}

}  // namespace

Result<std::unique_ptr<EnginePort>> make_null(std::string_view config,
                                              std::vector<std::uint32_t> lane_reserved,
                                              const std::shared_ptr<sched::QueueGauge>& gauge,
                                              const sched::OccupancyLimits& occupancy) {
    Result<NullConfig> parsed = parse_null_config(config);
    if (!parsed) return std::unexpected(parsed.error());
    return std::make_unique<NullEngine>(std::move(*parsed), std::move(lane_reserved), gauge,
                                        occupancy);
}

}  // namespace zerohop::engine
