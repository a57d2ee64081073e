#include "engine/drafts.h"

#include <algorithm>

namespace zerohop::engine {

void Drafts::open(Sequence& sequence) {
    if (sequence.drafts != nullptr) return;  // it was paused
    sequence.drafts = std::make_unique<draft::DraftSession>(
        store_, sequence.structure_keys<draft::DraftKey>(), sequence.tokens);
}

Drafts::Rows Drafts::rows_of(std::span<const Drafted> call) {
    Rows rows;
    for (const Drafted& d : call) {
        rows.plain += d.samples ? 1 : 0;
        rows.other += d.rows - (d.samples ? 1 : 0);
    }
    return rows;
}

void Drafts::propose(std::span<Drafted> call) {
    wishes_.clear();
    for (Drafted& d : call) {
        d.tokens = d.accepted = 0;
        d.sequence->draft.clear();
        if (d.sequence->drafts == nullptr || d.room == 0) continue;
        d.sequence->drafts->propose(std::min(d.room, draft::kMaxDraft), controller_,
                                    d.sequence->draft);
        if (!d.sequence->draft.tokens.empty())
            wishes_.push_back({.draft = &d.sequence->draft, .luck = &d.sequence->drafts->luck});
    }
    if (wishes_.empty()) return;
    const Rows rows = rows_of(call);
    controller_.allocate(wishes_, rows.plain, rows.other);
    if (always_)
        for (auto& wish : wishes_)
            wish.allowed = static_cast<std::uint32_t>(wish.draft->tokens.size());
    std::uint32_t left = kMostRows;
    auto wish = wishes_.begin();
    for (Drafted& d : call) {
        if (wish == wishes_.end() || wish->draft != &d.sequence->draft) continue;
        d.tokens = std::min(wish->allowed, left);
        left -= d.tokens;
        ++wish;
    }
}

void Drafts::settle(std::span<const Drafted> call, std::int64_t took_ns) {
    const Rows rows = rows_of(call);
    if (rows.plain == 0) return;  // a piece of a prompt: what it costs depends on where it lies
    std::uint32_t drafted = 0, accepted = 0;
    for (const Drafted& d : call) {
        if (d.tokens == 0) continue;
        drafted += d.tokens;
        accepted += d.accepted;
        controller_.accepted(d.sequence->draft, d.tokens, d.accepted, d.sequence->drafts->luck);
    }
    controller_.step_done(rows.plain, rows.other, drafted, accepted, static_cast<double>(took_ns));
}

void Drafts::learn(const Sequence& sequence) {
    const auto prompt = static_cast<std::size_t>(sequence.prompt);
    const std::span<const std::int32_t> tokens = sequence.tokens;
    store_.learn(sequence.structure_keys<draft::DraftKey>(), tokens.first(prompt),
                 tokens.subspan(prompt),
                 sequence.drafts == nullptr ? draft::Luck() : sequence.drafts->luck);
}

}  // namespace zerohop::engine
