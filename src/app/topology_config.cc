#include "app/topology_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace zerohop::app {
namespace {

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

admit::WorkspaceLimits default_limits(const Config::Quota& quota) {
    return {.limits = {.requests = quota.workspace_requests,
                       .input_tokens = quota.workspace_input_tokens,
                       .output_tokens = quota.workspace_output_tokens},
            .burst = {.requests = quota.workspace_requests_burst,
                      .input_tokens = quota.workspace_input_tokens_burst,
                      .output_tokens = quota.workspace_output_tokens_burst}};
}

admit::WorkspaceLimits quotas_of(const WorkspaceConfig& workspace) {
    return {.limits = {.requests = workspace.requests,
                       .input_tokens = workspace.input_tokens,
                       .output_tokens = workspace.output_tokens},
            .burst = {.requests = workspace.requests_burst,
                      .input_tokens = workspace.input_tokens_burst,
                      .output_tokens = workspace.output_tokens_burst}};
}

}  // namespace

std::vector<admit::Lane> lanes_of(const Config& config) {
    if (config.lanes.empty()) return admit::default_lanes();
    std::vector<admit::Lane> lanes;
    lanes.reserve(config.lanes.size());
    for (const LaneConfig& lane : config.lanes)
        lanes.push_back({.name = lane.name,
                         .reserved_sequences = static_cast<std::uint32_t>(lane.reserved_sequences),
                         .beside_step_tokens = static_cast<std::uint32_t>(lane.beside_step_tokens),
                         .ttft_p99_ms = static_cast<std::uint32_t>(lane.ttft_p99_ms)});
    return lanes;
}

std::vector<std::uint32_t> reservations_of(const std::vector<admit::Lane>& lanes) {
    std::vector<std::uint32_t> out;
    out.reserve(lanes.size());
    for (const admit::Lane& lane : lanes) out.push_back(lane.reserved_sequences);
    return out;
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
    topology.workspace_default = default_limits(config.quota);
    for (const WorkspaceConfig& workspace : config.workspaces)
        topology.workspaces[workspace.name] = quotas_of(workspace);
    topology.max_body_bytes = config.limits.body_bytes;
    topology.count_cache_reads = config.quota.count_cache_reads;
    topology.server_names = config.server.names;
    return admit::Topology::make(std::move(topology));
}

void set_names(const Config& config, std::vector<admit::Model>& models) {
    admit::Model* fallback = models.empty() ? nullptr : models.data();
    for (admit::Model& model : models) {
        model.fallback = false;
        const auto it = std::ranges::find(config.models, model.id, &ModelConfig::id);
        if (it == config.models.end()) continue;
        model.aliases = it->aliases;
        if (it->fallback) fallback = &model;
    }
    if (fallback != nullptr) fallback->fallback = config.api.unknown_model == "default";
}

Status check_topology(const Config& config) {
    std::vector<admit::Model> models;
    models.reserve(config.models.size());
    for (const ModelConfig& model : config.models)
        models.push_back({.id = model.id, .aliases = {}, .gauge = nullptr});
    set_names(config, models);
    auto topology = make_topology(config, models, lanes_of(config));
    if (!topology) return std::unexpected(topology.error());
    return {};
}

}  // namespace zerohop::app
