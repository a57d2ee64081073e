// A step: which tokens, in which calls, and what comes of them.
//
// On a CPU a step is two calls: all that decode (with their drafts), whose tokens are sent at once,
// then the prefill chunks. Together they would cost more: from 64 rows on ggml computes attention
// in tiles, and a tile of unrelated rows looks at everybody's cells.
#include <algorithm>

#include "base/check.h"
#include "base/log.h"
#include "engine/llama_engine_impl.h"

namespace zerohop::engine {

// --- planning -----------------------------------------------------------------------------------

namespace {

// Low priority stands still until the first token of such a one.
bool prefills_high(const SequencePtr& s) {
    return s->priority == Priority::kHigh && s->sampled() == 0 && !s->starved();
}

}  // namespace

bool LlamaEngine::plan_step(MonoNs now) {
    inherit();
    while (true) {
        choose_side(now);
        runnable_.clear();
        runnable_sequences_.clear();
        const bool high_first = std::ranges::any_of(running_, prefills_high);
        for (const SequencePtr& sequence : running_) {
            if (sequence->starved() || sequence->beside || waits_for_side(*sequence)) continue;
            if (high_first && sequence->priority == Priority::kLow) continue;
            const std::int32_t pending = sequence->pending();
            runnable_.push_back({.pending = pending,
                                 .decoding = pending == 1 && sequence->sampled() > 0,
                                 .since = counted_since(*sequence)});
            runnable_sequences_.push_back(sequence.get());
        }
        planner_.plan(runnable_, now, plan_);
        cap_beside_lanes();
        step_.clear();
        step_decoding_ = 0;
        std::int32_t prefill = 0;
        for (const sched::Share& share : plan_) {
            Sequence& sequence = *runnable_sequences_[share.index];
            const bool last = share.tokens == sequence.pending();
            step_.push_back({.sequence = &sequence,
                             .tokens = share.tokens,
                             .drafted = 0,
                             .row = last ? 0 : kNotComplete});
            if (runnable_[share.index].decoding)
                ++step_decoding_;
            else
                prefill += share.tokens;
        }
        prefill_waits_ = prefill > 0;
        if (step_.empty()) return false;
        add_drafts();
        if (make_room()) return true;
    }
}

std::int32_t LlamaEngine::lane_cap(std::uint8_t lane) const {
    return options_.lane_caps == nullptr ? 0
                                         : static_cast<std::int32_t>(options_.lane_caps->of(lane));
}

// While a lane with a cap has a prompt to compute, the prompts of others together get no more than
// that of a step; what they lose is that lane's, whether or not the plan had room for it.
void LlamaEngine::cap_beside_lanes() {
    if (options_.lane_caps == nullptr) return;
    const auto lane_of = [&](std::size_t index) { return runnable_sequences_[index]->lane; };
    std::int32_t cap = 0;
    std::uint8_t capping = 0;
    for (std::size_t i = 0; i < runnable_.size(); ++i) {
        const std::int32_t own = lane_cap(lane_of(i));
        if (runnable_[i].decoding || own == 0 || (cap != 0 && own >= cap)) continue;
        cap = own;
        capping = lane_of(i);
    }
    if (cap == 0) return;
    std::int32_t freed = 0;
    for (sched::Share& share : plan_) {
        if (runnable_[share.index].decoding || lane_of(share.index) == capping) continue;
        const std::int32_t kept = std::min(share.tokens, cap);
        cap -= kept;
        freed += share.tokens - kept;
        share.tokens = kept;
    }
    for (std::uint32_t i = 0; i < runnable_.size() && freed > 0; ++i)
        if (!runnable_[i].decoding && lane_of(i) == capping) freed -= add_to_plan(i, freed);
    std::erase_if(plan_, [](const sched::Share& share) { return share.tokens == 0; });
}

// Gives a prompt up to so many tokens more in this step; how many it took.
std::int32_t LlamaEngine::add_to_plan(std::uint32_t index, std::int32_t most) {
    auto share = std::ranges::find(plan_, index, &sched::Share::index);
    if (share == plan_.end())
        share = plan_.insert(share, sched::Share{.index = index, .tokens = 0});
    const std::int32_t taken = std::min(runnable_[index].pending - share->tokens, most);
    share->tokens += taken;
    return taken;
}

// To what decodes, and to the ends of prompts: their outputs begin alike more often than not.
void LlamaEngine::add_drafts() {
    if (drafts_ == nullptr) return;
    drafted_.clear();
    for (const InStep& part : step_) {
        const Sequence& s = *part.sequence;
        const std::int32_t left =
            std::min(s.output_limit() - s.sampled(),
                     info_.context_tokens - static_cast<std::int32_t>(s.tokens.size()));
        const bool samples = part.row != kNotComplete && left > 0;
        drafted_.push_back({.sequence = part.sequence,
                            .rows = static_cast<std::uint32_t>(part.tokens),
                            .samples = samples,
                            .room = samples ? static_cast<std::uint32_t>(left - 1) : 0});
    }
    const std::span<Drafted> all(drafted_);
    if (separate_calls_) {
        propose(all.first(step_decoding_));
        propose(all.subspan(step_decoding_));
    } else {
        propose(all);
    }
    for (std::size_t i = 0; i < step_.size(); ++i) {
        step_[i].drafted = static_cast<std::int32_t>(drafted_[i].tokens);
        step_[i].tokens += step_[i].drafted;
    }
}

void LlamaEngine::propose(std::span<Drafted> call) {
    std::uint32_t rows = Drafts::kMostRows;
    for (const Drafted& d : call) rows += d.rows;
    // With a sliding window, in one piece: a later one could be given cells that are still needed
    // where drafts are refused.
    const std::uint32_t most = model_->partial_removal
                                   ? static_cast<std::uint32_t>(batch_.capacity())
                                   : llama_n_ubatch(context_.get());
    if (!call.empty() && rows <= most) drafts_->propose(call);
}

// Lets the reservations cover the planned step. Returns false when a sequence had to be paused for
// it: the plan is void then.
bool LlamaEngine::make_room() {
    for (InStep& part : step_) {
        if (kv_.cover(*part.sequence, part.sequence->computed + part.tokens)) continue;
        if (part.drafted > 0) {
            part.tokens -= part.drafted;
            drafted_[static_cast<std::size_t>(&part - step_.data())].tokens = 0;
            part.drafted = 0;
            if (kv_.cover(*part.sequence, part.sequence->computed + part.tokens)) continue;
        }
        // The youngest gives way, one that waits for its reader before one that could go on.
        std::size_t victim = running_.size();
        for (std::size_t i = 0; i < running_.size(); ++i) {
            const auto key = [](const Sequence& s) { return std::pair(s.starved(), s.order); };
            if (running_[i]->beside && in_side_) continue;
            if (victim == running_.size() || key(*running_[i]) > key(*running_[victim])) victim = i;
        }
        ZH_CHECK(victim < running_.size());
        pause(victim, "KV is short");
        return false;
    }
    return true;
}

// --- calls --------------------------------------------------------------------------------------

void LlamaEngine::run_step() {
    const std::span<InStep> all(step_);
    steps_.fetch_add(1, std::memory_order_relaxed);
    if (!separate_calls_)
        (void)compute(all);
    else if (compute(all.first(step_decoding_)))  // else the plan may no longer hold
        (void)compute(all.subspan(step_decoding_));
}

// After each measured call: what a token costs, for all who plan with it. Of a prompt's tokens: in
// the chunks that long ones are computed in.
void LlamaEngine::note_costs() {
    const double beside = side_ != nullptr ? side_->token_ns() : 0;
    prefill_token_ns_ = beside > 0 ? beside : planner_.prefill_token_ns();
    decode_token_ns_ = planner_.decode_step_ns(1);
    kv_.set_prefill_cost(prefill_token_ns_);
    if (options_.gauge != nullptr)
        options_.gauge->prefill_token_ns.store(prefill_token_ns_, std::memory_order_relaxed);
}

bool LlamaEngine::compute(std::span<InStep> parts) {
    if (parts.empty()) return true;
    fill_batch(parts);
    std::int32_t decoding = 0, prefill = 0, drafted = 0;  // drafted: at the ends of prompts
    for (const InStep& part : parts) {
        const bool decodes = part.sequence->sampled() > 0 && part.sequence->pending() == 1;
        (decodes ? decoding : prefill) += part.tokens;
        drafted += decodes ? 0 : part.drafted;
    }
    const double expected = planner_.decode_step_ns(decoding);
    llama_set_n_threads(context_.get(), governor_.threads(), governor_.threads());
    in_call_ = parts;
    compute_->gate().lock();
    const MonoNs begin = mono_now();
    const std::int32_t rc = llama_decode(context_.get(), batch_.get());
    if (rc == 0) llama_synchronize(context_.get());
    const std::int64_t took = mono_now() - begin;
    compute_->gate().unlock();
    in_call_ = {};
    // Prefill says nothing here: what a token of it costs grows with its place.
    if (rc == 0 && prefill == 0) governor_.observe(static_cast<double>(took) / expected);
    if (!after_call(rc, parts)) return false;
    planner_.observe(decoding, prefill, took);
    note_costs();
    prompt_computed_.fetch_add(static_cast<std::uint64_t>(prefill - drafted),
                               std::memory_order_relaxed);
    sample_parts(parts, took);
    return true;
}

void LlamaEngine::fill_batch(std::span<InStep> parts) {
    batch_.clear();
    for (InStep& part : parts) {
        Sequence& sequence = *part.sequence;
        sequence.pay();
        const std::int32_t pending = part.tokens - part.drafted;
        const bool samples = part.row >= 0 && sequence.output_limit() > 0;
        if (part.row >= 0) part.row = samples ? batch_.size() + pending - 1 : kNothingToSample;
        for (std::int32_t i = 0; i < pending; ++i) {
            const std::int32_t position = sequence.computed + i;
            batch_.add(sequence.tokens[static_cast<std::size_t>(position)], position, sequence.id,
                       samples && i + 1 == pending);
        }
        for (std::int32_t i = 0; samples && i < part.drafted; ++i)
            batch_.add(sequence.draft.tokens[static_cast<std::size_t>(i)],
                       sequence.computed + pending + i, sequence.id, true);
    }
}

// Asked by the compute threads between the operations of a step. The step is worth ending early
// when most of it is for nobody; else its end is near enough.
bool LlamaEngine::abort_step(void* self) {
    auto* engine = static_cast<LlamaEngine*>(self);
    if (engine->stopping_.load(std::memory_order_acquire)) return true;
    if (!engine->look_.load(std::memory_order_acquire)) return false;
    std::int32_t total = 0, dead = 0;
    for (const InStep& part : engine->in_call_) {
        total += part.tokens;
        if (part.sequence->stream->cancelled() != CancelReason::kNone) dead += part.tokens;
    }
    return dead * 2 > total;
}

// True: the call's results are there.
bool LlamaEngine::after_call(std::int32_t rc, std::span<InStep> parts) {
    if (rc == 0) {
        kv_.after_decode();
        for (const InStep& part : parts) {
            Sequence& s = *part.sequence;
            s.held = s.computed + part.tokens;
            s.computed += part.tokens - part.drafted;
            kv_.computed(s);
        }
        return true;
    }
    if (rc == 1 && running_.size() > 1) {
        // Cannot happen while the bookkeeping is right; the state is as before the step.
        log_warn(kOrigin, "no KV slot for a step of {} tokens", batch_.size());
        std::size_t youngest = running_.size();
        for (std::size_t i = 0; i < running_.size(); ++i)
            if (!running_[i]->beside && !running_[i]->last &&
                (youngest == running_.size() || running_[i]->order > running_[youngest]->order))
                youngest = i;
        if (youngest < running_.size()) pause(youngest, "KV is short");
    } else if (rc == 2) {
        repair_after_abort(parts);
    } else {
        // Their KV goes with them: what a failed call left there is not to be built on.
        log_error(kOrigin, "llama_decode failed ({}): {} requests end", rc, parts.size());
        for (const InStep& part : parts) {
            kv_.distrust(*part.sequence);
            fail_sequence(*part.sequence,
                          make_error(Code::kInternal, "the model failed to compute"));
        }
    }
    return false;
}

// What was computed before the abort stays in the cache, but its logits are lost: a sequence whose
// last token went through computes that one again. Where nothing can be cut, nobody knows what the
// model holds: such a sequence begins anew.
void LlamaEngine::repair_after_abort(std::span<InStep> parts) {
    kv_.after_decode();
    for (const InStep& part : parts) {
        Sequence& sequence = *part.sequence;
        sequence.held = kv_.held(sequence);
        std::int32_t good =
            std::min(sequence.held, static_cast<std::int32_t>(sequence.tokens.size()) - 1);
        const bool cuts =
            model_->partial_removal || (model_->tail_removal && sequence.held == good);
        if (cuts && good >= sequence.computed) {
            sequence.computed = good;
            if (sequence.held > good) kv_.cut(sequence, good);
            sequence.held = good;
            kv_.computed(sequence);
        } else {
            // It cannot be cut to where it was: from the beginning.
            free_kv(sequence, model_->partial_removal);
            const auto at = std::ranges::find(running_, &sequence, &SequencePtr::get);
            pause(static_cast<std::size_t>(at - running_.begin()), "its step was ended early");
        }
    }
}

// --- sampling -----------------------------------------------------------------------------------

std::int32_t LlamaEngine::sample_one(Sequence& sequence, float* logits) {
    if (logits == nullptr) return -1;
    const auto vocab = static_cast<std::size_t>(llama_vocab_n_tokens(model_->vocab));
    if (!are_numbers({logits, vocab})) return -1;
    for (const llama_token token : suppressed_)
        logits[token] = -std::numeric_limits<float>::infinity();
    return sequence.sampler.sample({logits, vocab}, sequence.tokens);
}

// The tokens after this call: one, and one more for each draft token that is what was sampled. Each
// is drawn from the model's own distribution, so drafts do not change it.
void LlamaEngine::sample_part(InStep& part) {
    Sequence& sequence = *part.sequence;
    const std::size_t before = sequence.tokens.size();
    for (std::int32_t i = 0; i <= part.drafted; ++i) {
        const std::int32_t token =
            sample_one(sequence, llama_get_logits_ith(context_.get(), part.row + i));
        part.sampled.push_back(token);
        if (i == part.drafted || token != sequence.draft.tokens[static_cast<std::size_t>(i)]) break;
        ++part.accepted;
        sequence.tokens.push_back(token);  // the sampler's penalties look at it
    }
    sequence.tokens.resize(before);
}

// All rows are sampled before anything is told or freed: logits stay valid only until the next
// change of the context, and an observer sees the step before what follows from it.
void LlamaEngine::sample_parts(std::span<InStep> parts, std::int64_t took_ns) {
    for (InStep& part : parts)
        if (part.row >= 0) sample_part(part);
    if (options_.on_step) record(parts);
    if (drafts_ != nullptr) {
        const std::span<Drafted> call = std::span(drafted_).subspan(
            static_cast<std::size_t>(parts.data() - step_.data()), parts.size());
        for (std::size_t i = 0; i < parts.size(); ++i)
            call[i].accepted = static_cast<std::uint32_t>(parts[i].accepted);
        drafts_->settle(call, took_ns);
    }
    const MonoNs now = mono_now();
    for (InStep& part : parts)
        if (part.row != kNotComplete) tell(part, now);
}

void LlamaEngine::tell(InStep& part, MonoNs now) {
    Sequence& sequence = *part.sequence;
    // Cells of refused drafts go first: what follows may end the sequence and keep its KV.
    const std::int32_t keep = sequence.computed + part.accepted;
    if (sequence.held > keep) kv_.cut(sequence, keep);
    sequence.held = keep;
    prefill_done(sequence, now);
    if (part.row == kNothingToSample) return finish(sequence, StopReason::kMaxTokens);
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(part.sampled.size()); ++i) {
        const std::int32_t token = part.sampled[static_cast<std::size_t>(i)];
        if (token < 0)
            return fail_sequence(sequence,
                                 make_error(Code::kInternal, "the model's output is not a number"));
        if (sequence.first_token_ns == 0) sequence.first_token_ns = now;
        if (llama_vocab_is_eog(model_->vocab, token)) return finish(sequence, StopReason::kEndTurn);
        const bool ended = take_token(sequence, token);
        if (ended) return;
        if (i < part.accepted) {
            ++sequence.computed;
            kv_.computed(sequence);
        }
    }
}

void LlamaEngine::record(std::span<const InStep> parts) {
    const llama_batch& batch = batch_.get();
    record_.clear();
    for (std::int32_t i = 0; i < batch.n_tokens; ++i)
        record_.push_back({batch.token[i], batch.pos[i], batch.seq_id[i][0], batch.logits[i] != 0});
    for (const InStep& part : parts)
        for (std::size_t i = 0; i < part.sampled.size(); ++i)
            record_[static_cast<std::size_t>(part.row) + i].sampled = part.sampled[i];
    options_.on_step({.tokens = record_});
}

}  // namespace zerohop::engine
