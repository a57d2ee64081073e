// PromptRenderer: a conversation through the model's chat template, keeping apart what is the
// template's own text and what came from the request.
//
// The template runs in llama-common's jinja engine, whose strings remember whether they are input.
// Only template text may later become control tokens (tokenizer.h). Where a template cuts or joins
// text in a way that loses the mark, rendering notices and falls back to treating it as input.
//
// What a template cannot take is degraded, in this order: a system turn in the middle is folded
// into the next user turn (or the one before); a leading system turn too, if the template knows
// none; what it still rejects is kInvalidRequest with the template's own words. Assistant prefill:
// the turns before it, the assistant header, then the prefill as input.
//
// Parts of a turn are joined by a line end (kBetweenParts). Work looks at `stop` at each message.
//
// Immutable once made; render() from any thread, at any depth of stack (templates recurse little).
// Cost: linear in the turns and their text. Fails with kInvalidRequest, or kCancelled when stopped.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/stop_flag.h"
#include "request/request.h"

struct llama_vocab;
struct llama_model;

namespace zerohop::engine {

class SpecialTokens;

struct PromptSpan {
    std::string text;
    bool input = false;  // from the request; false: the template's own
};

using Prompt = std::vector<PromptSpan>;

struct TemplateTraits {
    bool from_model = true;       // false: the built-in chatml
    bool system_first = true;     // a leading system turn is rendered
    bool system_anywhere = true;  // … also later
    bool typed_content = false;   // content must be a list of parts
    bool can_continue = true;     // assistant prefill works
};

class PromptRenderer {
  public:
    // Template of the model, or chatml when it has none. `override_source` replaces it (tests).
    // Fails when the template does not parse.
    static Result<std::unique_ptr<PromptRenderer>> make(const llama_model* model,
                                                        const llama_vocab* vocab,
                                                        const std::string& override_source = {});
    ~PromptRenderer();

    Result<Prompt> render(const std::vector<Turn>& turns, bool continue_last,
                          const StopFlag& stop = {}) const;
    // The turns alone, as a prompt that has more of them would begin. A template that refuses to
    // end there gets an empty user turn behind them.
    Result<Prompt> render_beginning(const std::vector<Turn>& turns,
                                    const StopFlag& stop = {}) const;
    const TemplateTraits& traits() const { return traits_; }

  private:
    struct Message {
        Role role;
        std::string content;
    };
    using Messages = std::vector<Message>;
    struct Template;
    struct How {
        bool continue_last = false;
        bool generation = true;  // the header of the answer stands at the end
        bool thinking = true;
        StopFlag stop = {};
    };

    PromptRenderer();
    void probe();
    Messages fold_systems(const Messages& messages, bool all) const;
    Result<Prompt> render_turns(const std::vector<Turn>& turns, const How& how) const;
    Result<Prompt> render_messages(const Messages& messages, const How& how) const;
    Result<Prompt> run_guarded(const Messages& messages, const How& how) const;
    Result<Prompt> run_template(const Messages& messages, const How& how) const;

    std::unique_ptr<Template> template_;
    std::unique_ptr<SpecialTokens> specials_;
    TemplateTraits traits_;
};

}  // namespace zerohop::engine
