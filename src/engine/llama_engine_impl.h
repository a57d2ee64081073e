// LlamaEngine's inside. Its parts, each a file:
//
//     llama_engine.cc   loading, the public face, what other threads do
//     engine_turn.cc    one turn of the engine thread: cancels, deadlines, readers
//     engine_admit.cc   who gets a place, who gives one up
//     engine_step.cc    planning, batches, the llama calls, sampling
//     engine_side.cc    long prompts in the side context
//     engine_end.cc     text to streams, endings
//
// Invariants: a sequence with an id is in running_; its reservation in kv_ covers computed + what
// the current step computes; nothing outside the engine thread touches the llama contexts.
//
// A turn may run inside a chunk of the side context (SidePrefill): then the sequence computed there
// is neither ended, paused nor moved by it.
#pragma once

#include <atomic>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "engine/drafts.h"
#include "engine/inbox.h"
#include "engine/kv_store.h"
#include "engine/llama_engine.h"
#include "engine/llama_glue.h"
#include "engine/model.h"
#include "engine/pages.h"
#include "engine/prompt.h"
#include "engine/sequence.h"
#include "engine/side_prefill.h"
#include "engine/tokenizer.h"
#include "engine/tokenizer_pool.h"
#include "engine/tuner.h"
#include "engine/wake.h"
#include "kv/plans.h"
#include "sched/planner.h"
#include "sched/thread_governor.h"
#include "sched/wait_queue.h"

namespace zerohop::engine {

inline constexpr MonoNs kNever = std::numeric_limits<MonoNs>::max();

// The planner prefers who has had a place for longest, as places are given fairly: who came first
// does not count again. High priority counts as having waited long.
inline MonoNs counted_since(const Sequence& sequence) {
    constexpr MonoNs kHeadStart = 1000 * kNsPerSec;
    const bool high = sequence.priority == Priority::kHigh;
    return sequence.since - (high ? kHeadStart : 0);
}

using SequencePtr = std::unique_ptr<Sequence>;

inline Error make_error(Code code, std::string detail) {
    return {.code = code, .detail = std::move(detail), .origin = kOrigin};
}

class LlamaEngine final : public EnginePort {
  public:
    LlamaEngine(const LlamaOptions& options, std::shared_ptr<const Model> model,
                std::unique_ptr<PromptRenderer> renderer, const Layout& layout,
                const ContextPlan& plan, ContextPtr context);
    ~LlamaEngine() override { stop(); }

    void notify() noexcept override {
        look_.store(true, std::memory_order_release);
        wake_.signal();
    }
    const ModelInfo& info() const override { return info_; }
    void submit(RequestPtr request, StreamPtr stream) override;
    EngineStats stats_approx() const override;
    std::shared_ptr<const CacheList> cached_approx() const override { return kv_.cached_approx(); }
    void forget_cached(std::string_view workspace, std::uint64_t id) override;
    void drain() override { draining_.store(true, std::memory_order_release); }
    void stop() override;

  private:
    static constexpr std::int32_t kNotComplete = -1;      // more of its tokens are pending
    static constexpr std::int32_t kNothingToSample = -2;  // complete, but max_tokens is 0
    struct InStep {
        Sequence* sequence;
        std::int32_t tokens;   // pending ones, then drafts
        std::int32_t drafted;  // of them drafts
        std::int32_t row;      // batch index of its first logits, or one of the above
        std::int32_t accepted = 0;
        std::vector<std::int32_t> sampled = {};
    };
    enum class Over : std::uint8_t { kNo, kCancelled, kDeadline };
    struct Forget {
        std::string workspace;
        std::uint64_t id = 0;
    };

    // --- any thread (llama_engine.cc)
    void arrive(PreparedRequest&& ready);

    // --- engine thread (engine_turn.cc)
    void run();
    bool turn();
    void take_arrived(MonoNs now);
    void enqueue(PreparedRequest&& ready, MonoNs now);
    std::int64_t left_to_compute(const Sequence& sequence) const;
    Status queue(SequencePtr&& sequence, std::int64_t left, MonoNs since, MonoNs now);
    void make_room_ahead();
    Status check_promise(const Request& request, std::int64_t left) const;
    SequencePtr make_sequence(PreparedRequest&& ready);
    SamplerParams sampler_params(const Sampling& asked);
    void forget_asked();
    void forget_derived(std::string_view name);
    void sweep(MonoNs now, bool told);
    Over is_over(const Sequence& sequence, MonoNs now) const;
    void end_over(Sequence& sequence, Over over);
    void flush_starved(bool told);
    void look_at_readers(MonoNs now);
    void publish();
    bool give_back();
    std::int64_t sleep_ns() const;
    void fail_everything();

    // (engine_admit.cc)
    void admit(MonoNs now);
    void admit_sharing(MonoNs now);
    void admit_resuming(MonoNs now);
    void admit_waiting(MonoNs now, bool high_only);
    void place(SequencePtr&& sequence, KvStore::Admitted admitted, MonoNs now);
    void wait_for_room(SequencePtr&& sequence);
    bool may_pass(MonoNs now) const;
    void hold_back();
    bool gives_way(const Sequence& running, const Sequence& to, std::string_view crowd) const;
    bool may_claim(const Sequence& sequence, MonoNs now) const;
    KvStore::Admitted claim(Sequence& sequence, MonoNs now);
    void inherit();
    std::size_t youngest(const std::function<bool(const Sequence&)>& among) const;
    bool preempt_low();
    void reclaim(MonoNs now);
    std::string_view crowd_before(const Request& waiting) const;
    std::int64_t expected_output(const Sequence& sequence) const;
    KvStore::Admitted start(Sequence& sequence, MonoNs now);
    void count_running();
    void pause(std::size_t index, std::string_view why);

