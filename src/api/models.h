// GET /v1/models and /v1/models/{id}: one object that both dialects' SDKs read (wire-contract §7.2,
// §11).
//
// Both show only what whoever asks may use; the rest is as if it were not served.
//
// Threads: any; pure functions over the immutable catalog. Fail with kInvalidRequest (bad query) or
// kNotFound.
#pragma once

#include <string>
#include <string_view>

#include "api/catalog.h"
#include "api/head_policy.h"
#include "base/error.h"

namespace zerohop::api {

// raw_query: as in the request target. default_limit: 20 for the Messages dialect; the OpenAI SDK
// does not page, so it gets all.
Result<std::string> list_models(const Catalog& catalog, std::string_view raw_query,
                                std::size_t default_limit, const Admission& who);

// raw_id: one path segment, still percent-encoded.
Result<std::string> get_model(const Catalog& catalog, std::string_view raw_id,
                              const Admission& who);

}  // namespace zerohop::api
