// The step loop. Every iteration of run(): take what came in, drop what is cancelled, admit what
// fits, plan a step, compute it, sample, send.
//
// Invariants: a sequence with an id is in running_; its reservation in kv_ covers computed + what
// the current step computes; nothing outside this thread touches the llama context.
#include "engine/llama_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "engine/kv_pool.h"
#include "engine/llama_glue.h"
#include "engine/model.h"
#include "engine/prompt.h"
#include "engine/sequence.h"
#include "engine/tokenizer.h"
#include "engine/tokenizer_pool.h"
#include "engine/tuner.h"
#include "engine/wait_queue.h"
#include "engine/wake.h"
#include "sched/planner.h"
#include "sched/thread_governor.h"

namespace zerohop::engine {
namespace {

constexpr MonoNs kNever = std::numeric_limits<MonoNs>::max();
constexpr std::string_view kOrigin = "engine";

using SequencePtr = std::unique_ptr<Sequence>;

Error make_error(Code code, std::string detail) {
    return {.code = code, .detail = std::move(detail), .origin = kOrigin};
}

struct BatchFree {
    void operator()(llama_batch* batch) const {
        llama_batch_free(*batch);
        delete batch;
    }
};

class LlamaEngine final : public EnginePort {
  public:
    LlamaEngine(const LlamaOptions& options, std::shared_ptr<const Model> model,
                std::unique_ptr<PromptRenderer> renderer, const Layout& layout, ContextPtr context);
    ~LlamaEngine() override { stop(); }

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
    static constexpr std::int32_t kNotComplete = -1;      // more of its tokens are pending
    static constexpr std::int32_t kNothingToSample = -2;  // complete, but max_tokens is 0
    struct InStep {
        Sequence* sequence;
        std::int32_t tokens;
        std::int32_t row;  // batch index of its logits, or one of the above
        std::int32_t sampled = -1;
    };
    enum class Over : std::uint8_t { kNo, kCancelled, kDeadline };

    void accept(PreparedRequest&& ready);
    SamplerParams sampler_params(const Sampling& asked);

    // Engine thread.
    void run();
    void note_deadlines();
    void sweep(MonoNs now, bool told);
    Over is_over(const Sequence& sequence, MonoNs now) const;
    void end_over(Sequence& sequence, Over over);
    void flush_starved(bool told);
    void admit(MonoNs now);
    void admit_waiting(MonoNs now, bool high_only);
    bool start(SequencePtr& sequence, MonoNs now);
    bool preempt_low();
    void count_running();
    bool plan_step(MonoNs now);
    bool make_room();
    void pause(std::size_t index, std::string_view why);
    void run_step();
    void fill_batch();
    void after_step(std::int32_t rc, std::int64_t took_ns);
    void repair_after_abort();
    void sample_rows();
    std::int32_t sample_one(Sequence& sequence, std::int32_t row);
    void take_token(Sequence& sequence, std::int32_t token);
    void finish(Sequence& sequence, StopReason reason);
    void fail_sequence(Sequence& sequence, Error error);
    void send(Sequence& sequence, std::string&& text);
    void free_kv(Sequence& sequence);
    void remove_kv(Sequence& sequence, std::int32_t from);
    void reap();
    void fail_everything();
    void publish();
    std::int64_t sleep_ns() const;
    static bool abort_now(void* self);

    const LlamaOptions options_;
    const std::shared_ptr<const Model> model_;
    const std::unique_ptr<PromptRenderer> renderer_;
    const Tokenizer tokenizer_;
    const Layout layout_;
    ModelInfo info_;
    const std::shared_ptr<Compute> compute_;
    ContextPtr context_;
    std::unique_ptr<llama_batch, BatchFree> batch_;
    std::int32_t batch_limit_ = 0;
    std::span<const llama_token> suppressed_;

    Wake wake_;
    std::atomic<bool> look_{false}, draining_{false}, stopping_{false};

    std::mutex inbox_mutex_;
    WaitQueue<SequencePtr> waiting_;  // guarded by inbox_mutex_: new ones
    MonoNs inbox_deadline_ = kNever;  // guarded by inbox_mutex_: soonest since note_deadlines
    bool closed_ = false;             // guarded by inbox_mutex_
    std::uint64_t next_order_ = 0;    // guarded by inbox_mutex_
    std::mt19937_64 seeds_;           // guarded by inbox_mutex_
    std::atomic<double> prefill_token_ns_{2e6}, decode_token_ns_{2e7};

