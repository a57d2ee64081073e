// HeadPolicy: who may ask what, decided from the request head alone, before the body is read.
//
// Implemented by admit::HeadDecider (keys, tokens, quotas, lanes, hints); `api` calls it for every
// route but /healthz and /readyz.
// Owning thread: called on any I/O thread, concurrently; must not block.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "request/event.h"
#include "request/principal.h"
#include "request/priority.h"
#include "request/request.h"
#include "wire/http.h"

namespace zerohop::api {

// What a route asks of the server, which says what it is charged and who may (routes.h).
enum class Asks : std::uint8_t {
    kWork,    // an answer, or cached KV
    kCount,   // of tokens
    kLookup,  // models, caches
    kDelete,  // a look-up that changes caches
    kToken,   // a token for a key; no hint is looked at
    kAdmin,   // an admin key's alone, not a token of one
};

// What a decision leaves behind for the life of the exchange. Destroyed with the exchange: whatever
// was reserved and not used is given back there.
//
// Owning thread: the exchange's I/O thread. Call order of a request that becomes work:
// on_body_bytes, check_model, terms, charge, settle. All defaults admit everything.
class Admission {
  public:
    // How the head wants its request served.
    struct Terms {
        std::uint8_t lane = 0;  // index in the topology
        Priority priority = Priority::kNormal;
        FirstTokenPromise promise;         // that is left to the engine to keep
        std::int32_t expected_output = 0;  // tokens; 0: nothing is known
        std::optional<bool> buffering;     // x-anthropic-stream-buffering
    };

    virtual ~Admission() = default;
    virtual void on_body_bytes(MonoNs) {}
    // The model the body names. Fails with kInvalidRequest when a hint named another one, with
    // kPermission when the key may not use it.
    virtual Status check_model(std::string_view) { return {}; }
    // Whether it would pass check_model's scope: what model lists show. Of a public id.
    virtual bool may_use(std::string_view) const { return true; }
    // Id of the model that a hint named; "" when none did.
    virtual std::string_view hinted_model() const { return {}; }
    // The structure of the prompt: answers to such ones say how long this one will be.
    virtual void on_structure(const std::array<StructureKey, 3>&) {}
    virtual Terms terms() const { return {}; }
    // The prompt is tokenized. Fails with kRateLimited, headers included.
    virtual Status charge(std::int32_t /*input_tokens*/, std::int32_t /*max_output*/, MonoNs,
                          WallNs) {
        return {};
    }
    // The answer ended: what was really used. No effect unless charged and not yet settled.
    virtual void settle(const Usage& /*used*/, bool /*completed*/, MonoNs) {}
    // Refused for what it says, before any work was done for it: the request is not charged.
    virtual void refund_request(MonoNs) {}
    // The workspace's prompts are erased: what was learnt of their structures goes too.
    virtual void forget_prompts() {}
    // anthropic-ratelimit-… as they are now; nothing where no quota is set.
    virtual void append_rate_limits(MonoNs, WallNs, std::vector<wire::Header>&) const {}
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
    virtual Result<HeadDecision> decide(const wire::RequestHead& head, Asks asks) = 0;
};

}  // namespace zerohop::api
