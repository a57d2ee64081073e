// `zerohop skeleton validate`: strict parse and the rules of the house, for people and for CI.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/skeleton_command.h"
#include "cli/skeleton_input.h"
#include "skeleton/optimize.h"

namespace zerohop::cli {
namespace {

using Json = nlohmann::ordered_json;
namespace sk = skeleton;

constexpr std::size_t kUntagged = 2000;  // bytes of data without a tag that says what it is
constexpr std::size_t kBehindVolatile =
    64;  // bytes of prompt after a volatile value that it spoils

struct Finding {
    std::string name;
    std::string where;
    sk::Place place;
    std::string rule;
    std::string text;
};

class Validator {
  public:
    std::vector<Finding> findings;

    void check(const Call& call) {
        parse(call);
        const PromptView view(call);
        const sk::Analysis a = sk::analyze(view.prompt(), arena_);
        if (a.complexity > sk::kMaxDepthAdvice)
            add(call, "", {}, "depth",
                fmt::format("depth {} is more than {}; simplify: flatten nested tags", a.complexity,
                            sk::kMaxDepthAdvice));
        volatiles(call);
        untagged(call, view, a);
    }

  private:
    void add(const Call& call, std::string where, sk::Place place, std::string rule,
             std::string text) {
        findings.push_back({call.name, std::move(where), place, std::move(rule), std::move(text)});
    }
    void parse(const Call& call) {
        if (call.is_text) {
            sk::Arena arena;
            std::vector<sk::ParseError> errors;
            if (call.is_template) {
                errors = sk::parse_template(call.raw, true, arena).errors;
            } else {
                const sk::Analysis a = sk::analyze_text(call.raw, arena, {.strict = true});
                errors.assign(a.errors.begin(), a.errors.end());
            }
            for (const sk::ParseError& e : errors)
                add(call, "", sk::place_of(call.raw, e.offset), std::string(sk::name_of(e.problem)),
                    sk::describe(e, call.raw));
            return;
        }
        const PromptView view(call);
        sk::Arena arena;
        const sk::Analysis a = sk::analyze(view.prompt(), arena, {.strict = true});
        for (const sk::ParseError& e : a.errors)
            add(call, view.block(e.block).where, sk::place_of(a.blocks[e.block], e.offset),
                std::string(sk::name_of(e.problem)), sk::describe(e, a.blocks[e.block]));
    }
    void volatiles(const Call& call) {
        const Rendered rendered = render(call);
        sk::Arena arena;
        const sk::Analysis a = sk::analyze_text(rendered.text, arena);
        // What stands behind the last user words is no prefix any more.
        for (const sk::Volatile& v : a.volatiles) {
            if (rendered.text.size() - v.offset - v.size < kBehindVolatile) continue;
            add(call, call.is_text ? "" : rendered.place(v.offset),
                call.is_text ? sk::place_of(rendered.text, v.offset) : sk::Place{},
                "volatile-prefix",
                fmt::format("\"{}\" ({}) ends the reusable prefix after {} of {} bytes; move it to "
                            "the end or write <{}/>",
                            rendered.text.substr(v.offset, v.size), sk::name_of(v.kind), v.offset,
                            rendered.text.size(), sk::name_of(v.kind)));
        }
    }
    void untagged(const Call& call, const PromptView& view, const sk::Analysis& a) {
        std::vector<bool> tagged(a.blocks.size(), false);
        std::vector<bool> data(a.blocks.size(), false);
        for (std::size_t i = 0; i < a.nodes.size(); ++i) {
            const sk::Node& n = a.nodes[i];
            if (n.kind == sk::Kind::kTools || n.kind == sk::Kind::kSystem ||
                n.kind == sk::Kind::kUser || n.kind == sk::Kind::kAssistant)
                continue;
            if (n.kind == sk::Kind::kTag || n.kind == sk::Kind::kCodeBlock ||
                n.kind == sk::Kind::kToolResult || n.kind == sk::Kind::kToolUse)
                tagged[n.block] = true;
            data[n.block] = true;
        }
        std::size_t index = 0;
        for (const InputTurn& turn : call.turns)
            for (const InputBlock& b : turn.blocks) {
                const std::size_t i = index++;
                if (turn.role != sk::Role::kUser || b.kind != sk::BlockKind::kText ||
                    b.text.size() < kUntagged || tagged[i] || !data[i])
                    continue;
                add(call, view.block(i).where, {}, "untagged-data",
                    fmt::format("{} bytes without a tag; say what they are, as "
                                "<document_type>…</document_type> and an element around them",
                                b.text.size()));
            }
    }
    sk::Arena arena_;
};

}  // namespace

int run_validate(const ValidateOptions& options) {
    const auto calls = read_calls(options.paths);
    if (!calls) return fmt::print(stderr, "zerohop skeleton: {}\n", calls.error().detail), 2;
    Validator validator;
    for (const Call& call : *calls) validator.check(call);
    if (options.json) {
        Json list = Json::array();
        for (const Finding& f : validator.findings)
            list.push_back({{"name", f.name},
                            {"where", f.where},
                            {"line", f.place.line},
                            {"column", f.place.column},
                            {"rule", f.rule},
                            {"text", f.text}});
        fmt::print("{}\n", Json{{"prompts", calls->size()}, {"findings", list}}.dump(
                               -1, ' ', false, Json::error_handler_t::replace));
    } else {
        for (const Finding& f : validator.findings)
            fmt::print("{}:{}:{}: {}{}: {}\n", f.name, f.place.line, f.place.column,
                       f.where.empty() ? "" : f.where + ": ", f.rule, f.text);
        if (validator.findings.empty())
            fmt::print("{} prompt{} ok\n", calls->size(), calls->size() == 1 ? "" : "s");
    }
    return validator.findings.empty() ? 0 : 1;
}

}  // namespace zerohop::cli
