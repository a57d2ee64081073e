#include "api/routes.h"

#include <algorithm>
#include <optional>

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

constexpr std::string_view kGet = "GET, HEAD";

struct Row {
    RouteId id;
    std::string_view path;  // "/*" at its end: one segment more
    std::string_view methods;
    Asks asks;  // kLookup: a DELETE asks for kDelete
};
constexpr Row kRoutes[] = {
    {RouteId::kMessages, "/v1/messages", "POST", Asks::kWork},
    {RouteId::kCountTokens, "/v1/messages/count_tokens", "POST", Asks::kCount},
    {RouteId::kModelList, "/v1/models", kGet, Asks::kLookup},
    {RouteId::kModel, "/v1/models/*", kGet, Asks::kLookup},
    {RouteId::kToken, "/v1/auth/token", "POST", Asks::kToken},
    {RouteId::kWarmUp, "/v1/cache/warmup", "POST", Asks::kWork},
    {RouteId::kCache, "/v1/cache", "GET, HEAD, DELETE", Asks::kLookup},
    {RouteId::kCached, "/v1/cache/*", "DELETE", Asks::kLookup},
    {RouteId::kTopology, "/v1/topology", kGet, Asks::kAdmin},
    {RouteId::kReload, "/v1/config/reload", "POST", Asks::kAdmin},
    // Nobody is asked who they are for these.
    {RouteId::kReady, "/readyz", kGet, Asks::kLookup},
    {RouteId::kHealth, "/healthz", kGet, Asks::kLookup},
    {RouteId::kHealth, "/health", kGet, Asks::kLookup},
    // What clients ask to find out whether anybody is there.
    {RouteId::kHealth, "/", kGet, Asks::kLookup},
    {RouteId::kHealth, "/v1", kGet, Asks::kLookup},
    {RouteId::kHealth, "/v1/", kGet, Asks::kLookup},
    {RouteId::kHealth, "/api/hello", kGet, Asks::kLookup}};

// The row's further segment, "" where it has none; nullopt: another path.
std::optional<std::string_view> match(const Row& row, std::string_view path) {
    if (!row.path.ends_with("/*")) {
        if (path == row.path) return std::string_view();
        return {};
    }
    const std::string_view before = row.path.substr(0, row.path.size() - 1);
    if (!path.starts_with(before)) return {};
    const std::string_view segment = path.substr(before.size());
    if (segment.empty() || segment.find('/') != std::string_view::npos) return {};
    return segment;
}

}  // namespace

Result<Route> match_route(std::string_view path, std::string_view method) {
    for (const Row& row : kRoutes) {
        const std::optional<std::string_view> segment = match(row, path);
        if (!segment) continue;
        const bool deletes = row.asks == Asks::kLookup && method == "DELETE";
        return Route{.id = row.id,
                     .asks = deletes ? Asks::kDelete : row.asks,
                     .methods = row.methods,
                     .segment = *segment};
    }
    return fail(Code::kNotFound, "api", not_found_message(path));
}

bool Route::allows(std::string_view method) const {
    for (std::size_t at = 0; at < methods.size();) {
        const std::size_t end = std::min(methods.find(',', at), methods.size());
        if (methods.substr(at, end - at) == method) return true;
        at = end + 2;
    }
    return false;
}

}  // namespace zerohop::api
