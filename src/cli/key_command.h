// `zerohop key create|list|revoke|rotate-secret`: API keys and token secrets in the key file.
//
// Joins the binary as command.h says. Works on the file alone: a running server picks changes up by
// itself within a second. Main thread.
#pragma once

namespace CLI {
class App;
}

namespace zerohop::cli {

// exit_code: 0 done; 1 no such key, or the file cannot be read or written; 2 unusable arguments.
void add_key_command(CLI::App& app, int& exit_code);

}  // namespace zerohop::cli
