// SpecialTokens: where the control tokens of a vocabulary stand in a text.
//
// Finds, left to right, the longest control token at each place, as llama_tokenize(parse_special)
// does (which goes by length first; the two differ only where control tokens overlap each other).
// User-defined tokens are left to llama_tokenize: it takes them from any text.
// Cost: linear in the text; per place no more than how far it looks like some control token.
// Immutable; any thread; nothing fails.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

struct llama_vocab;

namespace zerohop::engine {

struct SpecialMatch {
    std::size_t begin = 0, end = 0;  // bytes; white space the token strips is included
    std::int32_t token = -1;
};

class SpecialTokens {
  public:
    struct Entry {
        std::string text;
        std::int32_t token;
    };

    explicit SpecialTokens(const llama_vocab* vocab);
    explicit SpecialTokens(std::vector<Entry> entries);  // that strip nothing

    // The next match that begins at or after `from` and lies within text.
    bool find(std::string_view text, std::size_t from, SpecialMatch& out) const;
    bool contains_any(std::string_view text) const {
        SpecialMatch match;
        return find(text, 0, match);
    }
    bool strips_left(std::int32_t token) const;
    bool strips_right(std::int32_t token) const;

  private:
    const Entry* longest_at(std::string_view rest) const;

    std::vector<Entry> entries_;               // by text, then token
    std::array<std::size_t, 257> by_first_{};  // entries_ that begin with byte b: [b] … [b + 1]
    const llama_vocab* vocab_ = nullptr;
};

}  // namespace zerohop::engine
