// `zerohop tune`: measures again how a model runs best here, and shows the table.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "app/models.h"
#include "cli/command.h"
#include "cli/progress.h"
#include "engine/llama_engine.h"

namespace zerohop::cli {
namespace {

int run_tune(const std::string& model_flag, const std::string& config_path, bool as_json) {
    Result<app::Config> config = app::Config();
    if (!config_path.empty()) config = app::read_config(config_path);
    Result<engine::LlamaOptions> options =
        config ? app::llama_options(app::model_from_flag(model_flag), *config)
               : std::unexpected(config.error());
    if (!options) {
        fmt::print(stderr, "{}\n", options.error().detail);
        return 2;
    }
    ProgressBar progress("measuring");
    const Result<engine::TuneReport> report = engine::tune(
        *options,
        [&](std::string_view stage, double share) {
            progress.update(stage, static_cast<float>(share));
        },
        true);
    progress.finish();
    if (!report) {
        fmt::print(stderr, "{}\n", report.error().detail);
        return 2;
    }
    nlohmann::json rows = nlohmann::json::array();
    if (!as_json)
        fmt::print("{:>7} {:>6} {:>6} {:>8} {:>12} {:>10} {:>10}\n", "threads", "flash", "kv",
                   "layout", "prefill t/s", "1 t/s", "8 t/s");
    for (const engine::TuneRow& row : report->rows) {
        const bool best = row.threads == report->chosen.threads &&
                          row.kv_type == report->chosen.kv_type &&
                          row.flash_attention == report->chosen.flash_attention &&
                          row.unified == report->chosen.unified;
        const char* layout = row.unified ? "unified" : "split";
        rows.push_back({{"threads", row.threads},
                        {"flash_attention", row.flash_attention},
                        {"kv_type", row.kv_type},
                        {"kv_layout", layout},
                        {"valid", row.valid},
                        {"late", row.late},
                        {"prefill_tps", row.prefill_tps},
                        {"decode1_tps", row.decode1_tps},
                        {"decode8_tps", row.decode8_tps},
                        {"chosen", best}});
        if (as_json) continue;
        if (row.valid)
            fmt::print("{:>7} {:>6} {:>6} {:>8} {:>12.1f} {:>10.1f} {:>10.1f}{}\n", row.threads,
                       row.flash_attention ? "on" : "off", row.kv_type, layout, row.prefill_tps,
                       row.decode1_tps, row.decode8_tps, best ? "  <- chosen" : "");
        else
            fmt::print("{:>7} {:>6} {:>6} {:>8}  {}\n", row.threads,
                       row.flash_attention ? "on" : "off", row.kv_type, layout,
                       row.late ? "not through in time" : "not possible with this model or build");
    }
    if (as_json) fmt::print("{}\n", nlohmann::json{{"key", report->key}, {"rows", rows}}.dump());
    return 0;
}

}  // namespace

void add_tune_command(CLI::App& app, int& exit_code) {
    auto* tune = app.add_subcommand(
        "tune", "Measure how a model runs best on this machine; `serve` then uses it");
    auto model = std::make_shared<std::string>();
    auto config = std::make_shared<std::string>();
    auto as_json = std::make_shared<bool>(false);
    tune->add_option("model", *model, "GGUF file")->required();
    tune->add_option("--config", *config, "TOML file whose engine.cache_dir is used");
    tune->add_flag("--json", *as_json, "Print one JSON object");
    tune->footer(
        "Example:\n  zerohop tune smollm2.gguf\nMeasured: threads x flash attention x KV type x KV "
        "layout.");
    tune->callback([=, &exit_code] { exit_code = run_tune(*model, *config, *as_json); });
}

}  // namespace zerohop::cli
