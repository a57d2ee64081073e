// AdmitTable: everything a head decision looks at, in one immutable object; and the state that
// outlives it.
//
// Built by HeadDecider::install on the control thread, read by I/O threads. State (quotas, learned
// lengths, soft reservations) is shared by successive tables, so a reload resets nothing. All of it
// frees itself through shared_ptr; an admission in flight keeps its table.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "admit/length_learner.h"
#include "admit/quota.h"
#include "admit/soft_kv.h"
#include "admit/topology.h"
#include "auth/key_snapshot.h"
#include "auth/token.h"

namespace zerohop::admit {

struct KeyState {
    KeyState(std::string id, const Limits& limits, const Limits& burst)
        : quota("key", std::move(id), limits, burst) {}
    QuotaGroup quota;
    LengthLearner lengths;
    std::atomic<std::int64_t> soft_kv{0};
};

struct WorkspaceState {
    WorkspaceState(std::string name, const WorkspaceLimits& limits)
        : quota("workspace", std::move(name), limits.limits, limits.burst, kDeletesPerMinute) {}
    // Each is a pass over an engine's slots, on its thread.
    static constexpr std::int64_t kDeletesPerMinute = 600;
    QuotaGroup quota;
    SoftKvBook soft_kv;
    StructureLengths structure_lengths;
};

// What a token adds to its key: shared by all threads that see it.
struct TokenState {
    explicit TokenState(const auth::TokenClaims& claims)
        : quota("token", claims.token_id, claims.quota),
          models(claims.models),
          region(claims.region),
          expires_ns(claims.expires_ns) {}
    QuotaGroup quota;
    const std::vector<std::string> models;  // ids or aliases; "*": all of the key's
    const std::string region;
    const WallNs expires_ns;
};

// Tokens reserved by heads whose body is on its way: counted where the model's engine reads them.
struct ModelState {
    explicit ModelState(std::shared_ptr<sched::QueueGauge> shared)
        : gauge(shared ? std::move(shared) : std::make_shared<sched::QueueGauge>()) {}
    std::atomic<std::int64_t>& soft_kv() { return gauge->soft_kv_tokens; }
    const std::shared_ptr<sched::QueueGauge> gauge;
};

// A key's rights, resolved against a topology.
struct Binding {
    const auth::KeyRecord* key = nullptr;  // null: anonymous, everything is allowed
    std::shared_ptr<KeyState> key_state;
    std::shared_ptr<WorkspaceState> workspace;
    std::uint64_t lanes = ~0ULL;  // bit i: lane i
    std::uint8_t default_lane = 0;
    Priority priority_max = Priority::kHigh;
    bool all_models = true;
    std::vector<bool> models;  // by model index, when not all
};

struct AdmitTable {
    std::shared_ptr<const auth::KeySnapshot> keys;
    std::shared_ptr<const Topology> topology;
    std::vector<Binding> bindings;  // by key index in `keys`
    Binding anonymous;
    std::vector<std::shared_ptr<ModelState>> models;  // by model index
};

// Creates and keeps the state. Threads: any, one mutex; token_state is called at a token's first
// sight on each I/O thread, the rest by the control thread.
class StateBook {
  public:
    std::shared_ptr<const AdmitTable> build(std::shared_ptr<const auth::KeySnapshot> keys,
                                            std::shared_ptr<const Topology> topology);
    // Bound: kMaxTokens; when it is reached the ones that expired go, then the soonest to expire.
    std::shared_ptr<TokenState> token_state(const auth::TokenClaims& claims, WallNs now);
    void sweep(MonoNs now);
    std::int64_t soft_kv_tokens(const std::string& model_id) const;
    static constexpr std::size_t kMaxTokens = 100'000;

  private:
    Binding bind(const auth::KeyRecord* key, const Topology& topology);
    std::shared_ptr<WorkspaceState> workspace(const std::string& name, const Topology& topology);
    std::shared_ptr<KeyState> key(const std::string& id, const Limits& limits, const Limits& burst);
    void make_room(WallNs now);

    mutable std::mutex mutex_;
    std::unordered_map<std::string, std::shared_ptr<WorkspaceState>> workspaces_;
    std::unordered_map<std::string, std::shared_ptr<KeyState>> keys_;
    std::unordered_map<std::string, std::shared_ptr<ModelState>> models_;
    std::unordered_map<std::string, std::shared_ptr<TokenState>> tokens_;
    std::multimap<WallNs, std::string> token_ends_;
};

}  // namespace zerohop::admit
