// Long prompts beside the others (side_prefill.h): which, when, and what happens in between.
#include <algorithm>

#include "base/log.h"
#include "engine/llama_engine_impl.h"

namespace zerohop::engine {
namespace {

constexpr std::int32_t kLeastBeside = 64;  // tokens: fewer are not worth moving KV for

}  // namespace

// One that does not fit into a step: it would hold up the others, or have to be cut into chunks
// that are computed less well.
bool LlamaEngine::is_for_side(const Sequence& sequence) const {
    if (side_ == nullptr || sequence.beside || sequence.never_beside || options_.step_ms <= 0)
        return false;
    const std::int32_t pending = sequence.pending();
    return pending >= kLeastBeside &&
           side_->fits(static_cast<std::int64_t>(sequence.tokens.size())) &&
           planner_.chunk_ns(pending) > static_cast<double>(options_.step_ms * kNsPerMs);
}

// The side is taken, and it is better to wait for it than to be computed in small chunks.
bool LlamaEngine::waits_for_side(const Sequence& sequence) const {
    if (side_ == nullptr || side_->current() == nullptr || !is_for_side(sequence)) return false;
    const Sequence& current = *side_->current();
    if (sequence.priority == Priority::kHigh && current.priority != Priority::kHigh) return false;
    return 2 * sequence.pending() >= side_->left();
}

// Shortest first with ageing, as the planner; high priority before all.
void LlamaEngine::choose_side(MonoNs now) {
    if (side_ == nullptr || in_side_ || side_->current() != nullptr) return;
    Sequence* best = nullptr;
    double best_rank = 0;
    for (const SequencePtr& sequence : running_) {
        if (sequence->starved() || !is_for_side(*sequence)) continue;
        const double rank = prefill_token_ns_ * sequence->pending() -
                            static_cast<double>(now - counted_since(*sequence));
        if (best != nullptr && rank >= best_rank) continue;
        best = sequence.get();
        best_rank = rank;
    }
    if (best == nullptr) return;
    if (!kv_.copy_out(*best, side_->context())) {
        best->never_beside = true;
        return;
    }
    side_->begin(*best);
    best->beside = true;
    best->pay();
}

bool LlamaEngine::abort_side(void* self) {
    auto* engine = static_cast<LlamaEngine*>(self);
    if (engine->stopping_.load(std::memory_order_acquire)) return true;
    const Sequence* current = engine->side_->current();
    return current != nullptr && engine->is_over(*current, mono_now()) != Over::kNo;
}

void LlamaEngine::run_side() {
    Sequence& sequence = *side_->current();
    const std::int32_t before = side_->computed();
    in_side_ = true;
    const std::int32_t rc = side_->run_chunk(governor_.threads());
    in_side_ = false;
    steps_.fetch_add(1, std::memory_order_relaxed);
    if (rc == 2) return end_side_early(sequence);
    if (rc != 0) {
        log_error(kOrigin, "llama_decode failed ({}) for {}", rc, sequence.request->id);
        fail_sequence(sequence, make_error(Code::kInternal, "the model failed to compute"));
        reap();
        return;
    }
    prompt_computed_.fetch_add(static_cast<std::uint64_t>(side_->computed() - before),
                               std::memory_order_relaxed);
    note_costs();
    if (side_->left() > 0) return;
    end_side_prompt(sequence);
    reap();
}

// Its chunk was given up, because it is over or the engine stops: never to be begun again.
void LlamaEngine::end_side_early(Sequence& sequence) {
    const Over over = is_over(sequence, mono_now());
    if (over == Over::kNo) return;
    end_over(sequence, over);
    std::erase_if(running_, [&](const SequencePtr& other) { return other.get() == &sequence; });
    publish();
}

// Between two pieces of a chunk: a turn, when somebody waits for one or is about to.
void LlamaEngine::side_break(std::int64_t piece_ns) {
    const std::int64_t patience = options_.step_ms * kNsPerMs;
    const bool due = mono_now() - turn_ended_ + piece_ns >= patience;
    if (due || prefill_waits_ || look_.load(std::memory_order_acquire) ||
        arrived_.load(std::memory_order_acquire))
        (void)turn();
}

void LlamaEngine::end_side_prompt(Sequence& sequence) {
    const std::int32_t tokens = side_->computed();
    const std::int32_t from = sequence.computed;
    const bool nothing = sequence.output_limit() <= 0;
    InStep part{.sequence = &sequence,
                .tokens = tokens - from,
                .drafted = 0,
                .row = nothing ? kNothingToSample : 0};
    if (!nothing) part.sampled.push_back(sample_one(sequence, side_->logits()));
    side_->end();
    sequence.beside = false;
    if (!kv_.take_in(sequence, side_->context(), tokens)) {
        log_warn(kOrigin, "{}: KV could not be moved: computed again", sequence.request->id);
        sequence.never_beside = true;
        return;
    }
    sequence.held = tokens;
    if (options_.on_step) {
        record_.clear();
        for (std::int32_t i = from; i < tokens; ++i)
            record_.push_back({sequence.tokens[static_cast<std::size_t>(i)], i, sequence.id,
                               !nothing && i + 1 == tokens});
        if (!nothing) record_.back().sampled = part.sampled.front();
        options_.on_step({.tokens = record_, .chunk = side_->chunk()});
    }
    tell(part, mono_now());
}

}  // namespace zerohop::engine
