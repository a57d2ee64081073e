// Which route a path is, and what may be said about paths that are none.
//
// Threads: any; pure functions. Unknown paths are an Error (kNotFound) that helps.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"

namespace zerohop::api {

enum class RouteId : std::uint8_t {
    kMessages,
    kCountTokens,
    kModelList,
    kModel,
    kToken,     // POST /v1/auth/token
    kTopology,  // GET /v1/topology
    kReload,    // POST /v1/config/reload
    kWarmUp,    // POST /v1/cache/warmup
    kCache,     // GET, DELETE /v1/cache
    kCached,    // DELETE /v1/cache/{id}
    kHealth,
    kReady,
};

struct Route {
    RouteId id = RouteId::kMessages;
    std::string_view
        segment;  // kModel, kCached: the id, still percent-encoded; points into the path
};

// Splits on raw '/': a slash inside a model id arrives as %2F and stays one segment.
Result<Route> match_route(std::string_view path);

// "POST" or "GET, HEAD": the allow header, and what else is 405.
std::string_view allowed_methods(RouteId id);
bool method_allowed(RouteId id, std::string_view method);

}  // namespace zerohop::api
