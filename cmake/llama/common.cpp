// What chat templates and our tests need of llama-common's common.cpp, by llama.h alone: that file
// itself would bring command lines, downloads, an HTTP server and speculative decoding along, a
// minute of compiling that is never run.
#include "common.h"

#include <stdexcept>

#include "llama.h"

// Each of llama.h's functions answers a buffer that is too small with minus the size it needs.
namespace {

std::int32_t size_of(const std::string& text) { return static_cast<std::int32_t>(text.size()); }

}  // namespace

std::vector<llama_token> common_tokenize(const llama_vocab* vocab, const std::string& text,
                                         bool add_special, bool parse_special) {
    std::vector<llama_token> tokens(text.size() + 2);
    const auto run = [&] {
        return llama_tokenize(vocab, text.data(), size_of(text), tokens.data(),
                              static_cast<std::int32_t>(tokens.size()), add_special, parse_special);
    };
    std::int32_t count = run();
    if (count == INT32_MIN) throw std::length_error("the text has too many tokens");
    if (count < 0) {
        tokens.resize(static_cast<std::size_t>(-count));
        count = run();
    }
    tokens.resize(static_cast<std::size_t>(count));
    return tokens;
}

std::string common_token_to_piece(const llama_vocab* vocab, llama_token token, bool special) {
    std::string piece(32, '\0');
    const auto run = [&] {
        return llama_token_to_piece(vocab, token, piece.data(), size_of(piece), 0, special);
    };
    std::int32_t size = run();
    if (size < 0) {
        piece.resize(static_cast<std::size_t>(-size));
        size = run();
    }
    piece.resize(static_cast<std::size_t>(size));
    return piece;
}

std::string common_detokenize(const llama_vocab* vocab, const std::vector<llama_token>& tokens,
                              bool special) {
    std::string text(tokens.size() * 4 + 16, '\0');
    const auto run = [&] {
        return llama_detokenize(vocab, tokens.data(), static_cast<std::int32_t>(tokens.size()),
                                text.data(), size_of(text), false, special);
    };
    std::int32_t size = run();
    if (size < 0) {
        text.resize(static_cast<std::size_t>(-size));
        size = run();
    }
    text.resize(static_cast<std::size_t>(size));
    return text;
}

bool tty_can_use_colors() { return false; }  // its log is turned off
