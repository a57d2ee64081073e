// Server: listeners, I/O threads and connections; hands each request's head to one Dispatcher.
//
// Threads: construct, start, begin_drain, wait_drained, stop and reload from one control thread;
// the stats from any. The Dispatcher is called on all I/O threads at once and outlives the Server.
// Lifetime: stop() (and the destructor) disconnects every Exchange before it returns. Whoever may
// still call Loop::signal() or post() must have ended before the Server is destroyed, not before
// stop(). start() sets SIGPIPE to ignored for the process (OpenSSL writes without MSG_NOSIGNAL).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "net/limits.h"
#include "net/listener.h"
#include "net/tls_context.h"
#include "wire/http.h"

namespace zerohop::net {

struct ServerOptions {
    std::vector<ListenerOptions> listeners;
    int io_threads = 2;
    Limits limits;
    TlsFiles tls;  // needed when a listener has tls
};

struct BoundAddress {
    std::string address;  // "unix:/path" with port 0, or an address
    std::uint16_t port = 0;
    bool tls = false;
    std::string url() const;  // "https://127.0.0.1:8443", "unix:/path"
};

// Readings of counters other threads write: each is right, together they may not add up.
struct ServerStats {
    std::int64_t connections = 0;
    std::int64_t exchanges = 0;  // requests being answered
    std::int64_t buffered_bytes = 0;
    std::uint64_t accepted = 0;
    std::uint64_t refused = 0;  // connections over a limit, or out of descriptors
    std::uint64_t dropped = 0;  // closed for time-outs, stalls or memory
    std::uint64_t tls_failed = 0;
    std::uint64_t bytes_in = 0;
    std::uint64_t bytes_out = 0;
};

enum class DrainMode {
    kAnswer,          // go on accepting: the dispatcher answers 503, each answer closes
    kCloseListeners,  // a successor listens: newcomers are steered to it, none is dropped
};

class Server {
  public:
    Server(ServerOptions options, wire::Dispatcher& dispatcher);
    ~Server();
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;

    // Errors say what cannot be bound or read, and why; nothing runs then.
    Status start();
    std::vector<BoundAddress> bound() const;  // in the order of the listeners

    // Idle connections close, others after their present requests (h1 `connection: close`, h2
    // GOAWAY).
    void begin_drain(DrainMode mode);
    // Waits until no request is being answered, nothing waits to be sent and no listener is being
    // handed over, at most until `deadline`. Returns how many of these are still going on.
    std::int64_t wait_drained(MonoNs deadline);
    void stop();  // at once; idempotent

    // Reads the files again (the same, or others). On an error the old certificate stays.
    Status reload_certificate();
    Status reload_certificate(const TlsFiles& files);

    ServerStats stats_approx() const;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace zerohop::net
