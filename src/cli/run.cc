#include <CLI/CLI.hpp>

#include "app/version.h"
#include "cli/command.h"
#include "cli/key_command.h"
#include "cli/skeleton_command.h"

namespace zerohop::cli {

int run(int argc, char** argv) {
    if (const auto code = run_as_alias(argc, argv)) return *code;
    CLI::App app{"zerohop: the whole serving stack of a language model in one process"};
    app.require_subcommand(1);
    app.set_version_flag("--version", [] { return app::version_text(); });
    app.footer(
        "Examples:\n"
        "  zerohop serve --model smollm2.gguf            serve a model on 127.0.0.1:8080 and :8443 "
        "(TLS)\n"
        "  zerohop ask \"Why is the sky blue?\"            ask the running server, or a model "
        "file\n"
        "  zerohop key create --workspace team-a         an API key, taken up while the server "
        "runs\n"
        "  zerohop config defaults > zerohop.toml        every setting, explained\n"
        "`zerohop COMMAND --help` says more about each.");
    int exit_code = 0;
    add_serve_command(app, exit_code);
    add_ask_command(app, exit_code);
    add_models_command(app, exit_code);
    add_config_command(app, exit_code);
    add_key_command(app, exit_code);
    add_tune_command(app, exit_code);
    add_skeleton_command(app, exit_code);
    add_tokens_command(app, exit_code);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& e) {
        const int code = app.exit(e);
        return code == 0 ? 0 : 2;  // usage
    }
    return exit_code;
}

}  // namespace zerohop::cli