    // (engine_step.cc)
    bool plan_step(MonoNs now);
    std::int32_t lane_cap(std::uint8_t lane) const;
    void cap_beside_lanes();
    std::int32_t add_to_plan(std::uint32_t index, std::int32_t most);
    void add_drafts();
    void propose(std::span<Drafted> call);
    bool make_room();
    void run_step();
    void note_costs();
    bool compute(std::span<InStep> parts);
    void fill_batch(std::span<InStep> parts);
    bool after_call(std::int32_t rc, std::span<InStep> parts);
    void repair_after_abort(std::span<InStep> parts);
    void sample_parts(std::span<InStep> parts, std::int64_t took_ns);
    void sample_part(InStep& part);
    void tell(InStep& part, MonoNs now);
    std::int32_t sample_one(Sequence& sequence, float* logits);
    void record(std::span<const InStep> parts);
    bool is_for_side(const Sequence& sequence) const;
    bool waits_for_side(const Sequence& sequence) const;
    void choose_side(MonoNs now);
    void run_side();
    void end_side_early(Sequence& sequence);
    void side_break(std::int64_t piece_ns);
    void end_side_prompt(Sequence& sequence);
    static bool abort_step(void* self);
    static bool abort_side(void* self);

    // (engine_end.cc)
    bool take_token(Sequence& sequence, std::int32_t token);
    void prefill_done(Sequence& sequence, MonoNs now);
    void send(Sequence& sequence, std::string&& text);
    void finish(Sequence& sequence, StopReason reason);
    Usage usage_of(const Sequence& sequence) const;
    void fail_sequence(Sequence& sequence, Error error);
    void free_kv(Sequence& sequence, bool keep);
    void reap();

    const LlamaOptions options_;
    const std::shared_ptr<const Model> model_;
    const std::unique_ptr<PromptRenderer> renderer_;
    const Tokenizer tokenizer_;
    const Layout layout_;
    ModelInfo info_;
    const std::shared_ptr<Compute> compute_;
    ContextPtr context_;
    Batch batch_;
    std::int32_t output_limit_ = 0;  // rows of logits of one call
    bool separate_calls_ = true;     // decode and prefill in calls of their own
    std::span<const llama_token> suppressed_;

    Wake wake_;
    std::atomic<bool> look_{false}, arrived_{false}, draining_{false}, stopping_{false};

    Inbox<PreparedRequest> inbox_;
    Inbox<Forget> forgets_;

    // The engine thread's own.
    sched::WaitQueue<SequencePtr> waiting_;  // new ones
    kv::Plans plans_;
    std::uint64_t next_order_ = 0;
    std::mt19937_64 seeds_;
    double prefill_token_ns_ = 2e6, decode_token_ns_ = 2e7;
    KvStore kv_;
    std::unique_ptr<SidePrefill> side_;  // null: none
    std::unique_ptr<Drafts> drafts_;     // null: none
    sched::Planner planner_;
    sched::ThreadGovernor governor_;
    std::vector<SequencePtr> resuming_;  // want KV: the most urgent first, then the oldest
    std::vector<SequencePtr> sharing_;   // wait for another one to compute their beginning
    std::vector<SequencePtr> running_;   // hold KV
    std::vector<SequencePtr> lagging_;   // paused until their readers have read; hold nothing
    std::vector<SequencePtr> ending_;    // wait for room in their ring, hold nothing else
    std::vector<sched::Runnable> runnable_;
    std::vector<Sequence*> runnable_sequences_;
    std::vector<sched::Share> plan_;
    std::vector<InStep> step_;  // decoding ones first
    std::vector<Drafted> drafted_;
    std::vector<PreparedRequest> arrived_now_;
    std::vector<Forget> forget_now_;
    std::vector<std::string> held_back_;  // workspaces
    std::span<const InStep> in_call_;     // of step_: what llama computes now
    std::vector<StepToken> record_;
    std::vector<std::uint8_t> counted_lanes_;  // of running_ and sharing_, as waiting_ knows them
    MonoNs next_deadline_ = kNever;
    MonoNs turn_ended_ = 0;          // the last one
    MonoNs give_back_at_ = kNever;   // when nothing has run for long enough
    std::size_t step_decoding_ = 0;  // parts of step_ that decode
    bool prefill_waits_ = false;     // on the main context, as of the last plan
    bool in_side_ = false;           // within a chunk of the side context

    std::atomic<std::uint32_t> n_waiting_{0}, n_running_{0}, n_paused_{0};
    std::atomic<std::uint64_t> kv_used_{0}, steps_{0}, prompt_computed_{0}, output_tokens_{0},
        cancelled_{0}, last_cancel_ns_{0};
    mutable std::mutex stats_mutex_;
    EngineStats cache_stats_;  // guarded by stats_mutex_: the cache counters of it
    const std::int64_t pool_tokens_;
    std::mutex join_mutex_;
    std::unique_ptr<TokenizerPool> pool_;
    std::thread thread_;
};

}  // namespace zerohop::engine
