// `zerohop skeleton optimize`: the new text on standard output, what changed and why on standard
// error.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "cli/skeleton_command.h"
#include "cli/skeleton_input.h"
#include "engine/vocab_tool.h"
#include "skeleton/optimize.h"

namespace zerohop::cli {
namespace {

using Json = nlohmann::ordered_json;
namespace sk = skeleton;

std::vector<std::string_view> lines_of(std::string_view text) {
    std::vector<std::string_view> lines;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.size(), text.find('\n', at));
        lines.push_back(text.substr(at, end - at));
        at = end + 1;
    }
    return lines;
}

// A line diff by the longest common subsequence; texts too long for its table show as one change.
std::string diff(std::string_view before, std::string_view after) {
    std::vector<std::string_view> a = lines_of(before);
    std::vector<std::string_view> b = lines_of(after);
    if (a.size() * b.size() > 4'000'000) return "(too long for a diff)\n";
    std::vector<std::vector<std::uint32_t>> common(a.size() + 1,
                                                   std::vector<std::uint32_t>(b.size() + 1, 0));
    for (std::size_t i = a.size(); i-- > 0;)
        for (std::size_t k = b.size(); k-- > 0;)
            common[i][k] = a[i] == b[k] ? common[i + 1][k + 1] + 1
                                        : std::max(common[i + 1][k], common[i][k + 1]);
    std::string out;
    std::size_t i = 0;
    std::size_t k = 0;
    while (i < a.size() || k < b.size()) {
        if (i < a.size() && k < b.size() && a[i] == b[k]) {
            ++i;
            ++k;
        } else if (k == b.size() || (i < a.size() && common[i + 1][k] >= common[i][k + 1])) {
            out += fmt::format("-{}\n", a[i++]);
        } else {
            out += fmt::format("+{}\n", b[k++]);
        }
    }
    return out;
}

int complain(std::string_view what) {
    fmt::print(stderr, "zerohop skeleton: {}\n", what);
    return 2;
}

bool rules_of(const OptimizeCliOptions& options, sk::OptimizeOptions& out, std::string& why) {
    for (const std::string& name : options.off) {
        std::size_t i = 0;
        while (i < sk::kRules && sk::name_of(static_cast<sk::Rule>(i)) != name) ++i;
        if (i == sk::kRules)
            return why = fmt::format("--off {}: there is no such rule", name), false;
        out.off |= 1U << i;
    }
    if (options.rules.empty()) return true;
    std::ifstream in(options.rules, std::ios::binary);
    if (!in) return why = fmt::format("cannot read {}", options.rules), false;
    const std::string file(std::istreambuf_iterator<char>(in), {});
    std::vector<std::string> bad;
    out.role_rules = sk::parse_role_rules(file, bad);
    if (!bad.empty())
        return why = fmt::format("{}: \"{}\" is no rule (text => replacement)", options.rules,
                                 bad[0]),
               false;
    return true;
}

}  // namespace

int run_optimize(const OptimizeCliOptions& options) {
    sk::OptimizeOptions rules;
    std::string why;
    if (!rules_of(options, rules, why)) return complain(why);
    if (options.paths.size() > 1) return complain("optimize takes one text at a time");
    const auto calls = read_calls(options.paths);
    if (!calls) return complain(calls.error().detail);
    if (calls->size() != 1 || !(*calls)[0].is_text)
        return complain("optimize takes a text or a template, not requests");
    std::unique_ptr<engine::VocabTool> vocab;
    if (!options.model.empty()) {
        auto loaded = engine::VocabTool::load(options.model);
        if (!loaded) return complain(loaded.error().detail);
        vocab = std::move(*loaded);
    }
    const std::string& before = (*calls)[0].raw;
    const sk::Optimized o = sk::optimize(before, rules);
    const auto tokens = [&](std::string_view text, std::size_t size) {
        text = text.substr(0, size);
        return vocab != nullptr ? vocab->count(text) : (text.size() + 3) / 4;
    };
    const std::size_t was = tokens(before, o.reusable_before);
    const std::size_t is = tokens(o.text, o.reusable_after);
    if (options.json) {
        Json changes = Json::array();
        for (const sk::Change& c : o.changes)
            changes.push_back({{"rule", sk::name_of(c.rule)}, {"line", c.line}, {"what", c.what}});
        const Json out = {{"text", o.text},
                          {"changes", changes},
                          {"notes", o.notes},
                          {"complexity_before", o.complexity_before},
                          {"complexity_after", o.complexity_after},
                          {"reusable_tokens_before", was},
                          {"reusable_tokens_after", is},
                          {"tokens_exact", vocab != nullptr}};
        fmt::print("{}\n", out.dump(-1, ' ', false, Json::error_handler_t::replace));
    } else {
        if (!options.check) std::fwrite(o.text.data(), 1, o.text.size(), stdout);
        const std::string_view about = vocab != nullptr ? "" : "~";
        fmt::print(stderr, "{}complexity {} -> {}, reusable tokens {}{} -> {}{}\n",
                   diff(before, o.text), o.complexity_before, o.complexity_after, about, was, about,
                   is);
        for (const sk::Change& c : o.changes)
            fmt::print(stderr, "  line {}: {}: {}\n", c.line, sk::name_of(c.rule), c.what);
        for (const std::string& note : o.notes) fmt::print(stderr, "  note: {}\n", note);
    }
    return options.check && !o.changes.empty() ? 1 : 0;
}

}  // namespace zerohop::cli
