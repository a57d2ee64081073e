#include "admit/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "api/origin.h"
#include "base/ascii.h"

namespace zerohop::admit {
namespace {

using Json = nlohmann::ordered_json;

std::string lower(std::string_view text) {
    std::string out(text);
    for (char& c : out) c = ascii_lower(c);
    return out;
}

// Ids may hold "/" and ":" ("org/name:tag"), but nothing that would end a hint's value. One with
// blanks cannot be named in a hint, only in the body.
bool valid_model_name(std::string_view name) {
    if (name.empty() || name.size() > ModelNames::kMaxName || name.front() == ' ' ||
        name.back() == ' ')
        return false;
    for (const char c : name)
        if (c < 0x20 || c > 0x7e || c == ';' || c == '"' || c == ',' || c == '=') return false;
    return true;
}

Status refuse(std::string text) { return fail(Code::kInvalidRequest, "admit", std::move(text)); }

Status check_models(const TopologyConfig& config) {
    std::set<std::string> names;
    for (const Model& model : config.models) {
        if (model.id.contains('*'))
            return refuse(fmt::format(
                "model id \"{}\" holds a \"*\": only aliases stand for many names", model.id));
        std::vector<std::string_view> all = {model.id};
        all.insert(all.end(), model.aliases.begin(), model.aliases.end());
        for (const std::string_view name : all) {
            if (!valid_model_name(name))
                return refuse(fmt::format(
                    "model name \"{}\" must be 1 to 128 printable ASCII characters without quotes "
                    "and \";,=\"",
                    name));
            if (!names.insert(lower(name)).second)
                return refuse(fmt::format(
                    "model name \"{}\" is used twice (upper and lower case do not differ)", name));
        }
    }
    return {};
}

Status check_lanes(const TopologyConfig& config) {
    std::set<std::string> names;
    if (config.lanes.size() > Topology::kMaxLanes)
        return refuse(fmt::format("{} lanes, at most {} are possible", config.lanes.size(),
                                  Topology::kMaxLanes));
    for (const Lane& lane : config.lanes) {
        if (!auth::valid_name(lane.name))
            return refuse(
                fmt::format("lane name \"{}\" must be 1 to 64 of [A-Za-z0-9._-]", lane.name));
        if (!names.insert(lower(lane.name)).second)
            return refuse(fmt::format("lane \"{}\" is listed twice", lane.name));
    }
    if (!names.contains("default"))
        return refuse(
            "no lane is called \"default\", which is for requests that name none: list it");
    return {};
}

Status check_regions(const TopologyConfig& config) {
    std::set<std::string> names;
    if (!auth::valid_name(config.region))
        return refuse(
            fmt::format("region \"{}\" must be 1 to 64 of [A-Za-z0-9._-]", config.region));
    names.insert(lower(config.region));
    for (const Region& region : config.regions) {
        if (!auth::valid_name(region.name))
            return refuse(
                fmt::format("region \"{}\" must be 1 to 64 of [A-Za-z0-9._-]", region.name));
        if (!names.insert(lower(region.name)).second)
            return refuse(fmt::format("region \"{}\" is listed twice", region.name));
        for (const char c : region.location)
            if (c <= 0x20 || c > 0x7e)
                return refuse(fmt::format("location of region \"{}\" must be a URL, without blanks",
                                          region.name));
    }
    return {};
}

Status check_limits(const TopologyConfig& config) {
    const auto good = [](const auth::Limits& l) {
        for (const std::int64_t v : {l.requests, l.input_tokens, l.output_tokens})
            if (v < 0 || v > auth::kMaxLimit) return false;
        return true;
    };
    if (!good(config.workspace_default.limits) || !good(config.workspace_default.burst))
        return refuse(fmt::format("workspace limits must be 0 to {}", auth::kMaxLimit));
    if (auth::has_stray_burst(config.workspace_default.limits, config.workspace_default.burst))
        return refuse("the burst of a workspace needs the limit that it belongs to");
    for (const auto& [name, w] : config.workspaces) {
        if (!auth::valid_name(name))
            return refuse(fmt::format("workspace \"{}\" must be 1 to 64 of [A-Za-z0-9._-]", name));
        if (!good(w.limits) || !good(w.burst))
            return refuse(
                fmt::format("limits of workspace \"{}\" must be 0 to {}", name, auth::kMaxLimit));
        if (auth::has_stray_burst(w.limits, w.burst))
            return refuse(fmt::format(
                "the burst of workspace \"{}\" needs the limit that it belongs to", name));
    }
    return {};
}

Status check_server_names(const TopologyConfig& config) {
    for (const std::string& name : config.server_names)
        if (name.empty() || name.find_first_of("/:*@ ") != std::string::npos)
            return refuse(fmt::format(
                "server name \"{}\" must be a host as clients write it, without scheme and port, "
                "e.g. \"llm.home.arpa\"",
                name));
    return {};
}

}  // namespace

std::vector<Lane> default_lanes() {
    return {{.name = "default"},
            {.name = "low-latency",
             .reserved_sequences = 1,
             .beside_step_tokens = 64,
             .ttft_p99_ms = 150},
            {.name = "batch"}};
}

Topology::Topology(TopologyConfig config) : config_(std::move(config)) {
    for (const Model& model : config_.models) names_.add(model.id, model.aliases, model.fallback);
}

Result<std::shared_ptr<const Topology>> Topology::make(TopologyConfig config) {
    if (config.lanes.empty()) config.lanes = default_lanes();
    for (const auto check :
         {check_models, check_lanes, check_regions, check_limits, check_server_names})
        if (Status s = check(config); !s) return std::unexpected(s.error());
    return std::shared_ptr<const Topology>(new Topology(std::move(config)));
}

int Topology::find_lane(std::string_view name) const {
    for (std::size_t i = 0; i < config_.lanes.size(); ++i)
        if (equal_ignoring_case(config_.lanes[i].name, name)) return static_cast<int>(i);
    return -1;
}

bool Topology::is_here(std::string_view region) const {
    return equal_ignoring_case(region, config_.region);
}

bool Topology::is_ours(std::string_view host) const {
    return api::is_loopback_host(host) ||
           std::ranges::any_of(config_.server_names, [host](const std::string& name) {
               return equal_ignoring_case(name, host);
           });
}

const Region* Topology::find_region(std::string_view name) const {
    for (const Region& region : config_.regions)
        if (equal_ignoring_case(region.name, name)) return &region;
    return nullptr;
}

const WorkspaceLimits& Topology::limits_of(const std::string& workspace) const {
    const auto it = config_.workspaces.find(workspace);
    return it == config_.workspaces.end() ? config_.workspace_default : it->second;
}

std::string Topology::lane_names() const {
    std::string out;
    for (const Lane& lane : config_.lanes) out += (out.empty() ? "" : ", ") + lane.name;
    return out;
}

namespace {

// What each lane has of a model's slots, which may be less than it asks for.
Json reserved_json(const Model& model, const std::vector<Lane>& lanes) {
    auto out = Json::object();
    for (std::size_t i = 0; i < std::min(lanes.size(), model.lane_slots.size()); ++i)
        out[lanes[i].name] = model.lane_slots[i];
    return out;
}

}  // namespace

std::string topology_json(const Topology& topology) {
    const TopologyConfig& config = topology.config();
    Json models = Json::array();
    for (const Model& model : config.models) {
        Json entry = {{"id", model.id},
                      {"aliases", model.aliases},
                      {"instance", model.instance},
                      {"context_tokens", model.context_tokens},
                      {"kv_reserve_tokens", model.kv_reserve_tokens},
                      {"max_sequences", model.max_sequences},
                      {"for_unknown_names", model.fallback},
                      {"reserved_sequences", reserved_json(model, config.lanes)},
                      {"queue", nullptr}};
        if (model.gauge)
            entry["queue"] = {
                {"requests", model.gauge->requests.load(std::memory_order_relaxed)},
                {"max_requests", model.gauge->max_requests},
                {"tokens", model.gauge->tokens.load(std::memory_order_relaxed)},
                {"max_tokens", model.gauge->max_tokens},
                {"soft_kv_tokens", model.gauge->soft_kv_tokens.load(std::memory_order_relaxed)}};
        models.push_back(std::move(entry));
    }
    Json lanes = Json::array();
    for (const Lane& lane : config.lanes)
        lanes.push_back({{"name", lane.name},
                         {"reserved_sequences", lane.reserved_sequences},
                         {"beside_step_tokens", lane.beside_step_tokens},
                         {"ttft_p99_ms", lane.ttft_p99_ms}});
    Json regions = Json::array();
    regions.push_back({{"name", config.region}, {"here", true}, {"location", nullptr}});
    for (const Region& region : config.regions)
        regions.push_back(
            {{"name", region.name},
             {"here", false},
             {"location", region.location.empty() ? Json(nullptr) : Json(region.location)}});
    const auto limits = [](const WorkspaceLimits& w) -> Json {
        return {{"requests_per_minute", w.limits.requests},
                {"input_tokens_per_minute", w.limits.input_tokens},
                {"output_tokens_per_minute", w.limits.output_tokens},
                {"burst",
                 {{"requests", w.burst.requests},
                  {"input_tokens", w.burst.input_tokens},
                  {"output_tokens", w.burst.output_tokens}}}};
    };
    Json workspaces = Json::object();
    for (const auto& [name, w] : config.workspaces) workspaces[name] = limits(w);
    const Json doc = {{"type", "topology"},
                      {"region", config.region},
                      {"models", std::move(models)},
                      {"lanes", std::move(lanes)},
                      {"regions", std::move(regions)},
                      {"workspace_default", limits(config.workspace_default)},
                      {"workspaces", std::move(workspaces)}};
    return doc.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace zerohop::admit
