// Admission: the keys, the topology and the head decisions of a running server.
//
// Owning thread: main (control): open() and start() at start-up, tick() every half second,
// reload_…() on SIGHUP or when an admin asks. policy() is then used by all I/O threads. The two
// hooks that `api` calls (answer_token, answer_topology) run on I/O threads and do not block.
// Errors: open() and start() give one line for exit code 2; reload_…() leave in force what was.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "admit/head_decider.h"
#include "app/config.h"
#include "auth/key_store.h"
#include "request/engine_port.h"
#include "sched/lane_caps.h"

namespace zerohop::app {

class Admission {
  public:
    // Reads the key file. No models yet: mistakes here are told before anything is loaded.
    static Result<std::unique_ptr<Admission>> open(const Config& config);
    // `models` are those of config.models, in its order.
    Status start(const Config& config, std::vector<std::unique_ptr<EnginePort>>& engines,
                 const std::vector<std::shared_ptr<sched::QueueGauge>>& gauges);

    bool has_keys() const { return !keys_.snapshot()->empty(); }
    api::HeadPolicy& policy() { return *decider_; }
    // Of the lanes' step caps, for engines; set at start() and at a reload.
    std::shared_ptr<const sched::LaneCaps> lane_caps() const { return lane_caps_; }

    // Takes up a changed key file; lets soft reservations lapse.
    void tick(MonoNs now);
    // The same at once; fails as long as the file is broken.
    Status reload_keys();
    // Takes up, all or nothing, what of a configuration read again can change while models and
    // lanes stay those of start(): regions, limits of workspaces, names of models and of this
    // server, promises and step caps of lanes.
    Status reload_topology(const Config& config);
    const std::vector<admit::Model>& models() const { return models_; }

    // POST /v1/auth/token and GET /v1/topology, for an exchange that policy() let in.
    static Result<std::string> answer_token(const api::Admission& who, std::string_view body);
    static Result<std::string> answer_topology(const api::Admission& who);

  private:
    explicit Admission(auth::KeyStore keys) : keys_(std::move(keys)) {}
    void set_caps();

    auth::KeyStore keys_;
    std::vector<admit::Model> models_;
    std::vector<admit::Lane> lanes_;  // engines know them by index: always those of start()
    std::int64_t body_bytes_ = 0;
    std::shared_ptr<sched::LaneCaps> lane_caps_ = std::make_shared<sched::LaneCaps>();
    std::shared_ptr<const admit::Topology> topology_;
    std::unique_ptr<admit::HeadDecider> decider_;
};

}  // namespace zerohop::app
