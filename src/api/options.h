// What the API is configured with. Built once by `app`, immutable afterwards, read by every I/O
// thread.
//
// Engines, policy and the functions must outlive the Service; the functions are called
// concurrently.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "api/access.h"
#include "api/catalog.h"
#include "api/head_policy.h"
#include "api/version.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory_budget.h"
#include "request/principal.h"

namespace zerohop::api {

// What of the new configuration stays as it was until a restart, in words.
using ReloadOutcome = Result<std::vector<std::string>>;

struct ServiceOptions {
    std::vector<ServedModel> models;
    HeadPolicy* head_policy = nullptr;  // null: everybody is the default principal
    SamplingParams sampling_params = SamplingParams::kAccept;
    std::optional<Version> default_version;  // where the header is missing; none: 400
    std::int64_t body_cap_bytes = std::int64_t{32} << 20;
    // What requests hold together, from the first byte of their bodies on; null: no bound.
    // Outlives.
    MemoryBudget* body_budget = nullptr;
    AccessSink* access = nullptr;           // hears of every request that ended; null: none
    std::vector<std::string> cors_origins;  // exact origins, or "*", beside this machine's own
    bool readyz_details = true;             // to clients of this machine, without a key

    // Lines of the system prompt that begin with one of these mean nothing to the model.
    std::vector<std::string> drop_lines;
    bool isolate_users = false;  // what is cached for one metadata.user_id serves no other
    CacheGroups cache_groups;

    std::int64_t ping_interval_ms = 10'000;  // silence in a stream before a ping
    std::int64_t header_delay_ms = 10'000;   // streams: 200 leaves at the latest after this
    // Non-streamed answers: after this long 200 leaves and white space keeps the connection alive
    // (Node's fetch gives up after 300 s of silence). 0: off, the answer keeps its true status.
    std::int64_t whole_keepalive_ms = 240'000;
    std::int64_t deadline_ms = 0;  // whole request, first byte to last; 0: none

    // POST /v1/auth/token with this body, and GET /v1/topology, for whom the policy let in: the
    // answer's JSON. Empty: the route is not served. Called on I/O threads.
    std::function<Result<std::string>(const Admission&, std::string_view)> answer_token;
    std::function<Result<std::string>(const Admission&)> answer_topology;

    // POST /v1/config/reload of an admin: reads the configuration again and then calls `done` once,
    // on any thread, with how it went. Does not block. Empty: the route is not served.
    std::function<void(std::function<void(const ReloadOutcome&)> done)> reload;

    std::function<bool()> ready;     // empty: always ready
    std::function<bool()> draining;  // empty: never
    MonoClock clock;                 // empty: mono_now()

    bool is_ready() const { return !ready || ready(); }
    bool is_draining() const { return draining && draining(); }
    MonoNs now() const { return clock ? clock() : mono_now(); }
};

}  // namespace zerohop::api
