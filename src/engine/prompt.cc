#include "engine/prompt.h"

#include <chat.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <llama.h>

#include <algorithm>
#include <ctime>
#include <optional>

#include "base/log.h"
#include "engine/llama_glue.h"
#include "engine/prompt_guard.h"
#include "engine/special_tokens.h"

namespace zerohop::engine {
namespace {

// ChatML, the commonest template there is.
constexpr const char* kChatml =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

std::string piece(const llama_vocab* vocab, llama_token token) {
    if (token == LLAMA_TOKEN_NULL) return {};
    return common_token_to_piece(vocab, token, true);
}

std::tm local_time() {
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    localtime_r(&now, &local);
    return local;
}

jinja::value text_value(const std::string& text, bool input) {
    auto value = jinja::mk_val<jinja::value_string>(text);
    if (input) value->mark_input();
    return value;
}

bool contains(const Prompt& prompt, std::string_view text) {
    std::string all;
    for (const PromptSpan& span : prompt) all += span.text;
    return all.find(text) != std::string::npos;
}

// Rendering is looked at here by whoever may have lost interest: every template reads each message
// in turn.
struct Cancelled : std::exception {
    const char* what() const noexcept override { return "cancelled"; }
};

class WatchedMessage final : public jinja::value_object_t {
  public:
    explicit WatchedMessage(const StopFlag& stop) : stop_(stop) {}
    using value_object_t::at;
    jinja::value& at(const jinja::value& key, jinja::value& default_value) override {
        look();
        return value_object_t::at(key, default_value);
    }
    jinja::value& at(const jinja::value& key) override {
        look();
        return value_object_t::at(key);
    }

