#include "app/server.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <filesystem>
#include <map>
#include <thread>
#include <utility>

#include "api/service.h"
#include "app/access_log.h"
#include "app/admission.h"
#include "app/config_changes.h"
#include "app/reload_desk.h"
#include "app/version.h"
#include "app/warm_up.h"
#include "base/log.h"
#include "net/dev_cert.h"
#include "net/server.h"

namespace zerohop::app {
namespace {

// What running answers may still take to leave after their engine was stopped.
constexpr std::int64_t kFlushNs = 2 * kNsPerSec;
// How often the control thread looks at the key file and lets reservations lapse.
constexpr MonoNs kTickNs = kNsPerSec / 2;

Status listen_on_path(std::string_view path, const std::string& mode,
                      net::ListenerOptions& options) {
    if (!path.starts_with('/'))
        return fail(
            Code::kInvalidRequest, "config",
            fmt::format("\"unix:{}\" must name a whole path: unix:/run/zerohop.sock", path));
    options.path = path;
    const char* const end = mode.data() + mode.size();
    const auto [at, ec] = std::from_chars(mode.data(), end, options.mode, 8);
    if (ec == std::errc() && at == end && options.mode <= 0777) return {};
    return fail(Code::kInvalidRequest, "config",
                fmt::format("server.socket_mode is \"{}\", but must be an octal mode such as "
                            "\"0600\" or \"0660\"",
                            mode));
}

Result<net::ListenerOptions> listener_of(const std::string& text, bool tls,
                                         const Config::Server& server) {
    net::ListenerOptions options;
    options.tls = tls;
    options.reuse_port = server.reuse_port;
    if (text.starts_with("unix:")) {
        Status s = listen_on_path(std::string_view(text).substr(5), server.socket_mode, options);
        if (!s) return std::unexpected(s.error());
        return options;
    }
    if (text.starts_with("fd:")) {
        const auto [end, ec] =
            std::from_chars(text.data() + 3, text.data() + text.size(), options.inherited_fd);
        if (ec != std::errc() || end != text.data() + text.size())
            return fail(
                Code::kInvalidRequest, "config",
                fmt::format("\"{}\" is no descriptor: write fd:3 for the first socket", text));
        const std::vector<int> passed = net::activation_fds();
        if (std::ranges::find(passed, options.inherited_fd) == passed.end())
            return fail(Code::kInvalidRequest, "config",
                        fmt::format("{}: no such socket was handed to this process (systemd "
                                    "passed {}); enable zerohop.socket or name an address",
                                    text, passed.size()));
        return options;
    }
    const std::size_t colon = text.rfind(':');
    std::string_view address = std::string_view(text).substr(0, colon);
    if (address.starts_with('[') && address.ends_with(']'))
        address = address.substr(1, address.size() - 2);
    options.address = address == "localhost" ? "127.0.0.1" : address == "*" ? "0.0.0.0" : address;
    unsigned port = 65'536;
    if (colon != std::string::npos)
        std::from_chars(text.data() + colon + 1, text.data() + text.size(), port);
    if (port > 65'535 || address.empty())
        return fail(Code::kInvalidRequest, "config",
                    fmt::format("\"{}\" is no address to listen on: write ADDRESS:PORT, e.g. "
                                "127.0.0.1:8080 or [::1]:8080, or unix:/PATH",
                                text));
    options.port = static_cast<std::uint16_t>(port);
    return options;
}

// Whether only this machine, or of a unix socket only its owner, gets to it.
bool is_private(const net::ListenerOptions& listener) {
    if (listener.inherited_fd >= 0) return false;
    if (!listener.path.empty()) return (listener.mode & 0077) == 0;
    return listener.address.starts_with("127.") || listener.address == "::1";
}

Result<std::vector<net::ListenerOptions>> listeners_of(const Config& config, bool has_keys) {
    std::vector<net::ListenerOptions> listeners;
    for (const bool tls : {false, true}) {
        for (const std::string& text : tls ? config.server.listen_tls : config.server.listen) {
            Result<net::ListenerOptions> listener = listener_of(text, tls, config.server);
            if (!listener) return std::unexpected(listener.error());
            if (!has_keys && !is_private(*listener))
                return fail(Code::kInvalidRequest, "config",
                            fmt::format("{} can be reached by others, but there are no API keys: "
                                        "make one (`zerohop "
                                        "key create --workspace NAME`), or listen on 127.0.0.1 "
                                        "or a unix socket of mode 0600",
                                        text));
            listeners.push_back(std::move(*listener));
        }
    }
    if (listeners.empty())
        return fail(Code::kInvalidRequest, "config",
                    "nothing to listen on: set server.listen or server.listen_tls");
    return listeners;
}

net::Limits limits_of(const Config& config) {
    const Config::Limits& in = config.limits;
    net::Limits out;
    out.connections = static_cast<std::size_t>(in.connections);
    out.connections_per_address = static_cast<std::size_t>(in.connections_per_address);
    out.handshake_ms = in.handshake_s * 1000;
    out.connection_bytes = static_cast<std::size_t>(in.connection_buffer_bytes);
    out.total_bytes = static_cast<std::size_t>(in.total_buffer_bytes);
    out.wire.head_bytes = static_cast<std::size_t>(in.head_bytes);
    out.wire.header_count = static_cast<std::size_t>(in.head_fields);
    out.wire.head_ms = in.head_s * 1000;
    out.wire.idle_ms = in.idle_s * 1000;
    out.wire.body_idle_ms = in.body_idle_s * 1000;
    out.wire.body_ms = in.body_s * 1000;
    out.wire.min_rate = in.min_bytes_per_s;
    out.wire.write_stall_ms = in.write_stall_s * 1000;
    out.wire.h2_streams = static_cast<std::uint32_t>(in.streams_per_connection);
    return out;
}

// The lines that point clients here, to be copied.
void log_setup_help(const std::vector<net::BoundAddress>& bound, const std::string& model,
                    bool keys) {
    const auto http = [](const net::BoundAddress& b) { return b.url().starts_with("http:"); };
    const auto found = std::ranges::find_if(bound, http);
    if (found == bound.end()) return;
    const std::string url = found->url(), key = keys ? "YOUR-KEY" : "any";
    log_info("app", "Python: anthropic.Anthropic(base_url=\"{}\", api_key=\"{}\")", url, key);
    log_info("app", "TypeScript: new Anthropic({{ baseURL: \"{}\", apiKey: \"{}\" }})", url, key);
    log_info("app",
             "curl {}/v1/messages -H 'x-api-key: {}' -H 'anthropic-version: 2023-06-01' "
             "-H 'content-type: application/json' -d '{{\"model\":\"{}\",\"max_tokens\":64,"
             "\"messages\":[{{\"role\":\"user\",\"content\":\"Hello\"}}]}}'",
             url, key, model);
}

}  // namespace

struct Server::Parts {
    Config config;
    std::unique_ptr<MemoryBudget> body_budget;  // before who may still hold a request at the end
    std::vector<std::unique_ptr<EnginePort>> engines;
    std::vector<std::shared_ptr<sched::QueueGauge>> gauges;  // of engines, in their order
    ReloadDesk reloads;
    std::unique_ptr<Admission> admission;
    std::unique_ptr<AccessLog> access_log;
    std::unique_ptr<api::Service> service;
    std::unique_ptr<net::Server> net;
    bool any_tls = false;
    std::atomic<bool> draining{false};