    // The engine thread's own.
    KvPool kv_;
    sched::Planner planner_;
    sched::ThreadGovernor governor_;
    std::vector<SequencePtr> resuming_;  // paused by KV shortage, oldest first
    std::vector<SequencePtr> running_;   // hold KV
    std::vector<SequencePtr> ending_;    // wait for room in their ring, hold nothing else
    std::vector<SequencePtr> gone_;      // ended in this step
    std::vector<sched::Runnable> runnable_;
    std::vector<Sequence*> runnable_sequences_;
    std::vector<sched::Share> plan_;
    std::vector<InStep> step_;
    std::vector<StepToken> record_;
    std::vector<std::uint8_t> counted_lanes_;  // of running_, as waiting_ knows them
    MonoNs next_deadline_ = kNever;
    std::int32_t step_decoding_ = 0, step_prefill_ = 0;

    std::atomic<std::uint32_t> n_waiting_{0}, n_running_{0}, n_paused_{0};
    std::atomic<std::uint64_t> kv_used_{0}, steps_{0}, prompt_computed_{0}, output_tokens_{0},
        cancelled_{0}, last_cancel_ns_{0};
    std::mutex join_mutex_;
    std::unique_ptr<TokenizerPool> pool_;
    std::thread thread_;
};

LlamaEngine::LlamaEngine(const LlamaOptions& options, std::shared_ptr<const Model> model,
                         std::unique_ptr<PromptRenderer> renderer, const Layout& layout,
                         ContextPtr context)
    : options_(options),
      model_(std::move(model)),
      renderer_(std::move(renderer)),
      tokenizer_(model_->vocab),
      layout_(layout),
      info_(model_->info),
      compute_(shared_compute(layout.threads)),
      context_(std::move(context)),
      waiting_({.bounds = {.max_requests =
                               static_cast<std::uint32_t>(std::max(options.queue_requests, 1)),
                           .max_tokens = options.queue_tokens},
                .gauge = options.gauge,
                .reserved = options.lane_reserved,
                .slots = llama_n_seq_max(context_.get())}),
      seeds_(std::random_device{}()),
      kv_(static_cast<std::int32_t>(llama_n_seq_max(context_.get())), llama_n_ctx(context_.get()),
          llama_n_ctx_seq(context_.get()), layout.unified),
      planner_({.batch_tokens = static_cast<std::int32_t>(llama_n_batch(context_.get())),
                .step_ns = options.step_ms * kNsPerMs,
                .idle_step_ns = options.idle_step_ms * kNsPerMs}),
      governor_(std::min(layout.threads, compute_->threads())) {
    const auto cells = static_cast<std::int32_t>(llama_n_ctx_seq(context_.get()));
    const std::int32_t trained = model_->trained_context > 0 ? model_->trained_context : cells;
    const std::int32_t wanted =
        options_.context_tokens > 0 ? std::min(options_.context_tokens, trained) : trained;
    info_.context_tokens = std::min(wanted, cells);
    info_.can_continue = renderer_->traits().can_continue;
    batch_limit_ = static_cast<std::int32_t>(llama_n_batch(context_.get()));
    batch_.reset(new llama_batch(llama_batch_init(batch_limit_, 0, 1)));
    std::int32_t n = 0;
    const llama_token* list = llama_vocab_get_suppress_tokens(model_->vocab, &n);
    if (list != nullptr) suppressed_ = {list, static_cast<std::size_t>(n)};
    compute_->attach(context_.get());
    llama_set_abort_callback(context_.get(), &LlamaEngine::abort_now, this);
    pool_ = std::make_unique<TokenizerPool>(
        *renderer_, tokenizer_,
        TokenizerPool::Limits{.threads = options_.tokenizer_threads,
                              .queue = options_.tokenizer_queue,
                              .context_tokens = info_.context_tokens},
        [this](PreparedRequest&& ready) { accept(std::move(ready)); });
    thread_ = std::thread([this] { run(); });
}

// --- any thread ---------------------------------------------------------------------------------

void LlamaEngine::submit(RequestPtr request, StreamPtr stream) {
    stream->set_producer(this);
    if (draining_.load(std::memory_order_acquire)) {
        (void)stream->try_push(Failed{make_error(Code::kUnavailable, "shutting down")});
        return;
    }
    pool_->submit(std::move(request), std::move(stream));
}

SamplerParams LlamaEngine::sampler_params(const Sampling& asked) {
    SamplerParams params = model_->sampling;
    const Sampling& config = options_.sampling;
    const auto pick = [](const auto& first, const auto& second, auto& out) {
        if (first)
            out = *first;
        else if (second)
            out = *second;
    };
    pick(asked.temperature, config.temperature, params.temperature);
    pick(asked.top_p, config.top_p, params.top_p);
    pick(asked.top_k, config.top_k, params.top_k);
    if (asked.seed)
        params.seed = *asked.seed;
    else if (config.seed)
        params.seed = *config.seed;
    else
        params.seed = seeds_();
    return params;
}

void LlamaEngine::accept(PreparedRequest&& ready) {
    const auto tokens = static_cast<std::int64_t>(ready.tokens.size());
    std::optional<Error> refused;
    {
        const std::lock_guard lock(inbox_mutex_);
        if (closed_) {
            refused = make_error(Code::kUnavailable, "shutting down");
        } else {
            const MonoNs now = mono_now();
            const SamplerParams params = sampler_params(ready.request->sampling);
            const RequestPtr request = ready.request;
            auto sequence = std::make_unique<Sequence>(std::move(ready.request), ready.stream,
                                                       std::move(ready.tokens), params);
            sequence->order = next_order_++;
            sequence->since = now;
            if (request->deadline_ns != 0)
                inbox_deadline_ = std::min(inbox_deadline_, request->deadline_ns);
            const Status queued =
                waiting_.push(fair_item(*request, sequence->order, tokens,
                                        prefill_token_ns_.load(std::memory_order_relaxed),
                                        decode_token_ns_.load(std::memory_order_relaxed), now),
                              request->lane, std::move(sequence), now);
            if (!queued) refused = queued.error();
        }
    }
    if (refused) {
        (void)ready.stream->try_push(Failed{std::move(*refused)});
    } else {
        wake_.signal();
    }
}

EngineStats LlamaEngine::stats_approx() const {
    const auto get = [](const auto& value) { return value.load(std::memory_order_relaxed); };
    return {.waiting = get(n_waiting_),
            .running = get(n_running_),
            .paused = get(n_paused_),
            .kv_tokens_used = get(kv_used_),
            .kv_tokens_total = static_cast<std::uint64_t>(kv_.total()),
            .steps = get(steps_),
            .prompt_tokens_computed = get(prompt_computed_),
            .output_tokens = get(output_tokens_),
            .cancelled = get(cancelled_),
            .last_cancel_ns = get(last_cancel_ns_)};
}

void LlamaEngine::stop() {
    drain();
    const std::lock_guard lock(join_mutex_);
    pool_->stop();
    stopping_.store(true, std::memory_order_release);
    notify();
    if (thread_.joinable()) thread_.join();
}

// --- engine thread: the loop --------------------------------------------------------------------

void LlamaEngine::run() {
    while (!stopping_.load(std::memory_order_acquire)) {
        note_deadlines();
        const bool told = look_.exchange(false, std::memory_order_acq_rel);
        const MonoNs now = mono_now();
        sweep(now, told);
        flush_starved(told);
        admit(now);
        const bool work = plan_step(now);
        publish();
        if (work) run_step();
        reap();
        if (work) continue;
        publish();
        wake_.wait(sleep_ns());
    }
    fail_everything();
}

void LlamaEngine::note_deadlines() {
    const std::lock_guard lock(inbox_mutex_);
    next_deadline_ = std::min(next_deadline_, std::exchange(inbox_deadline_, kNever));
}

LlamaEngine::Over LlamaEngine::is_over(const Sequence& sequence, MonoNs now) const {
    if (sequence.stream->cancelled() != CancelReason::kNone) return Over::kCancelled;
    const MonoNs deadline = sequence.request->deadline_ns;
    return deadline != 0 && now >= deadline ? Over::kDeadline : Over::kNo;
}

void LlamaEngine::end_over(Sequence& sequence, Over over) {
    const MonoNs seen = mono_now();
    const CancelReason why = sequence.stream->cancelled();
    free_kv(sequence);
    last_cancel_ns_.store(static_cast<std::uint64_t>(mono_now() - seen), std::memory_order_relaxed);
    cancelled_.fetch_add(1, std::memory_order_relaxed);
    if (over == Over::kDeadline || why == CancelReason::kDeadline) {
        (void)sequence.stream->try_push(Failed{make_error(Code::kTimeout, "deadline exceeded")});
    } else if (why == CancelReason::kShutdown) {
        (void)sequence.stream->try_push(Failed{make_error(Code::kUnavailable, "shutting down")});
    }
}

// Ends what was cancelled or is late. Cancels always notify, so without one and before the next
// deadline there is nothing to find.
void LlamaEngine::sweep(MonoNs now, bool told) {
    if (!told && now < next_deadline_) return;
    next_deadline_ = kNever;
    const auto ended = [&](SequencePtr& sequence) {
        const Over over = is_over(*sequence, now);
        if (over == Over::kNo) {
            if (sequence->request->deadline_ns != 0)
                next_deadline_ = std::min(next_deadline_, sequence->request->deadline_ns);
            return false;
        }
        end_over(*sequence, over);
        return true;
    };
    {
        const std::lock_guard lock(inbox_mutex_);
        waiting_.erase_if(ended);
    }
    std::erase_if(resuming_, ended);
    std::erase_if(running_, ended);
    std::erase_if(ending_, ended);
}

void LlamaEngine::flush_starved(bool told) {
    if (!told) return;
    for (const auto* list : {&running_, &resuming_})
        for (const SequencePtr& sequence : *list)
            if (sequence->starved()) send(*sequence, std::exchange(sequence->unsent, {}));
    std::erase_if(ending_, [this](SequencePtr& sequence) {
        if (sequence->starved()) send(*sequence, std::exchange(sequence->unsent, {}));
        return !sequence->starved() && sequence->stream->try_push(std::move(*sequence->last));
    });
}

// High priority first, then the paused, then the rest in the queue's order. Strictly in order: a
// big request that does not fit yet is not overtaken for ever by small ones; and one that was
// paused long ago comes before everybody.
void LlamaEngine::admit(MonoNs now) {
    count_running();
    const bool overdue =
        !resuming_.empty() && now - resuming_.front()->since >= admit::FairQueue::kMaxOvertake;
    if (!overdue) admit_waiting(now, true);
    while (!resuming_.empty()) {
        const std::uint8_t lane = resuming_.front()->request->lane;
        {
            const std::lock_guard lock(inbox_mutex_);
            if (!waiting_.has_room(lane, now)) break;
        }
        if (!start(resuming_.front(), now)) break;
        running_.push_back(std::move(resuming_.front()));
        resuming_.erase(resuming_.begin());
        count_running();
    }
    if (resuming_.empty()) admit_waiting(now, false);
}

void LlamaEngine::admit_waiting(MonoNs now, bool high_only) {
    while (true) {
        bool again = false;
        {
            const std::lock_guard lock(inbox_mutex_);
            SequencePtr* next = waiting_.next(now, high_only);
            if (next != nullptr && start(*next, now)) {
                running_.push_back(waiting_.take(now));
                again = true;
            } else if (next == nullptr && !(high_only && waiting_.high_waits())) {
                return;
            }
        }
        // A high-priority request that found no slot or no KV takes those of a low one.
        if (!again && !(high_only && preempt_low())) return;
        count_running();
    }
}

// Tells the wait queue how many run on which lane.
void LlamaEngine::count_running() {
    const std::lock_guard lock(inbox_mutex_);
    for (const std::uint8_t lane : counted_lanes_) waiting_.note_running(lane, -1);
    counted_lanes_.clear();
    for (const SequencePtr& sequence : running_) counted_lanes_.push_back(sequence->request->lane);
    for (const std::uint8_t lane : counted_lanes_) waiting_.note_running(lane, 1);
}

// Pauses the youngest low-priority sequence that was not paused for this before.
bool LlamaEngine::preempt_low() {
    std::size_t victim = running_.size();
    for (std::size_t i = 0; i < running_.size(); ++i) {
        const Sequence& s = *running_[i];
        if (s.request->priority != Priority::kLow || s.preempted) continue;
        if (victim == running_.size() || s.order > running_[victim]->order) victim = i;
    }
    if (victim == running_.size()) return false;
    running_[victim]->preempted = true;
    pause(victim, "a high-priority request needs its place");
    return true;
}

bool LlamaEngine::start(SequencePtr& pointer, MonoNs now) {
    Sequence& sequence = *pointer;
    const auto size = static_cast<std::int64_t>(sequence.tokens.size());
    const std::int64_t left = sequence.output_limit() - sequence.sampled();
    const std::int64_t output =
        std::clamp<std::int64_t>(left, 0, std::max(options_.expected_output_tokens, 1));
    const std::int64_t reserve = std::min<std::int64_t>(size + output, info_.context_tokens);
    const std::optional<KvGrant> grant = kv_.admit(sequence.tokens, reserve);
    if (!grant) return false;
    sequence.id = grant->sequence;
    sequence.computed = grant->cached;
    if (sequence.admitted_ns == 0) sequence.admitted_ns = now;
    return true;
}

// --- planning -----------------------------------------------------------------------------------

bool LlamaEngine::plan_step(MonoNs now) {
    while (true) {
        runnable_.clear();
        runnable_sequences_.clear();
        for (const SequencePtr& sequence : running_) {
            if (sequence->starved()) continue;
            const std::int32_t pending = sequence->pending();
            runnable_.push_back({.pending = pending,
                                 .decoding = pending == 1 && sequence->sampled() > 0,
                                 .since = sequence->since});
            runnable_sequences_.push_back(sequence.get());
        }
        planner_.plan(runnable_, now, plan_);
        step_.clear();
        step_decoding_ = step_prefill_ = 0;
        for (const sched::Share& share : plan_) {
            Sequence& sequence = *runnable_sequences_[share.index];
            const bool last = share.tokens == sequence.pending();
            step_.push_back({&sequence, share.tokens, last ? 0 : kNotComplete});
            (runnable_[share.index].decoding ? step_decoding_ : step_prefill_) += share.tokens;
        }
        if (step_.empty()) return false;
        if (make_room()) return true;
    }
}

// Lets the reservations cover the planned step. Returns false when a sequence had to be paused for
// it: the plan is void then.
bool LlamaEngine::make_room() {
    for (const InStep& part : step_) {
        if (kv_.cover(part.sequence->id, part.sequence->computed + part.tokens)) continue;
        // The youngest gives way, one that waits for its reader before one that could go on.
        std::size_t victim = 0;
        for (std::size_t i = 1; i < running_.size(); ++i) {
            const auto key = [](const Sequence& s) { return std::pair(s.starved(), s.order); };
            if (key(*running_[i]) > key(*running_[victim])) victim = i;
        }
        pause(victim, "KV is short");
        return false;
    }
    return true;
}

void LlamaEngine::pause(std::size_t index, std::string_view why) {
    SequencePtr sequence = std::move(running_[index]);
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(index));
    log_debug(kOrigin, "{} is paused: {}", sequence->request->id, why);
    free_kv(*sequence);
    sequence->since = mono_now();
    const auto place =
        std::find_if(resuming_.begin(), resuming_.end(),
                     [&](const SequencePtr& other) { return other->order > sequence->order; });
    resuming_.insert(place, std::move(sequence));
}

// --- one step -----------------------------------------------------------------------------------

void LlamaEngine::fill_batch() {
    llama_batch& batch = *batch_;
    batch.n_tokens = 0;
    for (InStep& part : step_) {
        const Sequence& sequence = *part.sequence;
        for (std::int32_t i = 0; i < part.tokens; ++i) {
            const std::int32_t at = batch.n_tokens++;
            ZH_CHECK(at < batch_limit_);
            const std::int32_t position = sequence.computed + i;
            batch.token[at] = sequence.tokens[static_cast<std::size_t>(position)];
            batch.pos[at] = position;
            batch.n_seq_id[at] = 1;
            batch.seq_id[at][0] = sequence.id;
            batch.logits[at] = 0;
        }
        if (part.row >= 0 && sequence.output_limit() > 0) {
            part.row = batch.n_tokens - 1;
            batch.logits[part.row] = 1;
        } else if (part.row >= 0) {
            part.row = kNothingToSample;
        }
    }
    if (!options_.on_step) return;
    record_.clear();
    for (std::int32_t i = 0; i < batch.n_tokens; ++i)
        record_.push_back({batch.token[i], batch.pos[i], batch.seq_id[i][0], batch.logits[i] != 0});
}

// Asked by the compute threads between the operations of a step. The step is worth ending early
// when most of it is for nobody; else its end is near enough.
bool LlamaEngine::abort_now(void* self) {
    auto* engine = static_cast<LlamaEngine*>(self);
    if (!engine->look_.load(std::memory_order_acquire)) return false;
    if (engine->stopping_.load(std::memory_order_acquire)) return true;
    std::int32_t total = 0, dead = 0;
    for (const InStep& part : engine->step_) {
        total += part.tokens;
        if (part.sequence->stream->cancelled() != CancelReason::kNone) dead += part.tokens;
    }
    return dead * 2 > total;
}

void LlamaEngine::run_step() {
    fill_batch();
    const double expected =
        planner_.decode_step_ns(step_decoding_) + planner_.prefill_token_ns() * step_prefill_;
    llama_set_n_threads(context_.get(), governor_.threads(), governor_.threads());
    compute_->gate().lock();
    const MonoNs begin = mono_now();
    const std::int32_t rc = llama_decode(context_.get(), *batch_);
    if (rc == 0) llama_synchronize(context_.get());
    const MonoNs end = mono_now();
    compute_->gate().unlock();
    steps_.fetch_add(1, std::memory_order_relaxed);
    if (rc == 0) governor_.observe(static_cast<double>(end - begin) / expected);
    after_step(rc, end - begin);
}

void LlamaEngine::after_step(std::int32_t rc, std::int64_t took_ns) {
    if (rc == 0) {
        planner_.observe(step_decoding_, step_prefill_, took_ns);
        prefill_token_ns_.store(planner_.prefill_token_ns(), std::memory_order_relaxed);
        decode_token_ns_.store(planner_.decode_step_ns(1), std::memory_order_relaxed);
        prompt_computed_.fetch_add(static_cast<std::uint64_t>(step_prefill_),
                                   std::memory_order_relaxed);
        for (const InStep& part : step_) part.sequence->computed += part.tokens;
        sample_rows();
    } else if (rc == 1 && running_.size() > 1) {
        // Cannot happen while the bookkeeping is right; the state is as before the step.
        log_warn(kOrigin, "no KV slot for a step of {} tokens", batch_->n_tokens);
        std::size_t youngest = 0;
        for (std::size_t i = 1; i < running_.size(); ++i)
            if (running_[i]->order > running_[youngest]->order) youngest = i;
        pause(youngest, "KV is short");
    } else if (rc == 2) {
        repair_after_abort();
    } else {
        log_error(kOrigin, "llama_decode failed ({}): {} requests end", rc, step_.size());
        for (const InStep& part : step_)
            fail_sequence(*part.sequence,
                          make_error(Code::kInternal, "the model failed to compute"));
    }
}

// What was computed before the abort stays in the cache, but its logits are lost: a sequence whose
// last token went through computes that one again.
void LlamaEngine::repair_after_abort() {
    llama_memory_t memory = llama_get_memory(context_.get());
    for (const InStep& part : step_) {
        Sequence& sequence = *part.sequence;
        std::int32_t held = llama_memory_seq_pos_max(memory, sequence.id) + 1;
        if (!model_->partial_removal) {
            if (held != sequence.computed) held = 0;
        } else {
            held = std::min(held, static_cast<std::int32_t>(sequence.tokens.size()) - 1);
        }
        sequence.computed = held;
        remove_kv(sequence, held);
    }
}

// All rows are sampled before anything is told or freed: logits stay valid only until the next
// change of the context, and an observer sees the step before what follows from it.
void LlamaEngine::sample_rows() {
    for (InStep& part : step_) {
        if (part.row < 0) continue;
        part.sampled = sample_one(*part.sequence, part.row);
        if (options_.on_step) record_[static_cast<std::size_t>(part.row)].sampled = part.sampled;
    }
    if (options_.on_step) options_.on_step({.tokens = record_});
    const MonoNs now = mono_now();
    for (const InStep& part : step_) {
        Sequence& sequence = *part.sequence;
        if (part.row == kNotComplete) continue;
        if (sequence.prefill_done_ns == 0) sequence.prefill_done_ns = now;
        if (part.row == kNothingToSample) {
            finish(sequence, StopReason::kMaxTokens);
        } else if (part.sampled < 0) {
            fail_sequence(sequence, make_error(Code::kInternal, "the model gave no logits"));
        } else {
            if (sequence.first_token_ns == 0) sequence.first_token_ns = now;
            if (llama_vocab_is_eog(model_->vocab, part.sampled)) {
                finish(sequence, StopReason::kEndTurn);
            } else {
                take_token(sequence, part.sampled);
            }
        }
    }
}

std::int32_t LlamaEngine::sample_one(Sequence& sequence, std::int32_t row) {
    float* logits = llama_get_logits_ith(context_.get(), row);
    if (logits == nullptr) return -1;
    const auto vocab = static_cast<std::size_t>(llama_vocab_n_tokens(model_->vocab));
    for (const llama_token token : suppressed_)
        logits[token] = -std::numeric_limits<float>::infinity();
    return sequence.sampler.sample({logits, vocab}, sequence.tokens);
}

void LlamaEngine::take_token(Sequence& sequence, std::int32_t token) {
    sequence.tokens.push_back(token);
    output_tokens_.fetch_add(1, std::memory_order_relaxed);
    char buffer[256];
    std::string text;
    std::int32_t n = llama_token_to_piece(model_->vocab, token, buffer, sizeof buffer, 0, false);
    if (n >= 0) {
        sequence.output.append({buffer, static_cast<std::size_t>(n)}, text);
    } else {
        std::string piece(static_cast<std::size_t>(-n), '\0');
        n = llama_token_to_piece(model_->vocab, token, piece.data(), -n, 0, false);
        sequence.output.append({piece.data(), static_cast<std::size_t>(std::max(n, 0))}, text);
    }
    send(sequence, std::move(text));
    if (sequence.output.matched() != OutputText::kNoMatch) {
        finish(sequence, StopReason::kStopSequence);
    } else if (sequence.sampled() >= sequence.output_limit()) {
        finish(sequence, StopReason::kMaxTokens);
    } else if (static_cast<std::int32_t>(sequence.tokens.size()) >= info_.context_tokens) {
        finish(sequence, StopReason::kContextWindow);
    }
}

// --- endings ------------------------------------------------------------------------------------

void LlamaEngine::send(Sequence& sequence, std::string&& text) {
    if (text.empty()) return;
    Event event = Text{std::move(text), sequence.sampled()};
    if (!sequence.starved() && sequence.stream->try_push(std::move(event))) return;
    sequence.unsent += std::get<Text>(event).delta;
}

void LlamaEngine::finish(Sequence& sequence, StopReason reason) {
    free_kv(sequence);
    std::string rest;
    sequence.output.flush(rest);
    send(sequence, std::move(rest));
    Done done;
    done.reason = reason;
    if (const std::int32_t matched = sequence.output.matched(); matched != OutputText::kNoMatch)
        done.stop_sequence = sequence.request->stop_sequences[static_cast<std::size_t>(matched)];
    done.usage = {.input_tokens = sequence.prompt,
                  .cache_read_tokens = 0,
                  .output_tokens = sequence.sampled()};
    done.admitted_ns = sequence.admitted_ns;
    done.prefill_done_ns = sequence.prefill_done_ns;
    done.first_token_ns = sequence.first_token_ns;
    done.done_ns = mono_now();
    sequence.last = std::move(done);
}

void LlamaEngine::fail_sequence(Sequence& sequence, Error error) {
    free_kv(sequence);
    sequence.unsent.clear();
    sequence.last = Failed{std::move(error)};
}

// Moves what finished out of running_: gone when its last event was taken, else to ending_.
void LlamaEngine::reap() {
    for (SequencePtr& sequence : running_) {
        if (!sequence->last) continue;
        if (sequence->starved() || !sequence->stream->try_push(std::move(*sequence->last)))
            ending_.push_back(std::move(sequence));
        else
            sequence.reset();
    }
    std::erase(running_, nullptr);
}

void LlamaEngine::free_kv(Sequence& sequence) {
    if (sequence.id < 0) return;
    remove_kv(sequence, 0);
    kv_.release(sequence.id);
    sequence.id = -1;
    sequence.computed = 0;
}

void LlamaEngine::remove_kv(Sequence& sequence, std::int32_t from) {
    llama_memory_seq_rm(llama_get_memory(context_.get()), sequence.id, from > 0 ? from : -1, -1);
    if (options_.on_step)
        options_.on_step({.tokens = {}, .removed_sequence = sequence.id, .removed_from = from});
}

void LlamaEngine::fail_everything() {
    const auto fail_one = [&](SequencePtr& sequence) {
        free_kv(*sequence);
        (void)sequence->stream->try_push(Failed{make_error(Code::kUnavailable, "shutting down")});
        return true;
    };
    {
        const std::lock_guard lock(inbox_mutex_);
        closed_ = true;
        waiting_.erase_if(fail_one);
    }
    for (auto* list : {&resuming_, &running_, &ending_}) {
        std::for_each(list->begin(), list->end(), fail_one);
        list->clear();
    }
    publish();
}

void LlamaEngine::publish() {
    std::uint64_t used = 0;
    std::uint32_t starved = 0;
    for (const SequencePtr& sequence : running_) {
        used += static_cast<std::uint64_t>(sequence->computed);
        starved += sequence->starved() ? 1 : 0;
    }
    const auto size = [](const auto& list) { return static_cast<std::uint32_t>(list.size()); };
    kv_used_.store(used, std::memory_order_relaxed);
    {
        const std::lock_guard lock(inbox_mutex_);
        n_waiting_.store(size(waiting_), std::memory_order_relaxed);
    }
    n_running_.store(size(running_), std::memory_order_relaxed);
    n_paused_.store(starved + size(resuming_) + size(ending_), std::memory_order_relaxed);
}

std::int64_t LlamaEngine::sleep_ns() const {
    if (next_deadline_ == kNever) return -1;
    return std::max<std::int64_t>(1, next_deadline_ - mono_now());
}

}  // namespace

