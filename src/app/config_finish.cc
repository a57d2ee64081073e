// What a configuration must be beyond its single fields, whether from a file or from flags.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "api/version.h"
#include "app/config.h"
#include "app/topology_config.h"
#include "auth/key_record.h"
#include "request/model_names.h"

namespace zerohop::app {

ModelConfig model_from_flag(std::string_view flag) {
    ModelConfig model;
    model.path = flag;
    const std::size_t equals = flag.rfind('=');
    if (equals == std::string_view::npos) return model;
    if (flag.starts_with("null:")) {
        // The script has equals signs of its own: only a second one in its last setting starts the
        // id ("null:tokens=5=id"), or one right after the colon ("null:=id").
        const std::string_view last = flag.substr(flag.find_last_of(",:") + 1);
        if (!last.starts_with('=') && std::count(last.begin(), last.end(), '=') < 2) return model;
    }
    model.path = flag.substr(0, equals);
    model.id = flag.substr(equals + 1);
    return model;
}

namespace {

Status check_warm_up(const WarmUpConfig& warm_up, bool known) {
    if (!known)
        return fail(
            Code::kInvalidRequest, "config",
            fmt::format("cache.warmup.model is \"{}\", which no model is called", warm_up.model));
    const auto given = [](const std::string& text) { return text.empty() ? 0 : 1; };
    if (given(warm_up.system) + given(warm_up.prompt) + given(warm_up.file) == 1) return {};
    return fail(Code::kInvalidRequest, "config",
                fmt::format("the cache.warmup of model \"{}\" must have one of system, prompt and "
                            "file",
                            warm_up.model));
}

Status check_shares(const Config::Cache& cache) {
    const auto wrong = [](std::string text) {
        return fail(Code::kInvalidRequest, "config", std::move(text));
    };
    if (!cache.shares.empty() && cache.isolate != "workspace")
        return wrong(
            "cache.share needs cache.isolate = \"workspace\": users are kept apart or "
            "workspaces share, not both");
    std::set<std::string, std::less<>> seen;
    for (const ShareConfig& share : cache.shares) {
        if (share.workspaces.size() < 2)
            return wrong(
                fmt::format("cache.share.workspaces = [\"{}\"] shares with nobody: name "
                            "two workspaces or more",
                            fmt::join(share.workspaces, "")));
        for (const std::string& name : share.workspaces) {
            if (!auth::valid_name(name))
                return wrong(
                    fmt::format("cache.share.workspaces: \"{}\" is no workspace: 1 to 64 "
                                "of [A-Za-z0-9._-]",
                                name));
            if (!seen.insert(name).second)
                return wrong(
                    fmt::format("cache.share.workspaces names \"{}\" twice: a workspace "
                                "shares its caches with one group",
                                name));
        }
    }
    return {};
}

}  // namespace

CacheGroups cache_groups(const Config& config) {
    CacheGroups groups;
    // Two names tell a group from all others: a workspace is in one only.
    for (const ShareConfig& share : config.cache.shares)
        for (const std::string& name : share.workspaces)
            groups[name] = share.workspaces[0] + "+" + share.workspaces[1];
    return groups;
}

std::vector<LaneConfig> built_in_lanes() {
    std::vector<LaneConfig> lanes;
    for (const admit::Lane& lane : admit::default_lanes())
        lanes.push_back({.name = lane.name,
                         .reserved_sequences = lane.reserved_sequences,
                         .ttft_p99_ms = lane.ttft_p99_ms,
                         .beside_step_tokens = lane.beside_step_tokens});
    return lanes;
}

Status finish_config(Config& config) {
    if (config.tls.certificate.empty() != config.tls.key.empty())
        return fail(Code::kInvalidRequest, "config",
                    "tls.certificate and tls.key belong together: set both, or neither for a "
                    "development certificate");
    if (config.limits.total_buffer_bytes < config.limits.body_bytes)
        return fail(Code::kInvalidRequest, "config",
                    fmt::format("limits.total_buffer_bytes = {} cannot hold one body of "
                                "limits.body_bytes = {}: raise the one or lower the other",
                                config.limits.total_buffer_bytes, config.limits.body_bytes));
    if (!config.api.default_version.empty() && !api::parse_version(config.api.default_version))
        return fail(Code::kInvalidRequest, "config",
                    fmt::format("api.default_version is \"{}\"; known versions: {}",
                                config.api.default_version, api::kKnownVersions));
    if (Status s = check_shares(config.cache); !s) return s;
    std::set<std::string, std::less<>> names;
    ModelNames by_name;
    const ModelConfig* fallback = nullptr;
    for (ModelConfig& model : config.models) {
        if (model.id.empty()) {
            model.id = model.path.starts_with("null:")
                           ? "null"
                           : std::filesystem::path(model.path).stem().string();
        }
        std::vector<std::string> all = model.aliases;
        all.push_back(model.id);
        for (const std::string& name : all)
            if (!names.insert(name).second)
                return fail(Code::kInvalidRequest, "config",
                            fmt::format("two models are called \"{}\": give one another id "
                                        "(--model PATH=ID or id = \"…\")",
                                        name));
        by_name.add(model.id, model.aliases, false);
        if (model.fallback && fallback != nullptr)
            return fail(Code::kInvalidRequest, "config",
                        fmt::format("models \"{}\" and \"{}\" both have default = true: only one "
                                    "can answer to unknown names",
                                    fallback->id, model.id));
        if (model.fallback) fallback = &model;
    }
    const bool all_known = config.models.empty();  // the command line names them
    for (const WarmUpConfig& warm_up : config.cache.warm_ups)
        if (Status s = check_warm_up(
                warm_up, all_known || by_name.find_named(warm_up.model) != ModelNames::kNone);
            !s)
            return s;
    return check_topology(config);
}

}  // namespace zerohop::app
