#include "app/admission.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "admit/token_endpoint.h"
#include "auth/key_file.h"
#include "base/log.h"

namespace zerohop::app {
namespace {

Result<auth::KeyStore> open_keys(const Config& config) {
    std::vector<auth::StaticKey> keys;
    for (const std::string& text : config.auth.keys) {
        auth::StaticKey key;
        key.id = fmt::format("config-{}", keys.size() + 1);
        key.sha256 = text.starts_with("sha256:") ? text.substr(7) : text;
        keys.push_back(std::move(key));
    }
    return auth::KeyStore::open(
        config.auth.key_file.empty() ? auth::default_keys_path() : config.auth.key_file,
        std::move(keys));
}

// "eu=https://eu.example" or "eu".
Result<admit::Region> region_of(const std::string& text) {
    const std::size_t equals = text.find('=');
    admit::Region region{.name = text.substr(0, equals), .location = {}};
    if (equals != std::string::npos) region.location = text.substr(equals + 1);
    while (region.location.ends_with('/')) region.location.pop_back();
    if (!auth::valid_name(region.name))
        return fail(Code::kInvalidRequest, "config",
                    fmt::format("topology.regions: \"{}\" must be NAME=URL, e.g. "
                                "\"eu=https://eu.example.com\"",
                                text));
    return region;
}

Result<std::shared_ptr<const admit::Topology>> make_topology(
    const Config& config, const std::vector<admit::Model>& models,
    const std::vector<admit::Lane>& lanes) {
    admit::TopologyConfig topology;
    topology.region = config.topology.region;
    for (const std::string& text : config.topology.regions) {
        Result<admit::Region> region = region_of(text);
        if (!region) return std::unexpected(region.error());
        topology.regions.push_back(std::move(*region));
    }
    topology.models = models;
    topology.lanes = lanes;
    topology.workspace_default.limits = {.requests = config.quota.workspace_requests,
                                         .input_tokens = config.quota.workspace_input_tokens,
                                         .output_tokens = config.quota.workspace_output_tokens};
    for (const WorkspaceConfig& workspace : config.workspaces)
        topology.workspaces[workspace.name].limits = {.requests = workspace.requests,
                                                      .input_tokens = workspace.input_tokens,
                                                      .output_tokens = workspace.output_tokens};
    topology.max_body_bytes = config.limits.body_bytes;
    return admit::Topology::make(std::move(topology));
}

// A prompt that many people send; what a lane's promise is measured against at start.
constexpr std::int64_t kUsualPrompt = 300;

// Says which promises of lanes the model's measured speed cannot keep: they would refuse everybody.
void check_objective(const admit::Lane& lane, const admit::Model& model) {
    if (lane.ttft_p99_ms == 0 || !model.gauge) return;
    const double fixed = model.gauge->prefill_ms_approx(0);
    const double token = model.gauge->prefill_ms_approx(1) - fixed;
    const double left = lane.ttft_p99_ms - fixed;
    if (left < 0) {
        log_warn(
            "app",
            "lane \"{}\" promises high priority a first token within {} ms, but model {} takes "
            "{:.0f} ms: all of it will be refused (429)",
            lane.name, lane.ttft_p99_ms, model.id, fixed);
    } else if (token > 0 && left < token * kUsualPrompt) {
        log_warn("app",
                 "lane \"{}\" promises high priority a first token within {} ms: model {} computes "
                 "{:.0f} prompt tokens/s, so prompts above {:.0f} tokens will be refused (429); "
                 "raise the lane's ttft_p99_ms to {:.0f} for prompts of {}",
                 lane.name, lane.ttft_p99_ms, model.id, 1000 / token, std::floor(left / token),
                 std::ceil(fixed + token * kUsualPrompt), kUsualPrompt);
    }
}

}  // namespace

std::vector<admit::Lane> lanes_of(const Config& config) {
    if (config.lanes.empty()) return admit::default_lanes();
    std::vector<admit::Lane> lanes;
    for (const LaneConfig& lane : config.lanes)
        lanes.push_back({.name = lane.name,
                         .reserved_sequences = static_cast<std::uint32_t>(lane.reserved_sequences),
                         .ttft_p99_ms = static_cast<std::uint32_t>(lane.ttft_p99_ms)});
    return lanes;
}

Result<std::unique_ptr<Admission>> Admission::open(const Config& config) {
    Result<auth::KeyStore> keys = open_keys(config);
    if (!keys) return std::unexpected(keys.error());
    return std::unique_ptr<Admission>(new Admission(std::move(*keys)));
}

Status Admission::start(const Config& config, std::vector<std::unique_ptr<EnginePort>>& engines,
                        const std::vector<std::shared_ptr<admit::QueueGauge>>& gauges) {
    for (std::size_t i = 0; i < engines.size(); ++i) {
        const ModelInfo& info = engines[i]->info();
        models_.push_back({.id = config.models[i].id,
                           .aliases = config.models[i].aliases,
                           .instance = static_cast<std::uint32_t>(i),
                           .context_tokens = info.context_tokens,
                           .kv_reserve_tokens = std::min(info.context_tokens / 4, 1024),
                           .gauge = i < gauges.size() ? gauges[i] : nullptr});
    }
    lanes_ = lanes_of(config);
    for (const admit::Lane& lane : lanes_)
        for (const admit::Model& model : models_) check_objective(lane, model);
    auto topology = make_topology(config, models_, lanes_);
    if (!topology) return std::unexpected(topology.error());
    topology_ = std::move(*topology);
    decider_ = std::make_unique<admit::HeadDecider>(keys_.snapshot(), topology_);
    return {};
}

void Admission::tick(MonoNs now) {
    // The store logs a broken file, once per state of it; reload() tells it to who asks.
    if (const Result<bool> changed = keys_.reload(); changed && *changed)
        decider_->install(keys_.snapshot(), topology_);
    decider_->sweep(now);
}

Status Admission::reload(const Config* config) {
    Status outcome;
    if (config != nullptr) {
        auto topology = make_topology(*config, models_, lanes_);
        if (topology)
            topology_ = std::move(*topology);
        else
            outcome = std::unexpected(topology.error());
    }
    if (const Result<bool> keys = keys_.reload(); !keys && outcome)
        outcome = std::unexpected(keys.error());
    decider_->install(keys_.snapshot(), topology_);
    return outcome;
}

Result<std::string> Admission::answer_token(const api::Admission& who, std::string_view body) {
    const auto* head = dynamic_cast<const admit::HeadAdmission*>(&who);
    if (head == nullptr)
        return fail(Code::kInternal, "app", "no head decision belongs to this request");
    return admit::answer_token_request(*head, body, wall_now());
}

Result<std::string> Admission::answer_topology(const api::Admission& who) {
    const auto* head = dynamic_cast<const admit::HeadAdmission*>(&who);
    if (head == nullptr)
        return fail(Code::kInternal, "app", "no head decision belongs to this request");
    return admit::topology_json(head->topology());
}

}  // namespace zerohop::app
