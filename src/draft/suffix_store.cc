#include "draft/suffix_store.h"

#include <algorithm>

namespace zerohop::draft {

namespace {

constexpr float kLuckRate = 0.3F;  // weight of the newest output's

}  // namespace

SuffixStore::Corpus* SuffixStore::find(const DraftKey& key) {
    const auto it = corpora_.find(key);
    if (it == corpora_.end()) return nullptr;
    order_.splice(order_.begin(), order_, it->second);
    return &*it->second;
}

SuffixStore::Corpus& SuffixStore::create(const DraftKey& key) {
    Corpus& corpus = order_.emplace_front();
    corpus.key = key;
    corpus.generation = next_generation_++;
    corpora_.emplace(key, order_.begin());
    return corpus;
}

void SuffixStore::add(Corpus& corpus, std::span<const Token> prompt,
                      std::span<const Token> output) {
    if (corpus.now.tokens() + prompt.size() + output.size() > config_.corpus_tokens / 2 &&
        corpus.now.tokens() > 0) {
        corpus.before = std::move(corpus.now);
        corpus.now = SuffixAutomaton();
        corpus.generation = next_generation_++;
    }
    corpus.now.begin_text();
    for (const Token t : prompt) corpus.now.add(t);
    for (const Token t : output) corpus.now.add(t);
    bytes_ -= corpus.bytes;
    corpus.bytes = sizeof(Corpus) + 64 + corpus.now.bytes() + corpus.before.bytes();
    bytes_ += corpus.bytes;
}

void SuffixStore::shrink() {
    while (bytes_ > config_.max_bytes && !order_.empty()) {
        bytes_ -= order_.back().bytes;
        corpora_.erase(order_.back().key);
        order_.pop_back();
    }
}

void SuffixStore::forget(std::uint64_t owner) {
    std::erase_if(order_, [&](const Corpus& corpus) {
        if (corpus.key.ns.owner != owner) return false;
        bytes_ -= corpus.bytes;
        corpora_.erase(corpus.key);
        return true;
    });
}

void SuffixStore::learn(std::span<const DraftKey> chain, std::span<const Token> prompt,
                        std::span<const Token> output, const Luck& luck) {
    if (output.empty()) return;
    prompt = prompt.last(std::min(prompt.size(), kContext));
    const std::uint32_t most =
        std::max(1U, std::min(config_.output_tokens, config_.corpus_tokens / 2));
    output = output.first(std::min<std::size_t>(output.size(), most));
    for (std::size_t i = 0; i < std::min(chain.size(), kChain); ++i) {
        const DraftKey& key = chain[i];
        if ((key.lo | key.hi) == 0 || std::ranges::count(chain.first(i), key) > 0) continue;
        Corpus* known = find(key);
        Corpus& corpus = known != nullptr ? *known : create(key);
        corpus.luck += kLuckRate * (luck.factor() - corpus.luck);
        add(corpus, prompt, output);
    }
    shrink();
}

DraftSession::DraftSession(SuffixStore& store, std::span<const DraftKey> chain,
                           std::span<const Token> prompt)
    : store_(&store) {
    for (std::size_t i = 0; i < std::min(chain.size(), kChain); ++i) {
        if ((chain[i].lo | chain[i].hi) == 0 || std::ranges::count(chain.first(i), chain[i]) > 0)
            continue;
        const auto known = store.corpora_.find(chain[i]);
        if (source_count_ == 0 && known != store.corpora_.end())
            luck.accepted = luck.expected * known->second->luck;
        sources_[source_count_++].key = chain[i];
    }
    const std::size_t keep = std::min<std::size_t>(prompt.size(), store.config_.own_tokens);
    for (const Token t : prompt.last(keep)) own_.add(t);
    recent_.assign(prompt.end() - static_cast<std::ptrdiff_t>(keep), prompt.end());
}

// After a turn of the corpus, or at first: the last tokens are read again.
void DraftSession::sync(Source& source, SuffixStore::Corpus* corpus) {
    if (corpus == nullptr || corpus->generation == source.generation) return;
    source.generation = corpus->generation;
    source.now = source.before = {};
    for (const Token t : std::span(recent_).last(std::min(recent_.size(), kContext))) {
        corpus->now.read(source.now, t);
        corpus->before.read(source.before, t);
    }
}

void DraftSession::accept(Token token) {
    for (std::size_t i = 0; i < source_count_; ++i) {
        Source& s = sources_[i];
        const auto it = store_->corpora_.find(s.key);
        if (it == store_->corpora_.end()) continue;
        SuffixStore::Corpus& corpus = *it->second;
        sync(s, &corpus);
        corpus.now.read(s.now, token);
        corpus.before.read(s.before, token);
    }
    own_.add(token);
    recent_.push_back(token);
    const std::size_t most = std::max<std::size_t>(store_->config_.own_tokens, 2 * kContext);
    if (recent_.size() < 2 * most) return;
    recent_.erase(recent_.begin(), recent_.end() - static_cast<std::ptrdiff_t>(most));
    own_.clear();
    for (const Token t : recent_) own_.add(t);
}

void DraftSession::consider(const SuffixAutomaton& automaton, Cursor& cursor, std::uint8_t source,
                            const DraftController& controller, Best& best) {
    if (cursor.length == 0) return;
    Cursor at = cursor;
    const Next next = automaton.likeliest(at);
    if (next.state == kRoot || next.count == 0) return;
    const double chance = controller.chance(evidence_of(source, at.length, next.count, next.total));
    if (chance < best.chance || (chance == best.chance && at.length <= best.cursor.length)) return;
    best = {.automaton = &automaton, .cursor = at, .source = source, .chance = chance};
}

void DraftSession::follow(const Best& best, std::uint32_t limit, Draft& out) const {
    Cursor at = best.cursor;
    while (out.tokens.size() < limit) {
        const Next next = best.automaton->likeliest(at);
        if (next.state == kRoot || next.count == 0) return;
        out.tokens.push_back(next.token);
        out.evidence.push_back(evidence_of(best.source, at.length, next.count, next.total));
        at = {.state = next.state, .length = at.length + 1};
    }
}

void DraftSession::propose(std::uint32_t limit, const DraftController& controller, Draft& out) {
    out.clear();
    Best best;
    for (std::size_t i = 0; i < source_count_; ++i) {
        Source& s = sources_[i];
        SuffixStore::Corpus* corpus = store_->find(s.key);
        if (corpus == nullptr) continue;
        sync(s, corpus);
        const auto source = static_cast<std::uint8_t>(i + 1);
        consider(corpus->now, s.now, source, controller, best);
        consider(corpus->before, s.before, source, controller, best);
    }
    Cursor own = own_.repeated();
    consider(own_, own, 0, controller, best);
    if (best.automaton != nullptr) follow(best, std::min(limit, kMaxDraft), out);
}

}  // namespace zerohop::draft
