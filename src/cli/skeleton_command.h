// The skeleton's tools: `zerohop skeleton analyze|validate|optimize`, `zerohop tokens`, and the
// names under which the article knows them. Exit codes: 0 ok, 1 findings, 2 usage or unreadable
// input. Main thread only; the pattern is command.h's.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace zerohop::cli {

void add_skeleton_command(CLI::App& app, int& exit_code);
void add_tokens_command(CLI::App& app, int& exit_code);

// When the binary is called by one of these names, runs that tool and returns its exit code:
//   anthropic-skeleton-analyzer, anthropic-skeleton-validator, prompt-skeleton-optimize,
//   anthropic-tokens
// No value: main goes on. To be called first thing in main.
std::optional<int> run_as_alias(int argc, char** argv);

struct AnalyzeOptions {
    std::vector<std::string> paths;
    std::string model;
    bool verbose = false;
    bool show_tokens = false;
    bool json = false;
};
int run_analyze(const AnalyzeOptions& options);

struct ValidateOptions {
    std::vector<std::string> paths;
    bool json = false;
};
int run_validate(const ValidateOptions& options);

struct OptimizeCliOptions {
    std::vector<std::string> paths;
    std::vector<std::string> off;
    std::string rules;
    std::string model;
    bool check = false;
    bool json = false;
};
int run_optimize(const OptimizeCliOptions& options);

}  // namespace zerohop::cli
