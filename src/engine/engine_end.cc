// From tokens to text and from text to streams; how sequences end.
#include <algorithm>
#include <utility>

#include "engine/llama_engine_impl.h"

namespace zerohop::engine {

// True: that was the last one.
bool LlamaEngine::take_token(Sequence& sequence, std::int32_t token) {
    sequence.tokens.push_back(token);
    kv_.sampled(sequence, token);
    if (sequence.drafts != nullptr) sequence.drafts->accept(token);
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
    if (sequence.output.matched() != OutputText::kNoMatch)
        finish(sequence, StopReason::kStopSequence);
    else if (sequence.sampled() >= sequence.output_limit())
        finish(sequence, StopReason::kMaxTokens);
    else if (static_cast<std::int32_t>(sequence.tokens.size()) >= info_.context_tokens)
        finish(sequence, StopReason::kContextWindow);
    else
        return false;
    return true;
}

// Its prompt is in the cache: what is to be kept of it is pinned.
void LlamaEngine::prefill_done(Sequence& sequence, MonoNs now) {
    if (sequence.prefill_done_ns != 0) return;
    sequence.prefill_done_ns = now;
    for (const CacheMark& mark : sequence.marks) {
        const MonoNs until = now + mark.ttl_ns;
        kv_.pin(sequence, mark.tokens, until);
        sequence.pinned_until = std::max(sequence.pinned_until, until);
    }
}

void LlamaEngine::send(Sequence& sequence, std::string&& text) {
    if (text.empty()) return;
    Event event = Text{std::move(text), sequence.sampled(), sequence.admitted_ns,
                       sequence.prefill_done_ns, usage_of(sequence)};
    if (!sequence.starved() && sequence.stream->try_push(std::move(event))) {
        if (sequence.lag.starved()) sequence.lag.feed(mono_now());
        return;
    }
    if (!sequence.lag.starved()) sequence.lag.starve(mono_now());
    sequence.unsent += std::get<Text>(event).delta;
}

Usage LlamaEngine::usage_of(const Sequence& sequence) const {
    Usage usage{.input_tokens = sequence.prompt,
                .cache_read_tokens = std::clamp(sequence.read, 0, sequence.prompt),
                .output_tokens = sequence.sampled()};
    if (!info_.can_share_prefix) return usage;
    constexpr MonoNs kHour = 3600 * kNsPerSec;
    std::int32_t kept = usage.cache_read_tokens;
    for (const CacheMark& mark : sequence.marks) {
        if (mark.tokens <= kept) continue;
        (mark.ttl_ns >= kHour ? usage.cache_write_1h_tokens : usage.cache_write_5m_tokens) +=
            mark.tokens - kept;
        kept = mark.tokens;
    }
    return usage;
}

void LlamaEngine::finish(Sequence& sequence, StopReason reason) {
    free_kv(sequence, true);
    if (sequence.sampled() > 0 && !sequence.forget) {
        if (drafts_ != nullptr) drafts_->learn(sequence);
        plans_.learn(sequence.structure_keys<kv::PlanKey>(),
                     static_cast<std::uint32_t>(sequence.sampled()));
    }
    std::string rest;
    sequence.output.flush(rest);
    send(sequence, std::move(rest));
    Done done;
    done.reason = reason;
    if (const std::int32_t matched = sequence.output.matched(); matched != OutputText::kNoMatch)
        done.stop_sequence = sequence.request->stop_sequences[static_cast<std::size_t>(matched)];
    done.usage = usage_of(sequence);
    done.cached_until_ns = sequence.pinned_until;
    done.admitted_ns = sequence.admitted_ns;
    done.prefill_done_ns = sequence.prefill_done_ns;
    done.first_token_ns = sequence.first_token_ns;
    done.done_ns = mono_now();
    sequence.last = std::move(done);
}

void LlamaEngine::fail_sequence(Sequence& sequence, Error error) {
    free_kv(sequence, false);
    sequence.unsent.clear();
    sequence.last = Failed{std::move(error)};
}

// Moves what finished out of running_: gone when its last event was taken, else to ending_. Who
// gets the last event finds the statistics without that request.
void LlamaEngine::reap() {
    publish();
    const MonoNs now = mono_now();
    for (SequencePtr& sequence : running_) {
        if (!sequence->last) continue;
        if (std::holds_alternative<Done>(*sequence->last))
            waiting_.note_end(sequence->request->lane, sequence->request->principal.workspace, now);
        if (sequence->starved() || !sequence->stream->try_push(std::move(*sequence->last)))
            ending_.push_back(std::move(sequence));
        else
            sequence.reset();
    }
    std::erase(running_, nullptr);
}

void LlamaEngine::free_kv(Sequence& sequence, bool keep) {
    if (sequence.beside) {
        side_->end();
        sequence.beside = false;
    }
    if (sequence.id < 0) return;
    if (sequence.held > sequence.computed) keep = kv_.cut(sequence, sequence.computed) && keep;
    kv_.release(sequence, keep && !sequence.forget);
    sequence.held = 0;
}

}  // namespace zerohop::engine
