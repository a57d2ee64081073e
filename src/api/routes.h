// Which route a path is, and what may be said about paths that are none.
//
// Threads: any; pure functions. Unknown paths are an Error (kNotFound) that helps.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "api/head_policy.h"
#include "base/error.h"

namespace zerohop::api {

enum class RouteId : std::uint8_t {
    kMessages,
    kCountTokens,
    kModelList,
    kModel,
    kToken,
    kTopology,
    kReload,
    kWarmUp,
    kCache,
    kCached,
    kHealth,
    kReady,
};

struct Route {
    RouteId id = RouteId::kMessages;
    Asks asks = Asks::kWork;
    std::string_view methods;  // "GET, HEAD": the allow header, and what else is 405
    std::string_view segment;  // the id, still percent-encoded; points into the path

    bool allows(std::string_view method) const;
};

// From the one table of routes. Splits on raw '/': a slash inside a model id arrives as %2F and
// stays one segment.
Result<Route> match_route(std::string_view path, std::string_view method);

}  // namespace zerohop::api