  private:
    void look() const {
        if (stopped(stop_)) throw Cancelled();
    }
    const StopFlag& stop_;
};

// What a jinja error says, without the excerpts of the template around it.
std::string_view reason(std::string_view what) {
    for (const std::string_view mark : {"Error: ", "Jinja Exception: "})
        if (const std::size_t at = what.rfind(mark); at != std::string_view::npos)
            what.remove_prefix(at + mark.size());
    return what.substr(0, what.find('\n'));
}

// llama-common loses it: parsing once more tells.
std::string parse_error(const std::string& source, std::string_view otherwise) {
    try {
        (void)jinja::parse_from_tokens(jinja::lexer().tokenize(source));
    } catch (const std::exception& e) {
        return std::string(reason(e.what()));
    }
    return std::string(reason(otherwise));
}

}  // namespace

struct PromptRenderer::Template {
    jinja::program program;
    std::string source, bos, eos;
    bool strip_bos = false;
};

PromptRenderer::PromptRenderer() = default;
PromptRenderer::~PromptRenderer() = default;

Result<std::unique_ptr<PromptRenderer>> PromptRenderer::make(const llama_model* model,
                                                             const llama_vocab* vocab,
                                                             const std::string& override_source) {
    std::unique_ptr<PromptRenderer> out(new PromptRenderer);
    out->template_ = std::make_unique<Template>();
    out->specials_ = std::make_unique<SpecialTokens>(vocab);
    const char* own = override_source.empty() && model != nullptr
                          ? llama_model_chat_template(model, nullptr)
                          : nullptr;
    std::string source = !override_source.empty() ? override_source : own != nullptr ? own : "";
    if (source.empty()) {
        log_warn(kOrigin, "the model has no chat template: chatml is used");
        source = kChatml;
        out->traits_.from_model = false;
    }
    try {
        // llama-common fixes some templates' known faults at this point; take its source.
        const common_chat_templates_ptr fixed = common_chat_templates_init(nullptr, source);
        source = common_chat_templates_source(fixed.get());
        jinja::lexer lexer;
        auto tokens = lexer.tokenize(source);
        out->template_->program = jinja::parse_from_tokens(tokens);
        out->template_->source = tokens.source;
        const jinja::caps caps = jinja::caps_get(out->template_->program);
        out->traits_.typed_content = caps.supports_typed_content && !caps.supports_string_content;
    } catch (const std::exception& e) {
        return fail(Code::kInvalidRequest, kOrigin,
                    fmt::format("the model's chat template does not parse: {}",
                                parse_error(source, e.what())));
    }
    out->template_->bos = piece(vocab, llama_vocab_bos(vocab));
    out->template_->eos = piece(vocab, llama_vocab_eos(vocab));
    out->template_->strip_bos = llama_vocab_get_add_bos(vocab);
    out->probe();
    return out;
}

// Finds out by trying what the template does with system turns and prefill.
void PromptRenderer::probe() {
    const std::string mark = "zhprobe7413";
    const Message user{Role::kUser, "a"}, assistant{Role::kAssistant, "b"},
        system{Role::kSystem, mark};
    const auto shows = [&](const Messages& messages) {
        const Result<Prompt> prompt = run_template(messages, {});
        return prompt && contains(*prompt, mark);
    };
    traits_.system_first = shows({system, user});
    traits_.system_anywhere = traits_.system_first && shows({user, assistant, system, user}) &&
                              shows({user, system}) && shows({{Role::kSystem, "c"}, user, system});
    traits_.can_continue = run_template({user}, {.thinking = false}).has_value();
}

PromptRenderer::Messages PromptRenderer::fold_systems(const Messages& messages, bool all) const {
    Messages out;
    std::string pending;  // system text that waits for the next user turn
    const auto join = [](std::string& left, const std::string& right) {
        if (!left.empty() && !right.empty()) left += "\n";  // as llama-common joins them
        left += right;
    };
    for (const Message& message : messages) {
        if (message.role == Role::kSystem && (all || !out.empty() || !pending.empty())) {
            join(pending, message.content);
        } else if (message.role == Role::kUser && !pending.empty()) {
            join(pending, message.content);
            if (!out.empty() && out.back().role == Role::kUser) {
                join(out.back().content, pending);
            } else {
                out.push_back({Role::kUser, std::move(pending)});
            }
            pending.clear();
        } else if (!out.empty() && message.role != Role::kTool && out.back().role == message.role) {
            join(out.back().content, message.content);
        } else {
            if (!pending.empty() && message.role == Role::kAssistant) {
                // Nobody spoke between: it belongs to what the user said before, or opens the talk.
                if (!out.empty() && out.back().role == Role::kUser) {
                    join(out.back().content, pending);
                } else {
                    out.push_back({Role::kUser, pending});
                }
                pending.clear();
            }
            out.push_back(message);
        }
    }
    if (!pending.empty()) {
        if (!out.empty() && out.back().role == Role::kUser) {
            join(out.back().content, pending);
        } else {
            out.push_back({Role::kUser, std::move(pending)});
        }
    }
    return out;
}

Result<Prompt> PromptRenderer::render(const std::vector<Turn>& turns, bool continue_last,
                                      const StopFlag& stop) const {
    return render_turns(turns, {.continue_last = continue_last, .stop = stop});
}

Result<Prompt> PromptRenderer::render_beginning(const std::vector<Turn>& turns,
                                                const StopFlag& stop) const {
    Result<Prompt> prompt = render_turns(turns, {.generation = false, .stop = stop});
    if (prompt || prompt.error().code == Code::kCancelled) return prompt;
    std::vector<Turn> more = turns;
    more.push_back({.role = Role::kUser, .parts = {std::string()}});
    return render_turns(more, {.generation = false, .stop = stop});
}

Result<Prompt> PromptRenderer::render_turns(const std::vector<Turn>& turns, const How& how) const {
    Messages messages;
    bool late_system = false;
    for (const Turn& turn : turns) {
        late_system |= turn.role == Role::kSystem && !messages.empty();
        messages.push_back({turn.role, text_of(turn)});
    }
    const bool first_system = !messages.empty() && messages.front().role == Role::kSystem;
    const bool fold_first = first_system && !traits_.system_first;
    if (fold_first || (late_system && !traits_.system_anywhere))
        messages = fold_systems(messages, !traits_.system_first);
    Result<Prompt> prompt = render_messages(messages, how);
    if (prompt || (!late_system && !first_system)) return prompt;
    // Rejected: once more with the late system turns folded, then with all of them.
    if (late_system) {
        Result<Prompt> folded = render_messages(fold_systems(messages, false), how);
        if (folded) return folded;
    }
    Result<Prompt> folded = render_messages(fold_systems(messages, true), how);
    return folded ? std::move(folded) : std::move(prompt);
}

Result<Prompt> PromptRenderer::render_messages(const Messages& messages, const How& how) const {
    if (!how.continue_last || messages.empty() || messages.back().role != Role::kAssistant)
        return run_guarded(messages, how);
    const Messages before(messages.begin(), messages.end() - 1);
    // Without "thinking": a template that opens a thought would have the prefill be part of it.
    Result<Prompt> prompt = run_guarded(before, {.thinking = false, .stop = how.stop});
    if (!prompt) return prompt;
    if (!prompt->empty() && !prompt->back().input) {
        std::string& header = prompt->back().text;
        const std::size_t end = header.find_last_not_of(" \n\t\r");
        if (end != std::string::npos &&
            std::string_view(header).substr(0, end + 1).ends_with("<think>"))
            header += "\n</think>\n\n";
    }
    prompt->push_back({messages.back().content, true});
    return prompt;
}

Result<Prompt> PromptRenderer::run_guarded(const Messages& messages, const How& how) const {
    Result<Prompt> marked = run_template(messages, how);
    const bool suspicious = std::any_of(
        messages.begin(), messages.end(),
        [this](const Message& message) { return specials_->contains_any(message.content); });
    if (!suspicious || !marked) return marked;
    // Content holds the text of control tokens. The marks are right if the template's own text has
    // the same control tokens when the content holds none.
    PromptGuard guard(*specials_);
    Messages harmless = messages;
    for (Message& message : harmless) {
        if (stopped(how.stop)) return fail(Code::kCancelled, kOrigin, "cancelled");
        message.content = guard.hide(message.content);
    }
    const Result<Prompt> clean = run_template(harmless, how);
    const auto own_tokens = [this](const Prompt& prompt) {
        std::vector<std::int32_t> tokens;
        for (const PromptSpan& span : prompt) {
            SpecialMatch match;
            if (span.input) continue;
            for (std::size_t at = 0; specials_->find(span.text, at, match); at = match.end)
                tokens.push_back(match.token);
        }
        return tokens;
    };
    if (clean && own_tokens(*marked) == own_tokens(*clean)) return marked;
    if (clean) return guard.reveal(*clean);
    if (clean.error().code == Code::kCancelled) return clean;
    for (PromptSpan& span : *marked) span.input = true;  // cannot tell: nothing is special
    return marked;
}

Result<Prompt> PromptRenderer::run_template(const Messages& messages, const How& how) const {
    try {
        jinja::context context(template_->source);
        auto list = jinja::mk_val<jinja::value_array>();
        for (const Message& message : messages) {
            const auto object = std::make_shared<WatchedMessage>(how.stop);
            object->insert("role", text_value(std::string(name_of(message.role)), false));
            jinja::value content = text_value(message.content, true);
            if (traits_.typed_content) {
                auto part = jinja::mk_val<jinja::value_object>();
                part->insert("type", text_value("text", false));
                part->insert("text", content);
                auto parts = jinja::mk_val<jinja::value_array>();
                parts->push_back(jinja::value(part));
                content = parts;
            }
            object->insert("content", content);
            list->push_back(jinja::value(object));
        }
        context.set_val("messages", list);
        context.set_val("bos_token", text_value(template_->bos, false));
        context.set_val("eos_token", text_value(template_->eos, false));
        context.set_val("enable_thinking", jinja::mk_val<jinja::value_bool>(how.thinking));
        const std::tm today = local_time();
        context.set_val("datetime", text_value(fmt::format("{:%b %d %Y}", today), false));
        context.set_val("date_string", text_value(fmt::format("{:%d %b %Y}", today), false));
        if (how.generation)
            context.set_val("add_generation_prompt", jinja::mk_val<jinja::value_bool>(true));
        jinja::runtime runtime(context);
        const auto parts = jinja::runtime::gather_string_parts(runtime.execute(template_->program));
        Prompt prompt;
        for (jinja::string_part& part : parts->val_str.parts)
            prompt.push_back({std::move(part.val), part.is_input});
        if (template_->strip_bos && !template_->bos.empty() && !prompt.empty() &&
            !prompt.front().input && prompt.front().text.starts_with(template_->bos))
            prompt.front().text.erase(0, template_->bos.size());
        return prompt;
    } catch (const std::exception& e) {
        if (stopped(how.stop)) return fail(Code::kCancelled, kOrigin, "cancelled");
        return fail(Code::kInvalidRequest, kOrigin,
                    fmt::format("messages: the model's chat template rejects this conversation: {}",
                                reason(e.what()).substr(0, 300)));
    }
}

}  // namespace zerohop::engine
