// Server: wires the modules together and owns start and stop order.
//
//     start:  engines (load, measure)  →  API service  →  warm-ups  →  listeners
//     stop:   readiness off, GOAWAY / connection: close  →  running answers end or the deadline
//     comes
//             →  engines stop (the rest gets error events)  →  last bytes flushed  →  listeners,
//             loops
//
// Owning thread: the main thread (control). Errors of start(): one line, for exit code 2.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "app/config.h"
#include "app/models.h"
#include "app/signals.h"

namespace zerohop::app {

// The GGUF file that `./dev run` fetched, when nothing names a model. Error: says how to name one.
Result<std::string> default_model(const Config& config);

class Server {
  public:
    static Result<std::unique_ptr<Server>> start(const Config& config, const Progress& progress);
    ~Server();
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;

    // Reads the configuration again, as it was read at start.
    using Reread = std::function<Result<Config>()>;

    // Serves until SIGTERM or SIGINT, drains, returns the exit code. SIGHUP, or an admin's
    // POST /v1/config/reload, reloads the certificate, the keys, and of the configuration what
    // Field::reloads marks; what is broken, or needs a restart, is logged (and told to who asked)
    // and leaves in force what was.
    int run_until_signal(Signals& signals, const Reread& reread);

  private:
    Server();
    struct Parts;
    std::unique_ptr<Parts> parts_;
};

}  // namespace zerohop::app
