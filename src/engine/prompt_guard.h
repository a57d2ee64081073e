// PromptGuard: hides the text of control tokens inside content while a chat template runs, and puts
// it back behind it, as input.
//
// Each is replaced by a placeholder: two private-use characters around an index. Content that has
// such characters itself just gets one more index.
// Cost: hide() and reveal() are linear in the text, whatever is in it. One per rendering, one
// thread. Nothing fails.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/prompt.h"
#include "engine/special_tokens.h"

namespace zerohop::engine {

class PromptGuard {
  public:
    explicit PromptGuard(const SpecialTokens& specials) : specials_(specials) {}

    std::string hide(std::string_view text);
    // Of what a template made of hidden text: the originals, wherever it moved them.
    Prompt reveal(const Prompt& prompt) const;

  private:
    const SpecialTokens& specials_;
    std::vector<std::string> originals_;
};

}  // namespace zerohop::engine
