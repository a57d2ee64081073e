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

std::string string_join(const std::vector<std::string>& values, const std::string& separator) {
    std::string out;
    for (std::size_t i = 0; i < values.size(); ++i) out += (i == 0 ? "" : separator) + values[i];
    return out;
}

std::vector<std::string> string_split(const std::string& text, const std::string& delimiter) {
    std::vector<std::string> parts;
    std::size_t at = 0;
    for (std::size_t next = 0; (next = text.find(delimiter, at)) != std::string::npos;
         at = next + delimiter.size())
        parts.push_back(text.substr(at, next - at));
    parts.push_back(text.substr(at));
    return parts;
}

std::string string_repeat(const std::string& text, std::size_t times) {
    std::string out;
    for (std::size_t i = 0; i < times; ++i) out += text;
    return out;
}

void string_replace_all(std::string& text, const std::string& search, const std::string& replace) {
    if (search.empty()) return;
    std::string out;
    std::size_t at = 0;
    for (std::size_t next = 0; (next = text.find(search, at)) != std::string::npos;
         at = next + search.size())
        out.append(text, at, next - at).append(replace);
    text = out.append(text, at);
}

bool tty_can_use_colors() { return false; }  // its log is turned off
