// How a subcommand joins the binary: one function per command file, called by run.
//
// Each add_*_command(app, exit_code) declares its CLI11 subcommand (description, options, footer
// with examples) and a callback that does the work and sets exit_code (0 done, 1 findings or
// failed, 2 usage or cannot start). Main thread only.
#pragma once

namespace CLI {
class App;
}

namespace zerohop::cli {

// The whole binary; its exit code.
int run(int argc, char** argv);

void add_serve_command(CLI::App& app, int& exit_code);
void add_ask_command(CLI::App& app, int& exit_code);
void add_models_command(CLI::App& app, int& exit_code);
void add_config_command(CLI::App& app, int& exit_code);
void add_tune_command(CLI::App& app, int& exit_code);

}  // namespace zerohop::cli