    ~Parts() {
        // Engines signal loops until they have ended; the front's exchanges use engines.
        if (net) net->stop();
        for (auto& engine : engines) engine->stop();
        if (service) service->stop();
        net.reset();
    }

    Status load_engines(const Progress& progress);
    Status start_api();
    Status start_net();
    bool has_successor() const;
    void drain(const Signals& signals);
    api::ReloadOutcome reload(const Reread& reread);
    Status take_up(const Config& fresh);
};

Status Server::Parts::load_engines(const Progress& progress) {
    for (const ModelConfig& model : config.models) {
        gauges.push_back(std::make_shared<sched::QueueGauge>());
        Result<std::unique_ptr<EnginePort>> engine =
            load_model(model, config, gauges.back(), admission->lane_caps(), progress);
        if (!engine) return std::unexpected(engine.error());
        engines.push_back(std::move(*engine));
    }
    return {};
}

Status Server::Parts::start_api() {
    if (Status started = admission->start(config, engines, gauges); !started) return started;
    api::ServiceOptions options;
    for (std::size_t i = 0; i < engines.size(); ++i) {
        const ModelConfig& model = config.models[i];
        options.models.push_back(
            {.id = model.id,
             .engine = engines[i].get(),
             .aliases = admission->models()[i].aliases,
             .fallback = admission->models()[i].fallback,
             .max_output_tokens = static_cast<std::int32_t>(model.max_output_tokens)});
    }
    options.head_policy = &admission->policy();
    options.answer_token = &Admission::answer_token;
    options.answer_topology = &Admission::answer_topology;
    options.reload = [this](ReloadDesk::Done done) { reloads.ask(std::move(done)); };
    options.sampling_params = config.api.sampling_params == "strict" ? api::SamplingParams::kStrict
                                                                     : api::SamplingParams::kAccept;
    options.default_version = api::parse_version(config.api.default_version);
    options.body_cap_bytes = config.limits.body_bytes;
    body_budget = std::make_unique<MemoryBudget>(
        config.limits.total_buffer_bytes,
        std::max(config.limits.total_buffer_bytes / 2, config.limits.body_bytes));
    options.body_budget = body_budget.get();
    options.cors_origins = config.api.cors_origins;
    options.readyz_details = config.server.readyz_details;
    options.drop_lines = config.cache.drop_lines;
    options.isolate_users = config.cache.isolate == "user";
    options.cache_groups = cache_groups(config);
    options.ping_interval_ms = config.api.ping_s * 1000;
    options.header_delay_ms = config.api.header_delay_s * 1000;
    options.whole_keepalive_ms = config.api.keepalive_whitespace_s * 1000;
    options.deadline_ms = config.api.request_timeout_s * 1000;
    options.draining = [this] { return draining.load(std::memory_order_relaxed); };
    if (!config.server.access_log.empty()) {
        Result<std::unique_ptr<AccessLog>> log = AccessLog::open(config.server.access_log);
        if (!log) return std::unexpected(log.error());
        access_log = std::move(*log);
        options.access = access_log.get();
    }
    service = std::make_unique<api::Service>(std::move(options));
    return {};
}

Status Server::Parts::start_net() {
    Result<std::vector<net::ListenerOptions>> listeners =
        listeners_of(config, admission->has_keys());
    if (!listeners) return std::unexpected(listeners.error());
    net::ServerOptions options;
    options.limits = limits_of(config);
    options.io_threads = static_cast<int>(config.server.io_threads);
    if (options.io_threads == 0)
        options.io_threads =
            static_cast<int>(std::max(1U, std::thread::hardware_concurrency() / 4));
    options.tls = {config.tls.certificate, config.tls.key};
    any_tls = std::ranges::any_of(*listeners, [](const auto& l) { return l.tls; });
    if (any_tls && options.tls.certificate.empty()) {
        const Result<std::string> cache = cache_dir(config);
        if (!cache) return std::unexpected(cache.error());
        Result<net::DevCert> dev = net::ensure_dev_cert(*cache + "/dev-cert");
        if (!dev) return std::unexpected(dev.error());
        options.tls = dev->files;
        log_info("tls",
                 "development certificate for localhost; trust it with: curl --cacert {0}, "
                 "NODE_EXTRA_CA_CERTS={0} or SSL_CERT_FILE={0}",
                 dev->ca);
    }
    options.listeners = std::move(*listeners);
    net = std::make_unique<net::Server>(std::move(options), *service);
    if (Status s = net->start(); !s) return s;
    for (const net::BoundAddress& bound : net->bound())
        log_info("net", "listening on {}", bound.url());
    return {};
}

// Whether another process may listen in our place: then nothing is refused on our way out, what
// still reaches us is answered and newcomers are the successor's.
bool Server::Parts::has_successor() const {
    const auto handed = [](const std::string& text) { return text.starts_with("fd:"); };
    return config.server.reuse_port || std::ranges::any_of(config.server.listen, handed) ||
           std::ranges::any_of(config.server.listen_tls, handed);
}

void Server::Parts::drain(const Signals& signals) {
    for (const auto& done : reloads.close())
        done(fail(Code::kUnavailable, "app", "the server is shutting down"));
    draining = !has_successor();
    net->begin_drain(draining ? net::DrainMode::kAnswer : net::DrainMode::kCloseListeners);
    const net::ServerStats stats = net->stats_approx();
    log_info("app", "draining: {} running, at most {} s (a second signal ends at once)",
             stats.exchanges, config.server.drain_s);
    const MonoNs deadline = mono_now() + config.server.drain_s * kNsPerSec;
    while (!signals.hurry() && mono_now() < deadline)
        if (net->wait_drained(std::min(deadline, mono_now() + kNsPerSec / 5)) == 0) break;
    for (auto& engine : engines) engine->drain();
    for (auto& engine : engines) engine->stop();  // what still runs gets its error event
    if (!signals.hurry()) net->wait_drained(mono_now() + kFlushNs);
    net->stop();
}

Result<std::string> default_model(const Config& config) {
    const Result<std::string> cache = cache_dir(config);
    std::error_code ec;
    if (cache)
        for (const auto& entry : std::filesystem::directory_iterator(*cache + "/models", ec))
            if (entry.path().extension() == ".gguf") return entry.path().string();
    return fail(Code::kInvalidRequest, "app",
                "no model: name one with --model FILE.gguf (or fetch a small one with ./dev run)");
}

Server::Server() : parts_(std::make_unique<Parts>()) {}
Server::~Server() = default;

Result<std::unique_ptr<Server>> Server::start(const Config& config, const Progress& progress) {
    std::unique_ptr<Server> server(new Server);
    Parts& parts = *server->parts_;
    parts.config = config;
    // Cheap mistakes first: no minutes of loading before "there are no API keys".
    Result<std::unique_ptr<Admission>> admission = Admission::open(config);
    if (!admission) return std::unexpected(admission.error());
    parts.admission = std::move(*admission);
    if (auto listeners = listeners_of(config, parts.admission->has_keys()); !listeners)
        return std::unexpected(listeners.error());
    if (Status s = parts.load_engines(progress); !s) return std::unexpected(s.error());
    if (Status s = parts.start_api(); !s) return std::unexpected(s.error());
    warm_up_all(config, parts.service->catalog(), progress);
    if (Status s = parts.start_net(); !s) return std::unexpected(s.error());
    for (const auto& engine : parts.engines)
        log_info("app", "serving {}: {} tokens of context", engine->info().id,
                 engine->info().context_tokens);
    log_setup_help(parts.net->bound(), parts.engines.front()->info().id,
                   parts.admission->has_keys());
    log_info("app", "zerohop {} is ready", version_number());
    return server;
}

// The topology and the names that bodies use; the tables of both change one after the other, so for
// an instant a new alias is known to one of them only.
Status Server::Parts::take_up(const Config& fresh) {
    if (Status s = admission->reload_topology(fresh); !s) return s;
    std::map<std::string, std::vector<std::string>> aliases;
    std::string fallback;
    for (const admit::Model& model : admission->models()) {
        aliases[model.id] = model.aliases;
        if (model.fallback) fallback = model.id;
    }
    service->catalog().set_names(aliases, fallback);
    return {};
}

// Each part by itself: what is broken stays as it was, the rest is taken up. The error names all
// that was not.
api::ReloadOutcome Server::Parts::reload(const Reread& reread) {
    if (access_log) access_log->reopen();
    std::string broken;
    const auto refused = [&broken](std::string_view what, const Error& error) {
        log_error("config", "{} not reloaded, the old stays: {}", what, error.detail);
        broken += fmt::format("{}{} not reloaded, the old stays: {}", broken.empty() ? "" : "; ",
                              what, error.detail);
    };
    if (any_tls) {
        if (Status s = net->reload_certificate(); !s)
            refused("certificate", s.error());
        else
            log_info("tls", "certificate reloaded");
    }
    const Result<Config> fresh = reread();
    if (!fresh)
        refused("configuration", fresh.error());
    else if (Status s = take_up(*fresh); !s)
        refused("topology", s.error());
    else
        log_info("app", "topology and quotas reloaded");
    if (Status s = admission->reload_keys(); !s) refused("keys", s.error());
    std::vector<std::string> later;
    if (fresh) later = needs_restart(config, *fresh);
    if (!later.empty()) log_warn("config", "needs a restart: {}", fmt::join(later, ", "));
    if (broken.empty()) return later;
    if (!later.empty()) broken += fmt::format("; needs a restart: {}", fmt::join(later, ", "));
    return fail(Code::kInvalidRequest, "config", std::move(broken));
}

int Server::run_until_signal(Signals& signals, const Reread& reread) {
    signals.serving();
    for (;;) {
        const Signals::Event event = signals.wait(kTickNs);
        parts_->admission->tick(mono_now());
        if (event == Signals::Event::kReload) {
            const std::vector<ReloadDesk::Done> waiting = parts_->reloads.take();
            const api::ReloadOutcome outcome = parts_->reload(reread);
            for (const auto& done : waiting) done(outcome);
        } else if (event == Signals::Event::kStop) {
            parts_->drain(signals);
            log_info("app", "stopped");
            return 0;
        }
    }
}

}  // namespace zerohop::app
