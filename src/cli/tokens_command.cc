// `zerohop tokens`: exact counts with the model's own tokenizer, offline.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/skeleton_command.h"
#include "cli/skeleton_input.h"
#include "engine/vocab_tool.h"

namespace zerohop::cli {
namespace {

using Json = nlohmann::ordered_json;

struct TokensOptions {
    std::vector<std::string> paths;
    std::string model;
    bool json = false;
};

std::string_view name_of(skeleton::Role role) {
    return role == skeleton::Role::kSystem ? "system"
           : role == skeleton::Role::kUser ? "user"
                                           : "assistant";
}

// A plain text is counted as such; a request or a template also as the whole prompt it becomes.
Result<Json> count(const engine::VocabTool& vocab, const Call& call) {
    Json out = {{"name", call.name}};
    if (call.is_text && !call.is_template) {
        out["tokens"] = vocab.count(call.raw);
        return out;
    }
    Json blocks = Json::array();
    for (const InputTurn& turn : call.turns)
        for (const InputBlock& b : turn.blocks)
            blocks.push_back({{"role", name_of(turn.role)},
                              {"where", b.where},
                              {"tokens", vocab.count(b.text)}});
    const auto prompt = vocab.count_prompt(turns_of(call), false);
    if (!prompt) return std::unexpected(prompt.error());
    out["tokens"] = *prompt;
    if (!call.tools_text.empty()) out["tools_tokens"] = vocab.count(call.tools_text);
    out["blocks"] = std::move(blocks);
    return out;
}

int run_tokens(const TokensOptions& options) {
    const auto vocab = engine::VocabTool::load(options.model);
    if (!vocab) return fmt::print(stderr, "zerohop tokens: {}\n", vocab.error().detail), 2;
    const auto calls = read_calls(options.paths);
    if (!calls) return fmt::print(stderr, "zerohop tokens: {}\n", calls.error().detail), 2;
    Json all = Json::array();
    std::size_t total = 0;
    for (const Call& call : *calls) {
        auto counted = count(**vocab, call);
        if (!counted)
            return fmt::print(stderr, "zerohop tokens: {}: {}\n", call.name,
                              counted.error().detail),
                   2;
        total += (*counted)["tokens"].get<std::size_t>();
        if (!options.json) {
            fmt::print("{:>8}  {}\n", (*counted)["tokens"].get<std::size_t>(), call.name);
            if (counted->contains("tools_tokens"))
                fmt::print(
                    "{:>12}  tools, as JSON (not in the sum: the template decides their form)\n",
                    (*counted)["tools_tokens"].get<std::size_t>());
            for (const Json& b : counted->value("blocks", Json::array()))
                fmt::print("{:>12}  {} {}\n", b["tokens"].get<std::size_t>(),
                           b["role"].get<std::string>(), b["where"].get<std::string>());
        }
        all.push_back(std::move(*counted));
    }
    if (options.json)
        fmt::print("{}\n",
                   Json{{"model", options.model}, {"total", total}, {"prompts", all}}.dump());
    else if (calls->size() > 1)
        fmt::print("{:>8}  total\n", total);
    return 0;
}

}  // namespace

void add_tokens_command(CLI::App& app, int& exit_code) {
    auto options = std::make_shared<TokensOptions>();
    CLI::App* t = app.add_subcommand("tokens", "exact token counts of texts and requests, offline");
    t->add_option("paths", options->paths,
                  "files, folders, JSONL of requests; - or nothing: standard input");
    t->add_option("--model,-m", options->model,
                  "GGUF whose tokenizer and template count (only its vocabulary is read)")
        ->required();
    t->add_flag("--json", options->json, "one JSON object");
    t->footer(
        "Text is counted alone; a request or a template as the whole prompt that the model is "
        "given.\n"
        "Examples:\n"
        "  zerohop tokens --model m.gguf prompt.txt\n"
        "  zerohop tokens --model m.gguf --json requests.jsonl");
    t->callback([options, &exit_code] { exit_code = run_tokens(*options); });
}

}  // namespace zerohop::cli
