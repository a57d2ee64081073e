#include "engine/special_tokens.h"

#include <llama.h>

#include <algorithm>
#include <tuple>
#include <utility>

namespace zerohop::engine {
namespace {

std::vector<SpecialTokens::Entry> entries_of(const llama_vocab* vocab) {
    std::vector<SpecialTokens::Entry> out;
    const std::int32_t count = llama_vocab_n_tokens(vocab);
    for (std::int32_t id = 0; id < count; ++id) {
        const int attr = llama_vocab_get_attr(vocab, id);
        if ((attr & (LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_UNKNOWN)) == 0) continue;
        const std::string text = llama_vocab_get_text(vocab, id);
        if (!text.empty()) out.push_back({text, id});
    }
    return out;
}

}  // namespace

SpecialTokens::SpecialTokens(const llama_vocab* vocab) : SpecialTokens(entries_of(vocab)) {
    vocab_ = vocab;
}

SpecialTokens::SpecialTokens(std::vector<Entry> entries) : entries_(std::move(entries)) {
    std::ranges::sort(entries_, [](const Entry& a, const Entry& b) {
        return std::tie(a.text, a.token) < std::tie(b.text, b.token);
    });
    for (const Entry& entry : entries_) ++by_first_[static_cast<unsigned char>(entry.text[0]) + 1U];
    for (std::size_t i = 1; i < by_first_.size(); ++i) by_first_[i] += by_first_[i - 1];
}

// Narrows the entries byte by byte; among those that agree so far the shortest stands first.
const SpecialTokens::Entry* SpecialTokens::longest_at(std::string_view rest) const {
    const auto first = static_cast<unsigned char>(rest[0]);
    auto low = entries_.begin() + static_cast<std::ptrdiff_t>(by_first_[first]);
    auto high = entries_.begin() + static_cast<std::ptrdiff_t>(by_first_[first + 1U]);
    const Entry* longest = nullptr;
    for (std::size_t depth = 1; low != high; ++depth) {
        if (low->text.size() == depth) longest = &*low;
        if (depth == rest.size()) break;
        const auto byte_at = [depth](const Entry& entry) -> int {  // -1: it ended before
            return depth < entry.text.size() ? static_cast<unsigned char>(entry.text[depth]) : -1;
        };
        const int next = static_cast<unsigned char>(rest[depth]);
        const auto [from, to] = std::ranges::equal_range(low, high, next, {}, byte_at);
        low = from;
        high = to;
    }
    return longest;
}

bool SpecialTokens::find(std::string_view text, std::size_t from, SpecialMatch& out) const {
    for (std::size_t at = from; at < text.size(); ++at) {
        const auto first = static_cast<unsigned char>(text[at]);
        if (by_first_[first] == by_first_[first + 1U]) continue;
        const Entry* const entry = longest_at(text.substr(at));
        if (entry == nullptr) continue;
        out = {.begin = at, .end = at + entry->text.size(), .token = entry->token};
        return true;
    }
    return false;
}

bool SpecialTokens::strips_left(std::int32_t token) const {
    return (llama_vocab_get_attr(vocab_, token) & LLAMA_TOKEN_ATTR_LSTRIP) != 0;
}
bool SpecialTokens::strips_right(std::int32_t token) const {
    return (llama_vocab_get_attr(vocab_, token) & LLAMA_TOKEN_ATTR_RSTRIP) != 0;
}

}  // namespace zerohop::engine
