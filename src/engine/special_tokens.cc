#include "engine/special_tokens.h"

#include <llama.h>

#include <algorithm>

namespace zerohop::engine {

SpecialTokens::SpecialTokens(const llama_vocab* vocab) : vocab_(vocab) {
    const std::int32_t count = llama_vocab_n_tokens(vocab);
    for (std::int32_t id = 0; id < count; ++id) {
        const int attr = llama_vocab_get_attr(vocab, id);
        if ((attr & (LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_UNKNOWN)) == 0) continue;
        const std::string text = llama_vocab_get_text(vocab, id);
        if (text.empty()) continue;
        by_first_[static_cast<unsigned char>(text[0])].push_back({text, id});
    }
    for (std::size_t i = 0; i < by_first_.size(); ++i) {
        begins_[i] = !by_first_[i].empty();
        std::sort(by_first_[i].begin(), by_first_[i].end(), [](const Entry& a, const Entry& b) {
            return a.text.size() != b.text.size() ? a.text.size() > b.text.size()
                                                  : a.token < b.token;
        });
    }
}

bool SpecialTokens::find(std::string_view text, std::size_t from, SpecialMatch& out) const {
    for (std::size_t at = from; at < text.size(); ++at) {
        const auto first = static_cast<unsigned char>(text[at]);
        if (!begins_[first]) continue;
        const std::string_view rest = text.substr(at);
        for (const Entry& entry : by_first_[first]) {
            if (!rest.starts_with(entry.text)) continue;
            out = {.begin = at, .end = at + entry.text.size(), .token = entry.token};
            return true;
        }
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
