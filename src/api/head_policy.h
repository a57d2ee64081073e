// HeadPolicy: who may ask what, decided from the request head alone, before the body is read.
//
// Implemented by auth::StaticKeys (a fixed list of hashed keys) and later by admit (tokens, quotas,
// lanes); `api` calls it for every route but /healthz and /readyz.
// Owning thread: called on any I/O thread, concurrently; must not block.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "request/principal.h"
#include "wire/http.h"

namespace zerohop::api {

// What a decision leaves behind for the life of the exchange. Destroyed with the exchange: whatever
// was reserved and not used is given back there.
class Admission {
  public:
    virtual ~Admission() = default;
};

struct HeadDecision {
    Principal principal;
    std::vector<wire::Header> response_headers;  // on every answer of this exchange
    std::unique_ptr<Admission> admission;        // may be null
};

class HeadPolicy {
  public:
    virtual ~HeadPolicy() = default;
    // Errors: kAuthentication, kPermission, kNotFound, kMisdirected, kRateLimited, kOverloaded, …
    virtual Result<HeadDecision> decide(const wire::RequestHead& head) = 0;
};

}  // namespace zerohop::api
