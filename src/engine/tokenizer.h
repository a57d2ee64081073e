// Tokenizer: a rendered prompt to token ids, with control tokens only from the template's own text,
// at bounded cost for any text.
//
// Control tokens are found here (special_tokens.h) in template spans; what lies between them is
// tokenized as plain text. For harmless content the result is that of llama_tokenize(add_special,
// parse_special) on the whole prompt.
//
// Bounds. llama.cpp's regex pre-tokenizers recurse once per character of an unbroken run (30 KB of
// one character overflow 8 MiB of stack in the aquila, deepseek, falcon and neox vocabularies), and
// its merge loops are worse than linear (300 KB of newlines: 7.7 s in llama-spm). So text is given
// to it in pieces of at most kPiece bytes:
//   - cut before a space that stands between two ASCII letters or digits: every pre-tokenizer
//   starts
//     a new word there, and no vocabulary token reaches across (checked when the model is loaded;
//     one that has such tokens is never cut there). The tokens are those of the uncut text.
//   - where kPiece bytes have no such place (a run of one character, base64, CJK text without
//     spaces), at a code point boundary. The tokens next to the cut may differ from the uncut
//     text's.
// Measured over llama.cpp's models/*.gguf (tokenizer_test): no crash in a sixteenth of kStackBytes,
// and time linear in the text.
//
// Immutable once made; encode() from any thread with at least kStackBytes of stack.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/stop_flag.h"
#include "engine/prompt.h"
#include "engine/special_tokens.h"

struct llama_vocab;

namespace zerohop::engine {

class Tokenizer {
  public:
    static constexpr std::size_t kPiece = 4096;            // bytes
    static constexpr std::size_t kStackBytes = 64U << 20;  // what pool threads get: ample

    explicit Tokenizer(const llama_vocab* vocab);

    // Pieces that were encoded before, by their hash: prompts that begin alike cost once. Of one
    // request: who makes two pieces collide spoils only what of that is cached.
    struct Seen {
        struct Hash {
            std::size_t operator()(const std::array<std::uint64_t, 2>& h) const { return h[0]; }
        };
        std::unordered_map<std::array<std::uint64_t, 2>, std::vector<std::int32_t>, Hash> pieces;
    };

    // Looks at `stop` at each piece; then the result is only a part. seen: may be null.
    std::vector<std::int32_t> encode(const Prompt& prompt, const StopFlag& stop = {},
                                     Seen* seen = nullptr) const;

    // Bytes of the longest token: text of n bytes has at least n / longest tokens.
    std::size_t longest_token() const { return longest_; }

  private:
    void encode_plain(std::string_view text, const StopFlag& stop, Seen* seen,
                      std::vector<std::int32_t>& out) const;
    std::vector<std::int32_t> encode_piece(std::string_view text, bool continues) const;
    std::size_t cut(std::string_view text) const;

    const llama_vocab* vocab_;
    SpecialTokens specials_;
    std::size_t longest_ = 1;
    bool words_end_at_spaces_ = true;    // no token has a space between letters
    bool adds_space_ = false;            // llama_tokenize puts a space before plain text
    std::vector<std::int32_t> newline_;  // tokens of "\n" alone, that space included
};

}  // namespace zerohop::engine
