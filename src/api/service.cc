#include "api/service.h"

#include <algorithm>

#include "api/cached.h"
#include "api/gzip.h"
#include "api/ids.h"
#include "api/json_text.h"
#include "api/models.h"
#include "api/origin.h"
#include "api/reload_exchange.h"
#include "api/token_exchange.h"
#include "api/trace.h"

namespace zerohop::api {
namespace {

// Already answered: nothing that still arrives matters. Keeps what the head reserved until the end.
class AnsweredExchange final : public wire::Exchange {
  public:
    explicit AnsweredExchange(std::unique_ptr<Admission> admission = nullptr)
        : admission_(std::move(admission)) {}
    void on_body(std::string_view) override {}
    void on_body_end() override {}
    void on_writable() override {}
    void on_disconnect() override {}

  private:
    std::unique_ptr<Admission> admission_;
};

bool is_of_this_machine(const wire::RequestHead& head) {
    return head.peer == "unix" ||
           (is_loopback_host(head.peer) && is_loopback_host(host_of(head.authority)));
}

void append_stats(std::string& body, const ServedModel& model) {
    const EngineStats stats = model.engine->stats_approx();
    const auto add = [&body](std::string_view name, std::uint64_t value) {
        body += ",\"";
        body += name;
        body += "\":";
        append_int(body, static_cast<std::int64_t>(value));
    };
    body += R"({"id":)";
    append_json_string(body, model.id);
    add("waiting", stats.waiting);
    add("running", stats.running);
    add("paused", stats.paused);
    add("kv_tokens_used", stats.kv_tokens_used);
    add("kv_tokens_total", stats.kv_tokens_total);
    add("steps", stats.steps);
    add("prompt_tokens_computed", stats.prompt_tokens_computed);
    add("output_tokens", stats.output_tokens);
    add("cancelled", stats.cancelled);
    add("last_cancel_ns", stats.last_cancel_ns);
    add("block_needs", stats.block_needs);
    add("block_hits", stats.block_hits);
    add("evicted_blocks", stats.evicted_blocks);
    add("drafts_proposed", stats.drafts_proposed);
    add("drafts_accepted", stats.drafts_accepted);
    add("pool_tokens", stats.pool_tokens);
    add("host_bytes", stats.host_bytes);
    body += '}';
}

std::string lower_case(std::string_view text) {
    std::string out(text);
    for (char& c : out)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
    return out;
}

// Whether `x-anthropic-<name>` or its alias has this value; what is malformed was refused before.
bool asks(const wire::RequestHead& head, std::string_view name, std::string_view value) {
    for (const std::string_view prefix : {"x-anthropic-", "x-zerohop-"})
        if (lower_case(head.header(std::string(prefix) + std::string(name))) == value) return true;
    return false;
}

Error unknown_version(std::string_view value) {
    return Error{
        .code = Code::kInvalidRequest,
        .detail = value.empty()
                      ? "anthropic-version: header is required; known versions: " +
                            std::string(kKnownVersions)
                      : "anthropic-version: " + in_quotes(value) +
                            " is not known; known versions: " + std::string(kKnownVersions),
        .origin = "api"};
}

// Of those that have one value, two are as good as none: which one is meant is not for us to guess.
Status check_said_once(const wire::RequestHead& head) {
    for (const std::string_view name : {"anthropic-version", "content-type", "content-encoding",
                                        "x-anthropic-skeleton", "x-zerohop-skeleton"})
        if (head.differs(name))
            return fail(Code::kInvalidRequest, "api",
                        std::string(name) + ": was sent twice with different values; send one");
    return {};
}

// application/json, whatever its parameters.
Status check_content_type(const wire::RequestHead& head) {
    const std::string_view value = head.header("content-type");
    std::string media = lower_case(value.substr(0, value.find(';')));
    media.erase(media.find_last_not_of(" \t") + 1);
    if (media == "application/json") return {};
    return fail(Code::kUnsupportedMedia, "api",
                value.empty() ? "content-type: header is required and must be application/json"
                              : "content-type: must be application/json, not " + in_quotes(value));
}

}  // namespace

Service::Service(ServiceOptions options)
    : options_(std::move(options)), catalog_(options_.models) {}

AnswerContext Service::make_context(const wire::RequestHead& head) const {
    AnswerContext context;
    context.request_id = new_id("req_");
    context.trace_id = new_trace_id();
    context.accept_gzip = accepts_gzip(head.header("accept-encoding"));
    context.head_only = head.method == "HEAD";
    if (const auto parent = trace_parent_of(head)) {
        context.trace_parent = parent->ids();
        context.headers.push_back(
            {"traceparent", make_traceparent(context.trace_id, new_span_id(), parent->sampled)});
    }
    add_cors(head, context);
    return context;
}

std::unique_ptr<wire::Exchange> Service::on_head(const wire::RequestHead& head,
                                                 wire::Responder& responder) {
    if (options_.access == nullptr) return answer(head, responder, nullptr);
    return std::make_unique<LoggedExchange>(*options_.access, options_.clock, head, responder,
                                            [&](wire::Responder& watched, AccessRecord& record) {
                                                return answer(head, watched, &record);
                                            });
}

std::unique_ptr<wire::Exchange> Service::answer(const wire::RequestHead& head,
                                                wire::Responder& responder, AccessRecord* record) {
    AnswerContext context = make_context(head);
    const auto refuse = [&](const Error& error, const std::vector<wire::Header>& extra = {}) {
        answer_error(responder, context, error, extra);
        return std::make_unique<AnsweredExchange>();
    };
    const Result<Route> route = match_route(head.path(), head.method);
    if (!route) return refuse(route.error());
    context.openai_request_id = route->id == RouteId::kModelList || route->id == RouteId::kModel;
    if (head.method == "OPTIONS" && !allowed_origin(head).empty()) {
        answer_preflight(head, responder, context);
        return std::make_unique<AnsweredExchange>();
    }
    if (!route->allows(head.method)) {
        const std::string allowed(route->methods);
        return refuse(
            Error{.code = Code::kMethodNotAllowed,
                  .detail = in_quotes(head.method) + " is not allowed here; use " + allowed,
                  .origin = "api"},
            {{"allow", allowed}});
    }
    if (route->id == RouteId::kHealth || route->id == RouteId::kReady) {
        answer_health(route->id, head, responder, context);
        return std::make_unique<AnsweredExchange>();
    }
    if (auto ok = check_origin(head); !ok) return refuse(ok.error());
    if ((route->id == RouteId::kToken && !options_.answer_token) ||
        (route->id == RouteId::kTopology && !options_.answer_topology) ||
        (route->id == RouteId::kReload && !options_.reload))
        return refuse(Error{.code = Code::kNotFound,
                            .detail = in_quotes(head.path()) + " is not served here",
                            .origin = "api"});
    if (options_.is_draining())
        return refuse(Error{.code = Code::kUnavailable,
                            .detail = "the server is shutting down; try again",
                            .origin = "api"});
    Result<HeadDecision> decision = decide(head, route->asks);
    if (!decision) return refuse(decision.error());
    if (record != nullptr) {
        record->workspace = decision->principal.workspace;
        record->key_id = decision->principal.key_id;
    }
    const auto refund = [&](const Error& error) {
        decision->admission->refund_request(options_.now());
        return refuse(error);
    };
    std::ranges::move(decision->response_headers, std::back_inserter(context.headers));
    if (auto ok = check_size(head, decision->principal); !ok) return refund(ok.error());
    if (auto ok = check_said_once(head); !ok) return refund(ok.error());

    if (route->id == RouteId::kToken)
        return std::make_unique<TokenExchange>(
            options_, responder, std::move(context), std::move(decision->admission),
            lower_case(head.header("content-encoding")), head.content_length);
    if (route->id == RouteId::kReload) {
        if (!decision->principal.admin)
            return refuse(Error{.code = Code::kPermission,
                                .detail = "only an admin key may reload the configuration",
                                .origin = "api"});
        return std::make_unique<ReloadExchange>(options_, responder, std::move(context));
    }
    if (route->id == RouteId::kTopology) {
        Result<std::string> body = options_.answer_topology(*decision->admission);
        if (!body) return refuse(body.error());
        answer_json(responder, context, 200, std::move(*body));
        return std::make_unique<AnsweredExchange>(std::move(decision->admission));
    }

    const std::string_view version_text = head.header("anthropic-version");
    const std::optional<Version> version =
        version_text.empty() ? options_.default_version : parse_version(version_text);
    const bool messages = route->id == RouteId::kMessages || route->id == RouteId::kCountTokens;
    if (!version && (messages || !version_text.empty()))
        return refund(unknown_version(version_text));
    if (route->id == RouteId::kModelList || route->id == RouteId::kModel) {
        answer_models(*route, head, responder, context, *decision->admission);
        return std::make_unique<AnsweredExchange>(std::move(decision->admission));
    }
    if (route->id == RouteId::kCache || route->id == RouteId::kCached) {
        answer_cache(*route, head, *decision, responder, context);
        return std::make_unique<AnsweredExchange>(std::move(decision->admission));
    }
    // Warm-ups come from shells, where curl calls every body a form. From a browser that would let
    // any page ask for one.
    if (messages || head.has("origin"))
        if (auto ok = check_content_type(head); !ok) return refund(ok.error());
    return std::make_unique<MessagesExchange>(
        options_, catalog_, responder,
        MessagesHead{.endpoint = route->id == RouteId::kCountTokens ? Endpoint::kCountTokens
                                 : route->id == RouteId::kWarmUp    ? Endpoint::kWarmUp
                                                                    : Endpoint::kMessages,
                     .version = version.value_or(Version::k2026_10_21),
                     .answer = std::move(context),
                     .principal = std::move(decision->principal),
                     .record = record,
                     .admission = std::move(decision->admission),
                     .skeleton = &skeleton_,
                     .workers = &workers_,
                     .debug_skeleton = asks(head, "debug", "skeleton"),
                     .strict_skeleton = asks(head, "skeleton", "strict"),
                     .content_encoding = lower_case(head.header("content-encoding")),
                     .content_length = head.content_length,
                     .received_ns = head.first_byte_ns != 0 ? head.first_byte_ns : options_.now()});
}

Result<HeadDecision> Service::decide(const wire::RequestHead& head, Asks asks) const {
    Result<HeadDecision> decision = HeadDecision{};
    if (options_.head_policy != nullptr) decision = options_.head_policy->decide(head, asks);
    if (!decision) return decision;
    if (!decision->admission) decision->admission = std::make_unique<Admission>();
    join_cache_group(decision->principal, options_.cache_groups);
    return decision;
}

Status Service::check_size(const wire::RequestHead& head, const Principal& principal) const {
    if (head.content_length > options_.body_cap_bytes)
        return std::unexpected(body_too_large(options_.body_cap_bytes));
    if (options_.body_budget != nullptr &&
        !options_.body_budget->has_room_for(MemoryBudget::slot_of(principal.workspace),
                                            head.content_length))
        return std::unexpected(bodies_full());
    return {};
}

void Service::answer_health(RouteId id, const wire::RequestHead& head, wire::Responder& responder,
                            const AnswerContext& context) const {
    if (id == RouteId::kHealth) return answer_json(responder, context, 200, R"({"status":"ok"})");
    if (options_.is_draining())
        return answer_json(responder, context, 503, R"({"status":"draining"})");
    if (!options_.is_ready())
        return answer_json(responder, context, 503, R"({"status":"starting"})");
    // How busy the models are is the operator's to see, not any client's: on this machine only.
    if (!options_.readyz_details || !is_of_this_machine(head))
        return answer_json(responder, context, 200, R"({"status":"ready"})");
    std::string body = R"({"status":"ready","models":[)";
    for (const ServedModel& model : catalog_.models()) {
        if (!body.ends_with('[')) body += ',';
        append_stats(body, model);
    }
    answer_json(responder, context, 200, body + "]}");
}

void Service::answer_models(const Route& route, const wire::RequestHead& head,
                            wire::Responder& responder, const AnswerContext& context,
                            const Admission& who) const {
    // Without the version header it is the OpenAI dialect, whose SDK does not page.
    const std::size_t default_limit = head.has("anthropic-version") ? 20 : 1000;
    Result<std::string> body = route.id == RouteId::kModelList
                                   ? list_models(catalog_, head.query(), default_limit, who)
                                   : get_model(catalog_, route.segment, who);
    if (!body) return answer_error(responder, context, body.error());
    answer_json(responder, context, 200, std::move(*body));
}

void Service::answer_cache(const Route& route, const wire::RequestHead& head,
                           const HeadDecision& decision, wire::Responder& responder,
                           const AnswerContext& context) const {
    const Principal& principal = decision.principal;
    Admission& who = *decision.admission;
    Result<std::string> body = head.method == "DELETE"
                                   ? delete_cached(catalog_, principal, who, route.segment)
                                   : Result<std::string>(list_cached(catalog_, principal, who,
                                                                     options_.now(), wall_now()));
    if (!body) return answer_error(responder, context, body.error());
    answer_json(responder, context, 200, std::move(*body));
}

// --- CORS
// -----------------------------------------------------------------------------------------

// What this request's Origin matches: itself or "*"; "" for none. Pages of this machine may use it
// under its own name, which is what web applications that are being written do.
std::string_view Service::allowed_origin(const wire::RequestHead& head) const {
    const std::string_view origin = head.header("origin");
    if (origin.empty()) return {};
    for (const std::string& allowed : options_.cors_origins)
        if (allowed == "*" || allowed == origin) return allowed;
    if (is_loopback_host(host_of(authority_of(origin))) &&
        is_loopback_host(host_of(head.authority)))
        return origin;
    return {};
}

// A page of another site changes nothing here, also where it needs no key, or a browser sends what
// it has without asking us first.
Status Service::check_origin(const wire::RequestHead& head) const {
    if (head.method == "GET" || head.method == "HEAD" || !head.has("origin")) return {};
    const std::string_view origin = head.header("origin");
    if (!head.differs("origin") &&
        (is_same_origin(origin, head.authority) || !allowed_origin(head).empty()))
        return {};
    return fail(Code::kPermission, "api",
                "origin: pages of " + in_quotes(origin) +
                    " may not use this server; name them in api.cors_origins");
}

void Service::add_cors(const wire::RequestHead& head, AnswerContext& context) const {
    const std::string_view allowed = allowed_origin(head);
    if (allowed.empty()) return;
    context.headers.push_back({"access-control-allow-origin", std::string(allowed)});
    if (allowed != "*") context.headers.push_back({"vary", "origin"});
    context.headers.push_back(
        {"access-control-expose-headers",
         "request-id, x-request-id, x-anthropic-trace-id, retry-after, retry-after-ms, "
         "x-should-retry, server-timing, anthropic-ratelimit-requests-limit, "
         "anthropic-ratelimit-requests-remaining, anthropic-ratelimit-requests-reset, "
         "anthropic-ratelimit-tokens-limit, anthropic-ratelimit-tokens-remaining, "
         "anthropic-ratelimit-tokens-reset, anthropic-ratelimit-input-tokens-limit, "
         "anthropic-ratelimit-input-tokens-remaining, anthropic-ratelimit-input-tokens-reset, "
         "anthropic-ratelimit-output-tokens-limit, anthropic-ratelimit-output-tokens-remaining, "
         "anthropic-ratelimit-output-tokens-reset"});
}

void Service::answer_preflight(const wire::RequestHead& head, wire::Responder& responder,
                               const AnswerContext& context) const {
    wire::ResponseHead answer = make_head(context, 204, {});
    answer.headers.push_back({"access-control-allow-methods", "GET, HEAD, POST, DELETE, OPTIONS"});
    // What the browser asks for is what it gets: SDKs add headers with every release. The value was
    // checked for illegal bytes when the head was read.
    const std::string_view wanted = head.header("access-control-request-headers");
    if (!wanted.empty())
        answer.headers.push_back({"access-control-allow-headers", std::string(wanted)});
    answer.headers.push_back({"access-control-max-age", "600"});
    answer.content_length = 0;
    responder.send_head(answer);
    responder.finish();
}

}  // namespace zerohop::api
