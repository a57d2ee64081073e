#include "net/server.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <future>
#include <thread>

#include "base/log.h"
#include "net/server_state.h"
#include "net/worker.h"

namespace zerohop::net {

std::string BoundAddress::url() const {
    if (port == 0) return address;  // a unix socket
    const bool v6 = address.find(':') != std::string::npos;
    return fmt::format("{}://{}{}{}:{}", tls ? "https" : "http", v6 ? "[" : "", address,
                       v6 ? "]" : "", port);
}

namespace {
constexpr MonoNs kNewcomersNs = (Acceptor::kHandoverMs + 2'000) * kNsPerMs;
}

struct Server::Impl {
    Impl(ServerOptions o, wire::Dispatcher& dispatcher)
        : options(std::move(o)), state(options.limits, dispatcher) {}

    void close_listeners() {
        for (const auto& acceptor : acceptors)
            workers.front()->loop().post([acceptor] { acceptor->close(); });
        acceptors.clear();
    }
    void hand_over_listeners() {
        handover_ns = mono_now();
        for (const auto& acceptor : acceptors) {
            // wait_drained() must know of it from here on. Shared: set_value() may still be on its
            // way out when we go on.
            const auto begun = std::make_shared<std::promise<void>>();
            workers.front()->loop().post([acceptor, begun] {
                acceptor->hand_over();
                begun->set_value();
            });
            begun->get_future().wait();
        }
    }
    // What a drain waits for: requests, bytes to be sent, and at a handover connections that have
    // yet to ask (a little: who connects and asks nothing does not hold it up).
    std::int64_t pending() const {
        constexpr auto kRelaxed = std::memory_order_relaxed;
        const std::int64_t n = state.exchanges.load(kRelaxed) + state.handing_over.load(kRelaxed);
        if (n > 0) return n;
        const bool newcomers = handover_ns != 0 && mono_now() - handover_ns < kNewcomersNs &&
                               state.connections.load(kRelaxed) > 0;
        return newcomers || state.buffered.load(kRelaxed) > 0 ? 1 : 0;
    }

    ServerOptions options;
    ServerState state;
    std::vector<BoundAddress> bound;
    std::vector<std::unique_ptr<Worker>> workers;
    std::vector<std::shared_ptr<Acceptor>> acceptors;
    bool running = false;
    MonoNs handover_ns = 0;
};

Server::Server(ServerOptions options, wire::Dispatcher& dispatcher)
    : impl_(std::make_unique<Impl>(std::move(options), dispatcher)) {}

Server::~Server() { stop(); }

Status Server::start() {
    Impl& self = *impl_;
    const bool any_tls = std::ranges::any_of(self.options.listeners, &ListenerOptions::tls);
    if (any_tls)
        if (Status loaded = reload_certificate(); !loaded) return loaded;
    std::vector<Listening> listening;
    for (const ListenerOptions& options : self.options.listeners) {
        auto opened = open_listener(options);
        if (!opened) {
            for (Listening& l : listening) close_listener(l);
            return std::unexpected(std::move(opened.error()));
        }
        listening.push_back(std::move(*opened));
    }
    std::signal(SIGPIPE, SIG_IGN);
    for (int i = 0; i < std::max(1, self.options.io_threads); ++i)
        self.workers.push_back(std::make_unique<Worker>(self.state));
    for (Listening& l : listening) {
        self.bound.push_back({.address = l.address, .port = l.port, .tls = l.tls});
        self.acceptors.push_back(
            std::make_shared<Acceptor>(self.state, self.workers, std::move(l)));
    }
    for (const auto& acceptor : self.acceptors)
        self.workers.front()->loop().post([acceptor] { acceptor->start(); });
    for (std::size_t i = 0; i < self.workers.size(); ++i)
        self.workers[i]->start(static_cast<int>(i));
    self.running = true;
    return {};
}

std::vector<BoundAddress> Server::bound() const { return impl_->bound; }

void Server::begin_drain(DrainMode mode) {
    if (!impl_->running) return;
    impl_->state.draining.store(true, std::memory_order_relaxed);
    if (mode == DrainMode::kCloseListeners) impl_->hand_over_listeners();
    for (const auto& worker : impl_->workers) worker->post_drain();
}

std::int64_t Server::wait_drained(MonoNs deadline) {
    std::int64_t left = impl_->pending();
    while (left > 0 && mono_now() < deadline) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        left = impl_->pending();
    }
    return left;
}

void Server::stop() {
    Impl& self = *impl_;
    if (!self.running) return;
    self.running = false;
    self.close_listeners();
    // The first worker deals to the others: it ends first, so that nothing is dealt to a dead one.
    for (const auto& worker : self.workers) {
        worker->post_stop();
        worker->join();
    }
}

Status Server::reload_certificate() { return reload_certificate(impl_->options.tls); }

Status Server::reload_certificate(const TlsFiles& files) {
    auto context = TlsContext::load(files);
    if (!context) return std::unexpected(std::move(context.error()));
    impl_->options.tls = files;
    impl_->state.set_tls(std::move(*context));
    return {};
}

ServerStats Server::stats_approx() const {
    const ServerState& s = impl_->state;
    constexpr auto kRelaxed = std::memory_order_relaxed;
    return {.connections = s.connections.load(kRelaxed),
            .exchanges = s.exchanges.load(kRelaxed),
            .buffered_bytes = s.buffered.load(kRelaxed),
            .accepted = s.accepted.load(kRelaxed),
            .refused = s.refused.load(kRelaxed),
            .dropped = s.dropped.load(kRelaxed),
            .tls_failed = s.tls_failed.load(kRelaxed),
            .bytes_in = s.bytes_in.load(kRelaxed),
            .bytes_out = s.bytes_out.load(kRelaxed)};
}

}  // namespace zerohop::net
