// `zerohop serve`: flags on top of the configuration file, then the server until a signal.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "app/server.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/progress.h"

namespace zerohop::cli {
namespace {

struct ServeOptions {
    std::string config_path;
    std::vector<std::string> models;
    std::vector<std::string> listen;
    std::vector<std::string> listen_tls;
    std::string log_format;
    std::string log_level;
    bool no_tls = false;
};

Result<app::Config> merge(const ServeOptions& options) {
    Result<app::Config> config = app::Config();
    if (!options.config_path.empty()) config = app::read_config(options.config_path);
    if (!config) return config;
    for (const std::string& flag : options.models)
        config->models.push_back(app::model_from_flag(flag));
    if (config->models.empty()) {
        Result<std::string> fetched = app::default_model(*config);
        if (!fetched) return std::unexpected(fetched.error());
        config->models.push_back(app::model_from_flag(*fetched));
    }
    if (!options.listen.empty()) config->server.listen = options.listen;
    if (!options.listen_tls.empty()) config->server.listen_tls = options.listen_tls;
    if (options.no_tls) config->server.listen_tls.clear();
    if (!options.log_format.empty()) config->log.format = options.log_format;
    if (!options.log_level.empty()) config->log.level = options.log_level;
    if (Status s = app::finish_config(*config); !s) return std::unexpected(s.error());
    return config;
}

int run_serve(const ServeOptions& options) {
    const Result<app::Config> config = merge(options);
    if (!config) {
        fmt::print(stderr, "{}\n", config.error().detail);
        return 2;
    }
    init_log(config->log.format, config->log.level);
    app::Signals signals;  // in front of the server: its destructors may be interrupted
    Result<std::unique_ptr<app::Server>> server(nullptr);
    {
        ProgressBar progress("loading");
        server = app::Server::start(
            *config, [&](std::string_view what, float share) { progress.update(what, share); });
    }
    if (!server) {
        fmt::print(stderr, "{}\n", server.error().detail);
        return 2;
    }
    return (*server)->run_until_signal(signals, [&options] { return merge(options); });
}

}  // namespace

void add_serve_command(CLI::App& app, int& exit_code) {
    auto* serve = app.add_subcommand("serve", "Serve models over HTTP/1.1, HTTP/2 and TLS");
    auto options = std::make_shared<ServeOptions>();
    serve->add_option("--config", options->config_path,
                      "TOML file (see `zerohop config defaults`)");
    serve
        ->add_option("--model", options->models,
                     "GGUF file, optionally =public-id; repeat for several. Default: a model "
                     "`./dev run` fetched")
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    serve
        ->add_option("--listen", options->listen,
                     "Clear-text address:port, or unix:PATH; repeat for several [127.0.0.1:8080]")
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    serve
        ->add_option("--listen-tls", options->listen_tls,
                     "TLS address:port; repeat for several [127.0.0.1:8443]")
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    serve->add_flag("--no-tls", options->no_tls, "No TLS listener");
    serve->add_option("--log-format", options->log_format, "auto, human or json")
        ->check(CLI::IsMember({"auto", "human", "json"}));
    serve->add_option("--log-level", options->log_level, "debug, info, warn or error")
        ->check(CLI::IsMember({"debug", "info", "warn", "error"}));
    serve->footer(
        "Examples:\n"
        "  zerohop serve --model smollm2.gguf=smollm2\n"
        "  zerohop serve --config zerohop.toml --listen 0.0.0.0:8080     (needs a key: zerohop key "
        "create)\n"
        "  zerohop serve --model null:tokens=64,delay_ms=5=null --no-tls (scripted engine, for "
        "load tests)\n"
        "Signals: SIGTERM drains and exits 0 (a second one, or one while it starts, at once), "
        "SIGHUP reloads the "
        "certificate,\nthe keys and a part of the configuration, as `zerohop config reload` "
        "does (see its --help).\n"
        "Exit code 2: it could not start; the reason is the last line.");
    serve->callback([options, &exit_code] { exit_code = run_serve(*options); });
}

}  // namespace zerohop::cli