Result<std::unique_ptr<EnginePort>> load_llama(const LlamaOptions& options,
                                               const LoadProgress& progress) {
    Result<std::shared_ptr<const Model>> model = Model::load(options, progress);
    if (!model) return std::unexpected(model.error());
    const Model& loaded = **model;
    auto renderer = PromptRenderer::make(loaded.model.get(), loaded.vocab);
    if (!renderer) return std::unexpected(renderer.error());
    Result<Layout> layout = choose_layout(loaded, options, progress);
    if (!layout) return std::unexpected(layout.error());
    Result<ContextPlan> plan = plan_context(loaded, options, *layout);
    if (!plan) return std::unexpected(plan.error());
    (void)take_llama_error();
    ContextPtr context = make_context(loaded, *layout, plan->cells, plan->sequences,
                                      options.batch_tokens, options.ubatch_tokens);
    if (context == nullptr) {
        return fail(Code::kInvalidRequest, kOrigin,
                    fmt::format("cannot load {}: no context of {} tokens: {}", options.path,
                                plan->cells, take_llama_error()));
    }
    auto engine = std::make_unique<LlamaEngine>(options, std::move(*model), std::move(*renderer),
                                                *layout, std::move(context));
    log_info(
        kOrigin,
        "{}: {} tokens of context, {} of KV ({} MiB), {} sequences, {} threads, flash attention "
        "{}, K/V {}, {}",
        engine->info().id, engine->info().context_tokens, plan->cells, plan->kv_bytes >> 20,
        plan->sequences, layout->threads, layout->flash_attention ? "on" : "off", layout->kv_type,
        layout->unified ? "unified" : "per sequence");
    return engine;
}

}  // namespace zerohop::engine
