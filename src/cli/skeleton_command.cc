#include "cli/skeleton_command.h"

#include <CLI/CLI.hpp>
#include <array>
#include <memory>
#include <string_view>

namespace zerohop::cli {
namespace {

constexpr const char* kPathsHelp =
    "files, folders, JSONL of requests; - or nothing: standard input";

}  // namespace

void add_skeleton_command(CLI::App& app, int& exit_code) {
    CLI::App* skeleton = app.add_subcommand(
        "skeleton", "structure of prompts: what a cache can reuse, and what stops it");
    skeleton->require_subcommand(1);
    skeleton->footer(
        "Examples:\n"
        "  zerohop skeleton analyze --verbose prompt.txt\n"
        "  zerohop skeleton analyze calls.jsonl          where two calls of a template diverge\n"
        "  zerohop skeleton validate templates/          for CI: exit code 1 on findings\n"
        "  zerohop skeleton optimize prompt.txt > better.txt");

    auto analyze = std::make_shared<AnalyzeOptions>();
    CLI::App* a = skeleton->add_subcommand(
        "analyze", "reusable prefix, first divergence, tree, key, complexity");
    a->add_option("paths", analyze->paths, kPathsHelp);
    a->add_flag("--verbose,-v", analyze->verbose, "the tree, node by node");
    a->add_flag("--show-tokens", analyze->show_tokens,
                "tokens of each node, and each volatile value");
    a->add_option("--model,-m", analyze->model,
                  "GGUF whose tokenizer counts; without it tokens are estimated (4 bytes each)");
    a->add_flag("--json", analyze->json, "one JSON object");
    a->callback([analyze, &exit_code] { exit_code = run_analyze(*analyze); });

    auto validate = std::make_shared<ValidateOptions>();
    CLI::App* v =
        skeleton->add_subcommand("validate", "strict parse, depth, volatile values, untagged data");
    v->add_option("paths", validate->paths, kPathsHelp);
    v->add_flag("--json", validate->json, "one JSON object");
    v->callback([validate, &exit_code] { exit_code = run_validate(*validate); });

    auto optimize = std::make_shared<OptimizeCliOptions>();
    CLI::App* o = skeleton->add_subcommand(
        "optimize", "rewrites a template: flatter, with a longer reusable prefix");
    o->add_option("paths", optimize->paths, "one file of text; - or nothing: standard input");
    o->add_option("--off", optimize->off,
                  "rules not to apply: merge-text, unwrap-doubled, drop-empty, placeholders, "
                  "role-tags, constant-first");
    o->add_option("--rules", optimize->rules,
                  "lines of `long description => <role>name</role>` for role-tags");
    o->add_option("--model,-m", optimize->model, "GGUF whose tokenizer counts the reusable tokens");
    o->add_flag("--check", optimize->check,
                "write nothing but the report; exit code 1 when something would change");
    o->add_flag("--json", optimize->json, "one JSON object, the new text within");
    o->callback([optimize, &exit_code] { exit_code = run_optimize(*optimize); });
}

std::optional<int> run_as_alias(int argc, char** argv) {
    struct Alias {
        std::string_view name;
        std::string_view tool;
    };
    static constexpr std::array<Alias, 4> kAliases = {{{"anthropic-skeleton-analyzer", "analyze"},
                                                       {"anthropic-skeleton-validator", "validate"},
                                                       {"prompt-skeleton-optimize", "optimize"},
                                                       {"anthropic-tokens", "tokens"}}};
    std::string_view name = argc > 0 && argv[0] != nullptr ? argv[0] : "";
    if (const auto slash = name.rfind('/'); slash != std::string_view::npos)
        name.remove_prefix(slash + 1);
    for (const Alias& alias : kAliases) {
        if (alias.name != name) continue;
        CLI::App app{std::string(alias.name)};
        app.require_subcommand(1);
        int exit_code = 0;
        add_skeleton_command(app, exit_code);
        add_tokens_command(app, exit_code);
        // CLI11 takes the arguments in reverse.
        std::vector<std::string> args;
        for (int i = argc - 1; i > 0; --i) args.emplace_back(argv[i]);
        args.emplace_back(alias.tool);
        if (alias.tool != "tokens") args.emplace_back("skeleton");
        try {
            app.parse(args);
        } catch (const CLI::ParseError& e) {
            return app.exit(e) == 0 ? 0 : 2;
        }
        return exit_code;
    }
    return std::nullopt;
}

}  // namespace zerohop::cli
