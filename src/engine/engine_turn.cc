// One turn of the engine thread: take what came in, drop what is over, admit (engine_admit.cc),
// compute a step (engine_step.cc).
#include <algorithm>
#include <iterator>
#include <utility>

#include "base/log.h"
#include "engine/llama_engine_impl.h"
#include "sched/first_token.h"

namespace zerohop::engine {
namespace {

constexpr MonoNs kLookAgain = kNsPerSec / 4;

}  // namespace

void LlamaEngine::run() {
    const BufferOwner owner(model_.get());
    give_back_at_ = mono_now();  // what making and measuring took
    while (!stopping_.load(std::memory_order_acquire)) {
        bool work = turn();
        if (side_ != nullptr && side_->left() > 0) {
            run_side();
            work = true;
        }
        if (work)
            give_back_at_ = mono_now() + options_.give_back_s * kNsPerSec;
        else if (!kv_.save_ahead() && !give_back())
            wake_.wait(sleep_ns());
    }
    fail_everything();
}

// False: nothing to compute on the main context.
bool LlamaEngine::turn() {
    const MonoNs now = mono_now();
    take_arrived(now);
    const bool told = look_.exchange(false, std::memory_order_acq_rel);
    if (told) forget_asked();
    sweep(now, told);
    flush_starved(told);
    look_at_readers(now);
    admit(now);
    const bool work = plan_step(now);
    publish();
    if (work) {
        run_step();
        reap();
    }
    make_room_ahead();
    kv_.tidy(now, !work);
    turn_ended_ = mono_now();
    return work;
}

// For requests whose heads have come: what is idle is put away while their bodies are on their way.
void LlamaEngine::make_room_ahead() {
    const std::int64_t reserved =
        options_.gauge == nullptr ? 0
                                  : options_.gauge->soft_kv_tokens.load(std::memory_order_relaxed);
    if (reserved > 0) kv_.keep_free(reserved);
}

void LlamaEngine::take_arrived(MonoNs now) {
    arrived_.store(false, std::memory_order_relaxed);
    inbox_.take(arrived_now_);
    for (PreparedRequest& ready : arrived_now_) enqueue(std::move(ready), now);
    arrived_now_.clear();
}

void LlamaEngine::enqueue(PreparedRequest&& ready, MonoNs now) {
    const StreamPtr stream = ready.stream;
    const MonoNs since = ready.ready_ns;
    SequencePtr sequence = make_sequence(std::move(ready));
    const RequestPtr request = sequence->request;
    if (request->deadline_ns != 0) next_deadline_ = std::min(next_deadline_, request->deadline_ns);
    // A cancel while it was tokenized told a turn that did not know of it yet.
    if (const Over over = is_over(*sequence, now); over != Over::kNo)
        return end_over(*sequence, over);
    sequence->expected =
        plans_.expect(sequence->structure_keys<kv::PlanKey>(),
                      static_cast<std::uint32_t>(std::max(sequence->output_limit(), 0)));
    const std::int64_t left = left_to_compute(*sequence);
    Status queued = check_promise(*request, left);
    if (queued) queued = queue(std::move(sequence), left, since, now);
    if (!queued) (void)stream->try_push(Failed{queued.error()});
}

std::int64_t LlamaEngine::left_to_compute(const Sequence& sequence) const {
    return std::max<std::int64_t>(std::ssize(sequence.tokens) - kv_.known(sequence), 1);
}

Status LlamaEngine::queue(SequencePtr&& sequence, std::int64_t left, MonoNs since, MonoNs now) {
    const RequestPtr request = sequence->request;
    const auto planned = sequence->expected.samples > 0
                             ? static_cast<std::int32_t>(sequence->expected.mean_tokens)
                             : 0;
    return waiting_.push(sched::fair_item(*request, sequence->order, left,
                                          static_cast<double>(left) * prefill_token_ns_,
                                          decode_token_ns_, since, planned),
                         request->lane, std::move(sequence), now);
}

// With so many tokens of its prompt left to compute.
Status LlamaEngine::check_promise(const Request& request, std::int64_t left) const {
    if (options_.gauge == nullptr || request.max_tokens == 0) return {};
    const sched::QueueGauge& gauge = *options_.gauge;
    return sched::check_first_token(
        request.promise, gauge.lanes[request.lane].high_start_ms.load(std::memory_order_relaxed),
        gauge.prefill_ms_approx(left));
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

SequencePtr LlamaEngine::make_sequence(PreparedRequest&& ready) {
    const Request& request = *ready.request;
    const SamplerParams params = sampler_params(request.sampling);
    auto sequence = std::make_unique<Sequence>(ready.request, ready.stream, std::move(ready.tokens),
                                               params, std::move(ready.output));
    sequence->order = next_order_++;
    sequence->since = ready.ready_ns;
    sequence->marks = std::move(ready.marks);
    const Principal& who = request.principal;
    sequence->ns = who.cache_group.empty()
                       ? kv::derive_namespace(who.workspace, info_.id, request.cache_user)
                       : kv::shared_namespace(who.cache_group, info_.id);
    // Without a prefix cache nobody finds anything: each request is alone.
    if (!options_.prefix_cache) sequence->ns.lo ^= sequence->order * 0x9E3779B97F4A7C15ULL;
    return sequence;
}

void LlamaEngine::forget_asked() {
    forgets_.take(forget_now_);
    for (const Forget& f : forget_now_) {
        kv_.forget(f.workspace, f.id);
        if (f.id == 0) forget_derived(f.workspace);
    }
}

// What was learnt of a workspace's prompts and answers; requests that run go on, and leave nothing.
void LlamaEngine::forget_derived(std::string_view name) {
    for (const kv::Namespace& ns :
         {kv::derive_namespace(name, info_.id), kv::shared_namespace(name, info_.id)}) {
        plans_.forget(ns.owner);
        if (drafts_ != nullptr) drafts_->forget(ns.owner);
        for (auto* list : {&sharing_, &resuming_, &running_, &lagging_})
            for (const SequencePtr& sequence : *list)
                if (sequence->ns.owner == ns.owner) sequence->forget = true;
    }
}

LlamaEngine::Over LlamaEngine::is_over(const Sequence& sequence, MonoNs now) const {
    if (sequence.stream->cancelled() != CancelReason::kNone) return Over::kCancelled;
    const MonoNs deadline = sequence.request->deadline_ns;
    return deadline != 0 && now >= deadline ? Over::kDeadline : Over::kNo;
}

void LlamaEngine::end_over(Sequence& sequence, Over over) {
    const MonoNs seen = mono_now();
    const CancelReason why = sequence.stream->cancelled();
    free_kv(sequence, true);
    last_cancel_ns_.store(static_cast<std::uint64_t>(mono_now() - seen), std::memory_order_relaxed);
    cancelled_.fetch_add(1, std::memory_order_relaxed);
    if (over == Over::kDeadline || why == CancelReason::kDeadline) {
        (void)sequence.stream->try_push(Failed{make_error(Code::kTimeout, "deadline exceeded")});
    }
}

// Ends what was cancelled or is late. Cancels always notify, so without one and before the next
// deadline there is nothing to find.
void LlamaEngine::sweep(MonoNs now, bool told) {
    if (!told && now < next_deadline_) return;
    next_deadline_ = kNever;
    const auto ended = [&](SequencePtr& sequence) {
        const Over over = is_over(*sequence, now);
        if (over == Over::kNo || (in_side_ && sequence->beside)) {
            // The one being computed beside ends after its chunk, which a cancel cuts short.
            if (over != Over::kNo) look_.store(true, std::memory_order_release);
            if (sequence->request->deadline_ns != 0)
                next_deadline_ = std::min(next_deadline_, sequence->request->deadline_ns);
            return false;
        }
        end_over(*sequence, over);
        return true;
    };
    waiting_.erase_if(ended);
    for (auto* list : {&sharing_, &resuming_, &running_, &lagging_, &ending_})
        std::erase_if(*list, ended);
}

void LlamaEngine::flush_starved(bool told) {
    if (!told) return;
    for (const auto* list : {&running_, &lagging_})
        for (const SequencePtr& sequence : *list)
            if (sequence->starved()) send(*sequence, std::exchange(sequence->unsent, {}));
    std::erase_if(ending_, [this](SequencePtr& sequence) {
        if (sequence->starved()) send(*sequence, std::exchange(sequence->unsent, {}));
        return !sequence->starved() && sequence->stream->try_push(std::move(*sequence->last));
    });
}

// Who does not read gives its place to those who wait for one, or ends (sched/occupancy.h).
void LlamaEngine::look_at_readers(MonoNs now) {
    const auto not_read = [] {
        return make_error(Code::kTimeout, "the answer was not read for too long");
    };
    const bool wanted = !waiting_.empty() || !resuming_.empty();
    bool failed = false;
    for (std::size_t i = running_.size(); i-- > 0;) {
        Sequence& sequence = *running_[i];
        if (sequence.lag.stalled(options_.occupancy, now)) {
            fail_sequence(sequence, not_read());
            failed = true;
        } else if (wanted && sequence.lag.slow(options_.occupancy, now)) {
            pause(i, "its reader is slow and others wait");
        }
    }
    if (failed) reap();
    for (auto* list : {&lagging_, &ending_}) {
        std::erase_if(*list, [&](SequencePtr& sequence) {
            return sequence->lag.stalled(options_.occupancy, now) &&
                   sequence->stream->try_push(Failed{not_read()});
        });
    }
    std::erase_if(lagging_, [&](SequencePtr& sequence) {
        if (sequence->starved()) return false;
        const StreamPtr stream = sequence->stream;
        const std::int64_t left = left_to_compute(*sequence);
        if (Status queued = queue(std::move(sequence), left, now, now); !queued)
            (void)stream->try_push(Failed{queued.error()});
        return true;
    });
}

void LlamaEngine::fail_everything() {
    const auto fail_one = [&](SequencePtr& sequence) {
        free_kv(*sequence, false);
        (void)sequence->stream->try_push(Failed{make_error(Code::kUnavailable, "shutting down")});
        return true;
    };
    inbox_.close(arrived_now_);
    for (PreparedRequest& ready : arrived_now_) enqueue(std::move(ready), mono_now());
    waiting_.erase_if(fail_one);
    for (auto* list : {&sharing_, &resuming_, &running_, &lagging_, &ending_}) {
        std::for_each(list->begin(), list->end(), fail_one);
        list->clear();
    }
    publish();
}

// --- what others see ----------------------------------------------------------------------------

void LlamaEngine::publish() {
    std::uint64_t used = 0;
    std::uint32_t starved = 0, running = 0;
    for (const SequencePtr& sequence : running_) {
        if (sequence->last) continue;  // holds nothing any more
        ++running;
        used += static_cast<std::uint64_t>(sequence->computed);
        starved += sequence->starved() ? 1 : 0;
    }
    const auto size = [](const auto& list) { return static_cast<std::uint32_t>(list.size()); };
    kv_used_.store(used, std::memory_order_relaxed);
    n_waiting_.store(size(waiting_) + size(sharing_), std::memory_order_relaxed);
    n_running_.store(running, std::memory_order_relaxed);
    n_paused_.store(starved + size(resuming_) + size(lagging_) + size(ending_),
                    std::memory_order_relaxed);
    EngineStats stats;
    kv_.add_to(stats);
    if (drafts_ != nullptr) {
        stats.drafts_proposed = drafts_->proposed();
        stats.drafts_accepted = drafts_->accepted();
    }
    const std::lock_guard lock(stats_mutex_);
    cache_stats_ = stats;
}

// What nobody has used for a while. False: it is not time.
bool LlamaEngine::give_back() {
    if (!running_.empty() || mono_now() < give_back_at_) return false;
    give_back_at_ = kNever;
    if (!model_->on_gpu) kv_.give_back();
    if (side_ != nullptr) side_->give_back();
    give_back_computed(model_.get());
    return true;
}

std::int64_t LlamaEngine::sleep_ns() const {
    const MonoNs now = mono_now();
    MonoNs until = std::min(next_deadline_, kv_.next_tidy());
    if (running_.empty()) until = std::min(until, give_back_at_);
    // A kept place (FairQueue) is given away by the clock, not by an event, and so are those of
    // slow readers, and the room of pins that expire.
    if (!waiting_.empty()) until = std::min(until, now + sched::FairQueue::kReturn);
    const auto starved = [](const SequencePtr& sequence) { return sequence->starved(); };
    if (!resuming_.empty() || !lagging_.empty() || std::ranges::any_of(running_, starved) ||
        std::ranges::any_of(ending_, starved))
        until = std::min(until, now + kLookAgain);
    return until == kNever ? -1 : std::max<std::int64_t>(1, until - now);
}

}  // namespace zerohop::engine
