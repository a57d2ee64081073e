// VocabTool: a model's vocabulary and chat template without its weights, for offline counting.
//
// load() reads the GGUF with vocab_only: some hundred milliseconds, no context, no KV. Fails with
// one clear line (missing, not GGUF, no vocabulary, template that does not parse). Immutable once
// loaded; count from any thread. Frees the model at its end.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "request/request.h"

namespace zerohop::engine {

class VocabTool {
  public:
    static Result<std::unique_ptr<VocabTool>> load(const std::string& path);
    ~VocabTool();

    // Tokens of the text alone: no BOS, control tokens in it read as plain text.
    std::size_t count(std::string_view text) const;
    // Tokens of a whole prompt as this model is served it: template, BOS and roles included.
    Result<std::size_t> count_prompt(const std::vector<Turn>& turns, bool continue_last) const;

  private:
    struct Impl;
    explicit VocabTool(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace zerohop::engine
