// `zerohop skeleton analyze`: what a cache can reuse of a prompt, where two calls part, and why.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/ascii.h"
#include "cli/skeleton_command.h"
#include "cli/skeleton_input.h"
#include "engine/vocab_tool.h"
#include "skeleton/optimize.h"

namespace zerohop::cli {
namespace {

using Json = nlohmann::ordered_json;
namespace sk = skeleton;

// Counts with the model's tokenizer, or estimates and says so.
struct Counter {
    const engine::VocabTool* vocab = nullptr;
    std::size_t operator()(std::string_view text) const {
        return vocab != nullptr ? vocab->count(text) : (text.size() + 3) / 4;
    }
    std::string_view mark() const { return vocab != nullptr ? "" : "~"; }
};

// Where the reusable prefix of one prompt ends by what can be seen in it alone.
struct End {
    std::size_t offset = 0;
    std::string why;  // empty: nothing ends it
};
End end_of(const Call& call, const Rendered& rendered) {
    sk::Arena arena;
    const sk::Analysis a = sk::analyze_text(rendered.text, arena);
    End end{rendered.text.size(), ""};
    if (!a.volatiles.empty()) {
        const sk::Volatile& v = a.volatiles[0];
        end = {v.offset, fmt::format("volatile value \"{}\" ({})",
                                     rendered.text.substr(v.offset, v.size), sk::name_of(v.kind))};
    }
    if (call.is_text) {
        const auto [at, size] = sk::next_variable(rendered.text, 0);
        if (at < end.offset)
            end = {at, fmt::format("variable part {}", rendered.text.substr(at, size))};
    }
    return end;
}

// The first byte at which two calls differ, and of what kind the difference is.
struct Divergence {
    std::size_t offset = 0;
    std::string kind;  // "volatile", "separator", "variable", "end"
    std::string why;
};
std::string shown(std::string_view text, std::size_t at) {
    std::string out;
    for (std::size_t i = at; i < text.size() && out.size() < 24; ++i) {
        if (text[i] == '\n')
            out += "\\n";
        else if (text[i] == '\t')
            out += "\\t";
        else if (text[i] == '\r')
            out += "\\r";
        else
            out += text[i];
    }
    while (!out.empty() && (static_cast<unsigned char>(out.back()) & 0xC0) == 0x80) out.pop_back();
    if (!out.empty() && static_cast<unsigned char>(out.back()) >= 0xC0) out.pop_back();
    return at < text.size() ? out : "(end)";
}
Divergence diverge(std::string_view a, std::string_view b) {
    const std::size_t n = std::min(a.size(), b.size());
    std::size_t at = 0;
    while (at < n && a[at] == b[at]) ++at;
    while (at > 0 && at < a.size() && (static_cast<unsigned char>(a[at]) & 0xC0) == 0x80) --at;
    Divergence d{at, "variable", ""};
    if (at == a.size() && at == b.size()) return {at, "end", "the calls are equal"};
    for (const std::string_view text : {a, b}) {
        sk::Arena arena;
        const sk::Analysis analysis = sk::analyze_text(text, arena);
        for (const sk::Volatile& v : analysis.volatiles)
            if (v.offset <= at && at < v.offset + v.size) {
                d.offset = v.offset;
                d.kind = "volatile";
                d.why = fmt::format(
                    "volatile value \"{}\" ({}); move it behind the constant parts or write <{}/>",
                    text.substr(v.offset, v.size), sk::name_of(v.kind), sk::name_of(v.kind));
                return d;
            }
    }
    const bool space_a = at < a.size() && is_space(a[at]);
    const bool space_b = at < b.size() && is_space(b[at]);
    // The same words go on behind other white space: a separator, as \n against \n\n.
    if (space_a || space_b) {
        std::size_t i = at;
        std::size_t k = at;
        while (i < a.size() && is_space(a[i])) ++i;
        while (k < b.size() && is_space(b[k])) ++k;
        const std::size_t same = std::min<std::size_t>({8, a.size() - i, b.size() - k});
        if (a.substr(i, same) == b.substr(k, same)) {
            d.kind = "separator";
            d.why =
                fmt::format("another separator: \"{}\" against \"{}\"", shown(a, at), shown(b, at));
            return d;
        }
    }
    d.why = fmt::format("variable part: \"{}\" against \"{}\"; put it behind the constant parts",
                        shown(a, at), shown(b, at));
    return d;
}

std::string label(const sk::Analysis& a, const sk::Node& n) {
    static constexpr std::string_view kNames[] = {
        "TOOLS",      "SYSTEM",       "USER",      "ASSISTANT",
        "TOOL_USE",   "TOOL_RESULT",  "TAG",       "SEMANTIC_ANCHOR",
        "CODE_BLOCK", "FUNCTION_DEF", "CLASS_DEF", "IMPORT",
        "HEADING",    "LIST",         "TABLE",     "QUOTE",
        "JSON",       "IMAGE",        "TEXT",      "TEXT"};
    std::string out(kNames[static_cast<std::size_t>(n.kind)]);
    std::string scratch;
    switch (n.kind) {
        case sk::Kind::kTag:
        case sk::Kind::kAnchor:
            out += fmt::format(" {}", a.blocks[n.block].substr(n.name, n.name_size));
            break;
        case sk::Kind::kToolUse:
            out += fmt::format(" {}", a.names[n.block]);
            break;
        case sk::Kind::kCodeBlock:
            out += fmt::format(" {}", sk::language_name(a, n, scratch));
            break;
        case sk::Kind::kFunctionDef:
            out += fmt::format(" PARAMS:{}", n.count);
            break;
        case sk::Kind::kHeading:
            out += fmt::format(" {}", n.sub);
            break;
        case sk::Kind::kList:
            out += fmt::format(" {} items", n.count);
            break;
        case sk::Kind::kTable:
            out += fmt::format(" {} columns, {} rows", n.columns, n.count);
            break;
        case sk::Kind::kTools:
            out += fmt::format(" {}", n.count);
            break;
        default:
            break;
    }
    return out;
}

// Bytes of a node: to the next sibling's begin or its block's end, as leaves carry only their
// start.
std::string_view extent(const sk::Analysis& a, std::size_t i) {
    const sk::Node& n = a.nodes[i];
    if (n.kind == sk::Kind::kTools || n.kind == sk::Kind::kSystem || n.kind == sk::Kind::kUser ||
        n.kind == sk::Kind::kAssistant)
        return {};
    const std::string_view text = a.blocks[n.block];
    const bool closed = n.kind == sk::Kind::kTag || n.kind == sk::Kind::kAnchor ||
                        n.kind == sk::Kind::kCodeBlock || n.kind == sk::Kind::kJson;
    std::size_t end = closed ? n.end : text.size();
    if (n.kind == sk::Kind::kToolUse || n.kind == sk::Kind::kToolResult) return text;
    if (!closed && n.next < a.nodes.size() && a.nodes[n.next].block == n.block)
        end = a.nodes[n.next].begin;
    return text.substr(n.begin, end > n.begin ? end - n.begin : 0);
}

void print_tree(const sk::Analysis& a, const Counter& count, bool tokens) {
    std::vector<std::size_t> ends;
    for (std::size_t i = 0; i < a.nodes.size(); ++i) {
        while (!ends.empty() && ends.back() <= i) ends.pop_back();
        const std::string_view text = extent(a, i);
        fmt::print(
            "    {:{}}{}{}\n", "", ends.size() * 2, label(a, a.nodes[i]),
            tokens && !text.empty() ? fmt::format("  {}{} tokens", count.mark(), count(text)) : "");
        if (a.nodes[i].next > i + 1) ends.push_back(a.nodes[i].next);
    }
}

std::string verdict(const sk::Analysis& a) {
    if (a.complexity <= sk::kMaxDepthAdvice) return fmt::format("depth {} → fine", a.complexity);
    return fmt::format(
        "depth {} → simplify: more than {} levels; unwrap doubled tags, or `zerohop skeleton "
        "optimize`",
        a.complexity, sk::kMaxDepthAdvice);
}

double share(std::size_t part, std::size_t whole) {
    return whole == 0 ? 1.0 : static_cast<double>(part) / static_cast<double>(whole);
}

Json one(const Call& call, const AnalyzeOptions& options, const Counter& count, bool& findings) {
    const PromptView view(call);
    sk::Arena arena;
    const sk::Analysis a = sk::analyze(view.prompt(), arena);
    const Rendered rendered = render(call);
    const End end = end_of(call, rendered);
    const std::string_view whole(rendered.text);
    const std::size_t reusable = count(whole.substr(0, end.offset));
    const std::size_t total = count(whole);
    findings = findings || a.complexity > sk::kMaxDepthAdvice || a.error_count > 0 ||
               (!end.why.empty() && a.volatile_count > 0);
    Json out = {
        {"name", call.name},
        {"bytes", whole.size()},
        {"tokens", total},
        {"tokens_exact", count.vocab != nullptr},
        {"reusable_bytes", end.offset},
        {"reusable_tokens", reusable},
        {"reusable_share", share(end.offset, whole.size())},
        {"prefix_ends_at", end.why.empty() ? Json(nullptr) : Json(rendered.place(end.offset))},
        {"prefix_ended_by", end.why.empty() ? Json(nullptr) : Json(end.why)},
        {"key", a.whole.hex()},
        {"key_last_turn", a.last_turn.hex()},
        {"key_system_tools", a.system_tools.hex()},
        {"canonical", sk::flat_form(a)},
        {"complexity", a.complexity},
        {"verdict", verdict(a)},
        {"volatile", a.volatile_count},
        {"parse_errors", a.error_count}};
    if (options.json) return out;
    fmt::print("{}\n  reusable prefix  {} of {} bytes ({:.1f} %), {}{} of {}{} tokens\n", call.name,
               end.offset, whole.size(), 100 * share(end.offset, whole.size()), count.mark(),
               reusable, count.mark(), total);
    if (!end.why.empty()) {
        fmt::print("  it ends at       {}: {}\n", rendered.place(end.offset), end.why);
        fmt::print("  estimated saving {}{} tokens a call, when this stands last\n", count.mark(),
                   total - reusable);
    }
    fmt::print(
        "  complexity       {}\n  key              {}\n                   last turn {}, system and "
        "tools {}\n  canonical        {}\n",
        verdict(a), a.whole.hex(), a.last_turn.hex(), a.system_tools.hex(), sk::flat_form(a));
    for (const sk::ParseError& e : a.errors)
        fmt::print("  {}\n", sk::describe(e, a.blocks[e.block]));
    if (options.show_tokens)
        for (const sk::Volatile& v : a.volatiles) {
            const sk::Place p = sk::place_of(a.blocks[v.block], v.offset);
            const std::string& where = view.block(v.block).where;
            fmt::print("  volatile         {}{}line {} column {}: {} \"{}\"\n", where,
                       where.empty() ? "" : " ", p.line, p.column, sk::name_of(v.kind),
                       a.blocks[v.block].substr(v.offset, v.size));
        }
    if (options.verbose || options.show_tokens) {
        fmt::print("  tree (AST Depth: {})\n", a.complexity);
        print_tree(a, count, options.show_tokens);
    }
    return out;
}

Json between(const std::vector<Call>& calls, const AnalyzeOptions& options, const Counter& count) {
    const Rendered first = render(calls[0]);
    std::size_t nearest = first.text.size();
    Divergence d{nearest, "end", "the calls are equal"};
    std::size_t with = 1;
    std::size_t longest = first.text.size();
    for (std::size_t i = 1; i < calls.size(); ++i) {
        const Rendered other = render(calls[i]);
        longest = std::max(longest, other.text.size());
        const Divergence here = diverge(first.text, other.text);
        if (here.offset < nearest || (d.kind == "end" && here.kind != "end")) {
            nearest = here.offset;
            d = here;
            with = i;
        }
    }
    const std::size_t reusable = count(std::string_view(first.text).substr(0, d.offset));
    const std::size_t total = count(first.text);
    Json out = {{"calls", calls.size()},
                {"shared_bytes", d.offset},
                {"shared_tokens", reusable},
                {"shared_share", share(d.offset, longest)},
                {"diverges_at", first.place(d.offset)},
                {"diverges_between", {calls[0].name, calls[with].name}},
                {"kind", d.kind},
                {"why", d.why}};
    if (!options.json) {
        fmt::print("{} calls share {} bytes ({:.1f} % of the longest), {}{} of {}{} tokens\n",
                   calls.size(), d.offset, 100 * share(d.offset, longest), count.mark(), reusable,
                   count.mark(), total);
        fmt::print("  first divergence {} ({} against {}): {}\n\n", first.place(d.offset),
                   calls[0].name, calls[with].name, d.why);
    }
    return out;
}

}  // namespace

int run_analyze(const AnalyzeOptions& options) {
    std::unique_ptr<engine::VocabTool> vocab;
    if (!options.model.empty()) {
        auto loaded = engine::VocabTool::load(options.model);
        if (!loaded) return fmt::print(stderr, "zerohop skeleton: {}\n", loaded.error().detail), 2;
        vocab = std::move(*loaded);
    }
    const auto calls = read_calls(options.paths);
    if (!calls) return fmt::print(stderr, "zerohop skeleton: {}\n", calls.error().detail), 2;
    const Counter count{vocab.get()};
    bool findings = false;
    Json out;
    if (calls->size() > 1) out["between"] = between(*calls, options, count);
    out["prompts"] = Json::array();
    for (const Call& call : *calls) out["prompts"].push_back(one(call, options, count, findings));
    if (options.json) fmt::print("{}\n", out.dump(-1, ' ', false, Json::error_handler_t::replace));
    return findings ? 1 : 0;
}

}  // namespace zerohop::cli
