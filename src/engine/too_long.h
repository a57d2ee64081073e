// The refusal of a prompt beyond a model's context. Agents shorten the conversation and try again
// when they read these words, and some read the numbers.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <string_view>

namespace zerohop::engine {

// least: "at least " where counting stopped early. A prompt must leave one token for the answer, so
// one of exactly the context is above the maximum, too.
inline std::string too_long_text(std::string_view least, std::size_t tokens, std::size_t context) {
    return fmt::format("prompt is too long: {}{} tokens > {} maximum", least, tokens,
                       tokens == context ? context - 1 : context);
}

}  // namespace zerohop::engine
