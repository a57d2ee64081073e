#include "api/routes.h"

#include <algorithm>

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
        return in_quotes(path) + ": no such path; did you mean " +
               in_quotes("/v1" + std::string(path)) + "?";
    return in_quotes(path) + ": no such path";
}

}  // namespace

Result<Route> match_route(std::string_view path) {
    constexpr std::string_view kModelPrefix = "/v1/models/";
    constexpr std::string_view kCachePrefix = "/v1/cache/";
    if (path == "/v1/messages") return Route{RouteId::kMessages, {}};
    if (path == "/v1/messages/count_tokens") return Route{RouteId::kCountTokens, {}};
    if (path == "/v1/auth/token") return Route{RouteId::kToken, {}};
    if (path == "/v1/topology") return Route{RouteId::kTopology, {}};
    if (path == "/v1/config/reload") return Route{RouteId::kReload, {}};
    if (path == "/v1/cache/warmup") return Route{RouteId::kWarmUp, {}};
    if (path == "/v1/cache") return Route{RouteId::kCache, {}};
    if (path == "/v1/models") return Route{RouteId::kModelList, {}};
    // The others are what clients ask to find out whether anybody is there.
    for (const std::string_view probe : {"/healthz", "/health", "/", "/v1", "/v1/", "/api/hello"})
        if (path == probe) return Route{RouteId::kHealth, {}};
    if (path == "/readyz") return Route{RouteId::kReady, {}};
    if (path.starts_with(kModelPrefix)) {
        const std::string_view segment = path.substr(kModelPrefix.size());
        if (!segment.empty() && segment.find('/') == std::string_view::npos)
            return Route{RouteId::kModel, segment};
    }
    if (path.starts_with(kCachePrefix)) {
        const std::string_view segment = path.substr(kCachePrefix.size());
        if (!segment.empty() && segment.find('/') == std::string_view::npos)
            return Route{RouteId::kCached, segment};
    }
    return fail(Code::kNotFound, "api", not_found_message(path));
}

std::string_view allowed_methods(RouteId id) {
    switch (id) {
        case RouteId::kMessages:
        case RouteId::kCountTokens:
        case RouteId::kToken:
        case RouteId::kReload:
        case RouteId::kWarmUp:
            return "POST";
        case RouteId::kCache:
            return "GET, HEAD, DELETE";
        case RouteId::kCached:
            return "DELETE";
        default:
            return "GET, HEAD";
    }
}

bool method_allowed(RouteId id, std::string_view method) {
    const std::string_view allowed = allowed_methods(id);
    for (std::size_t at = 0; at < allowed.size();) {
        const std::size_t end = std::min(allowed.find(',', at), allowed.size());
        if (allowed.substr(at, end - at) == method) return true;
        at = end + 2;
    }
    return false;
}

}  // namespace zerohop::api
