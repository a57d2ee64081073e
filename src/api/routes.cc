#include "api/routes.h"

#include "api/json_text.h"

namespace zerohop::api {
namespace {

// Parts of the public API that this server does not have (wire-contract §1.2).
constexpr std::string_view kNotServed[] = {
    "/v1/messages/batches", "/v1/files",         "/v1/skills",          "/v1/user_profiles",
    "/v1/organization",     "/v1/organizations", "/v1/agents",          "/v1/sessions",
    "/v1/environments",     "/v1/deployments",   "/v1/deployment_runs", "/v1/dreams",
    "/v1/memory_stores",    "/v1/vaults",        "/v1/tunnels",         "/v1/chat/completions",
    "/v1/completions",      "/v1/embeddings",    "/v1/responses",       "/v1/oauth/token"};

bool under(std::string_view path, std::string_view prefix) {
    return path.starts_with(prefix) && (path.size() == prefix.size() || path[prefix.size()] == '/');
}

std::string not_found_message(std::string_view path) {
    if (under(path, "/v1/v1"))
        return in_quotes(path) + " has /v1 twice: the SDK adds it, so set the base URL without /v1";
    if (path == "/v1/complete")
        return "the legacy text completions are not served; use POST /v1/messages";
    for (const std::string_view prefix : kNotServed)
        if (under(path, prefix)) return std::string(prefix) + " is not served here";
    if (under(path, "/v1/models"))
        return "no such path; a model id that contains '/' must be sent with %2F";
    if (under(path, "/messages") || under(path, "/models"))
        return in_quotes(path) + ": no such path; did you mean /v1" + in_quotes(path).substr(1);
    return in_quotes(path) + ": no such path";
}

}  // namespace

Result<Route> match_route(std::string_view path) {
    constexpr std::string_view kModelPrefix = "/v1/models/";
    if (path == "/v1/messages") return Route{RouteId::kMessages, {}};
    if (path == "/v1/messages/count_tokens") return Route{RouteId::kCountTokens, {}};
    if (path == "/v1/auth/token") return Route{RouteId::kToken, {}};
    if (path == "/v1/topology") return Route{RouteId::kTopology, {}};
    if (path == "/v1/config/reload") return Route{RouteId::kReload, {}};
    if (path == "/v1/models") return Route{RouteId::kModelList, {}};
    if (path == "/healthz") return Route{RouteId::kHealth, {}};
    if (path == "/readyz") return Route{RouteId::kReady, {}};
    if (path.starts_with(kModelPrefix)) {
        const std::string_view segment = path.substr(kModelPrefix.size());
        if (!segment.empty() && segment.find('/') == std::string_view::npos)
            return Route{RouteId::kModel, segment};
    }
    return fail(Code::kNotFound, "api", not_found_message(path));
}

namespace {

bool takes_body(RouteId id) {
    return id == RouteId::kMessages || id == RouteId::kCountTokens || id == RouteId::kToken ||
           id == RouteId::kReload;
}

}  // namespace

std::string_view allowed_methods(RouteId id) { return takes_body(id) ? "POST" : "GET, HEAD"; }

bool method_allowed(RouteId id, std::string_view method) {
    if (takes_body(id)) return method == "POST";
    return method == "GET" || method == "HEAD";
}

}  // namespace zerohop::api
