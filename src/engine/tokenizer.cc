#include "engine/tokenizer.h"

#include <llama.h>
#include <xxhash.h>

#include <algorithm>
#include <cctype>
#include <string>

#include "base/log.h"

namespace zerohop::engine {
namespace {

bool is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

std::vector<std::int32_t> plain(const llama_vocab* vocab, std::string_view text) {
    std::vector<std::int32_t> out(text.size() + 8);
    const auto capacity = static_cast<std::int32_t>(out.size());
    const auto length = static_cast<std::int32_t>(text.size());
    std::int32_t n = llama_tokenize(vocab, text.data(), length, out.data(), capacity, false, false);
    if (n < 0 && n != INT32_MIN) {
        out.resize(static_cast<std::size_t>(-n));
        n = llama_tokenize(vocab, text.data(), length, out.data(), -n, false, false);
    }
    out.resize(static_cast<std::size_t>(std::max(n, 0)));
    return out;
}

std::string piece_of(const llama_vocab* vocab, llama_token token) {
    std::string text(64, '\0');
    std::int32_t n = llama_token_to_piece(vocab, token, text.data(), 64, 0, true);
    if (n < 0) {
        text.resize(static_cast<std::size_t>(-n));
        n = llama_token_to_piece(vocab, token, text.data(), -n, 0, true);
    }
    text.resize(static_cast<std::size_t>(std::max(n, 0)));
    return text;
}

}  // namespace

Tokenizer::Tokenizer(const llama_vocab* vocab) : vocab_(vocab), specials_(vocab) {
    const std::int32_t count = llama_vocab_n_tokens(vocab);
    for (std::int32_t id = 0; id < count; ++id) {
        if ((llama_vocab_get_attr(vocab, id) & LLAMA_TOKEN_ATTR_CONTROL) != 0) continue;
        const std::string text = piece_of(vocab, id);
        longest_ = std::max(longest_, text.size());
        for (std::size_t i = 1; words_end_at_spaces_ && i + 1 < text.size(); ++i)
            if (text[i] == ' ' && is_word(text[i - 1]) && is_word(text[i + 1]))
                words_end_at_spaces_ = false;
    }
    const std::vector<std::int32_t> one = plain(vocab, "a");
    adds_space_ = !one.empty() && piece_of(vocab, one.front()).starts_with(' ');
    newline_ = plain(vocab, "\n");
    if (!words_end_at_spaces_) log_debug("engine", "the vocabulary has tokens of several words");
}

std::vector<std::int32_t> Tokenizer::encode(const Prompt& prompt, const StopFlag& stop,
                                            Seen* seen) const {
    std::vector<std::int32_t> out;
    if (llama_vocab_get_add_bos(vocab_) && llama_vocab_bos(vocab_) != LLAMA_TOKEN_NULL)
        out.push_back(llama_vocab_bos(vocab_));
    std::string text;    // plain text since the last control token; may mix template and input
    bool strip = false;  // the last control token strips white space at its right
    const auto add = [&](std::string_view more) {
        if (strip) {
            while (!more.empty() && std::isspace(static_cast<unsigned char>(more.front())) != 0)
                more.remove_prefix(1);
            strip = more.empty();
        }
        text += more;
    };
    for (const PromptSpan& span : prompt) {
        std::size_t at = 0;
        SpecialMatch match;
        while (!span.input && specials_.find(span.text, at, match)) {
            add(std::string_view(span.text).substr(at, match.begin - at));
            if (specials_.strips_left(match.token))
                while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0)
                    text.pop_back();
            encode_plain(text, stop, seen, out);
            text.clear();
            out.push_back(match.token);
            strip = specials_.strips_right(match.token);
            at = match.end;
        }
        add(std::string_view(span.text).substr(at));
    }
    encode_plain(text, stop, seen, out);
    return out;
}

void Tokenizer::encode_plain(std::string_view text, const StopFlag& stop, Seen* seen,
                             std::vector<std::int32_t>& out) const {
    bool continues = false;
    while (!text.empty() && !stopped(stop)) {
        const std::size_t length = cut(text);
        const std::string_view piece = text.substr(0, length);
        if (seen == nullptr) {
            const std::vector<std::int32_t> tokens = encode_piece(piece, continues);
            out.insert(out.end(), tokens.begin(), tokens.end());
        } else {
            const XXH128_hash_t hash =
                XXH3_128bits_withSeed(piece.data(), piece.size(), continues ? 1 : 0);
            const auto [known, fresh] = seen->pieces.try_emplace({hash.low64, hash.high64});
            if (fresh) known->second = encode_piece(piece, continues);
            out.insert(out.end(), known->second.begin(), known->second.end());
        }
        text.remove_prefix(length);
        continues = true;
    }
}

// Length of the next piece.
std::size_t Tokenizer::cut(std::string_view text) const {
    if (text.size() <= kPiece) return text.size();
    for (std::size_t at = kPiece; words_end_at_spaces_ && at > kPiece / 2; --at)
        if (text[at] == ' ' && is_word(text[at - 1]) && is_word(text[at + 1])) return at;
    std::size_t at = kPiece;
    while (at > kPiece - 4 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
    return at;
}

std::vector<std::int32_t> Tokenizer::encode_piece(std::string_view text, bool continues) const {
    if (!continues || !adds_space_) return plain(vocab_, text);
    // The tokenizer puts its space there itself.
    if (text.front() == ' ') return plain(vocab_, text.substr(1));
    // In the middle of a run that space must not appear: give it a newline to hold on to.
    std::vector<std::int32_t> tokens = plain(vocab_, std::string("\n").append(text));
    if (tokens.size() < newline_.size() ||
        !std::equal(newline_.begin(), newline_.end(), tokens.begin()))
        return plain(vocab_, text);
    tokens.erase(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(newline_.size()));
    return tokens;
}

}  // namespace zerohop::engine
