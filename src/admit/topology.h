// Topology: which models, lanes and regions there are, and the limits of workspaces. An immutable
// table, replaced whole on reload.
//
// Built on the control thread from the configuration; read by every I/O thread without locks. Frees
// itself (shared_ptr). Look-ups ignore ASCII case (hints are case-insensitive) and do not allocate.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "auth/key_record.h"
#include "base/error.h"
#include "request/model_names.h"
#include "sched/queue_gauge.h"

namespace zerohop::admit {

struct Lane {
    std::string name;
    std::uint32_t reserved_sequences = 0;  // nobody else's, while the lane wants them
    std::uint32_t beside_step_tokens =
        0;                          // cap on other lanes' tokens in a step with this one; 0: none
    std::uint32_t ttft_p99_ms = 0;  // objective for high priority; 0: none
};

struct Model {
    std::string id;
    std::vector<std::string> aliases;            // may hold `*`: model_names.h
    std::uint32_t instance = 0;                  // which EnginePort, for `app`
    std::int32_t context_tokens = 0;             // prompt + output
    std::int32_t kv_reserve_tokens = 0;          // soft reservation when the body's size is unknown
    std::shared_ptr<sched::QueueGauge> gauge;    // may be null: then never full
    std::uint32_t max_sequences = 0;             // its slots
    std::vector<std::uint32_t> lane_slots = {};  // reserved of them, by lane: lane_slots.h
    bool fallback = false;                       // for names that nobody has
};

struct Region {
    std::string name;
    std::string location;  // base URL, for 421; may be empty
};

struct WorkspaceLimits {
    auth::Limits limits;  // 0: none
    auth::Limits burst;   // 0: as the limit
};

struct TopologyConfig {
    std::string region = "local";  // where this process is
    std::vector<Region> regions;   // the others
    std::vector<Lane> lanes;       // empty: default, low-latency, batch
    std::vector<Model> models;
    WorkspaceLimits workspace_default;
    std::map<std::string, WorkspaceLimits> workspaces;
    std::int64_t max_body_bytes = 32LL << 20;
    bool count_cache_reads = false;         // as input tokens
    std::vector<std::string> server_names;  // of this machine, beside loopback's, without keys
    // Soft reservations, in tokens: bounds per workspace and per key.
    std::int64_t soft_kv_per_workspace = 65'536;
    std::int64_t soft_kv_per_key = 32'768;
};

std::vector<Lane> default_lanes();

class Topology {
  public:
    static constexpr std::size_t kMaxLanes =
        sched::QueueGauge::kMaxLanes;  // a key's lanes are one 64-bit mask

    // Fails with kInvalidRequest naming the entry: names used twice, no models' ids, bad names, …
    static Result<std::shared_ptr<const Topology>> make(TopologyConfig config);

    const TopologyConfig& config() const { return config_; }
    const std::vector<Model>& models() const { return config_.models; }
    const std::vector<Lane>& lanes() const { return config_.lanes; }

    // What a request means by a name; nullptr: not served here.
    const Model* find_model(std::string_view name) const { return at(names_.find(name)); }
    // What a scope means: the same without the fallback, which nobody has named.
    const Model* find_named(std::string_view name) const { return at(names_.find_named(name)); }
    int find_lane(std::string_view name) const;  // -1: none of that name
    bool is_here(std::string_view region) const;
    bool is_ours(std::string_view host) const;               // loopback, or one of server_names
    const Region* find_region(std::string_view name) const;  // another one; nullptr: unknown
    const WorkspaceLimits& limits_of(const std::string& workspace) const;
    std::size_t index_of(const Model& model) const {
        return static_cast<std::size_t>(&model - config_.models.data());
    }
    std::string lane_names() const;  // "default, low-latency, batch"

  private:
    explicit Topology(TopologyConfig config);
    const Model* at(std::size_t place) const {
        return place == ModelNames::kNone ? nullptr : &config_.models[place];
    }
    TopologyConfig config_;
    ModelNames names_;
};

// The body of GET /v1/topology: the table and what its queues hold right now.
std::string topology_json(const Topology& topology);

}  // namespace zerohop::admit
