#include "admit/admit_table.h"

#include "base/log.h"

namespace zerohop::admit {

std::shared_ptr<WorkspaceState> StateBook::workspace(const std::string& name,
                                                     const Topology& topology) {
    const WorkspaceLimits& limits = topology.limits_of(name);
    std::shared_ptr<WorkspaceState>& state = workspaces_[name];
    if (!state) {
        state = std::make_shared<WorkspaceState>(name, limits);
    } else {
        state->quota.set_limits(limits.limits, limits.burst);
    }
    return state;
}

std::shared_ptr<KeyState> StateBook::key(const std::string& id, const Limits& limits,
                                         const Limits& burst) {
    std::shared_ptr<KeyState>& state = keys_[id];
    if (!state) {
        state = std::make_shared<KeyState>(id, limits, burst);
    } else {
        state->quota.set_limits(limits, burst);
    }
    return state;
}

Binding StateBook::bind(const auth::KeyRecord* record, const Topology& topology) {
    Binding binding;
    binding.key = record;
    const int default_lane = topology.find_lane("default");
    binding.default_lane = static_cast<std::uint8_t>(default_lane);
    if (record == nullptr) {
        binding.key_state = key("", {}, {});
        binding.workspace = workspace("default", topology);
        return binding;
    }
    binding.key_state = key(record->id, record->limits, record->burst);
    binding.workspace = workspace(record->workspace, topology);
    binding.priority_max = record->priority_max;
    binding.lanes = 0;
    for (const std::string& name : record->lanes) {
        if (name == "*") binding.lanes = ~0ULL;
        const int lane = topology.find_lane(name);
        if (lane >= 0) binding.lanes |= 1ULL << lane;
    }
    // Without the default lane, requests that name none run on the first one the key has.
    if (binding.lanes != 0 && (binding.lanes >> default_lane & 1) == 0)
        binding.default_lane = static_cast<std::uint8_t>(__builtin_ctzll(binding.lanes));
    binding.all_models = false;
    binding.models.assign(topology.models().size(), false);
    for (const std::string& name : record->models) {
        if (name == "*") binding.all_models = true;
        if (const Model* model = topology.find_named(name))
            binding.models[topology.index_of(*model)] = true;
    }
    return binding;
}

std::shared_ptr<const AdmitTable> StateBook::build(std::shared_ptr<const auth::KeySnapshot> keys,
                                                   std::shared_ptr<const Topology> topology) {
    const std::scoped_lock lock(mutex_);
    auto table = std::make_shared<AdmitTable>();
    table->keys = std::move(keys);
    table->topology = std::move(topology);
    table->bindings.reserve(table->keys->keys().size());
    for (const auth::KeyRecord& record : table->keys->keys())
        table->bindings.push_back(bind(&record, *table->topology));
    table->anonymous = bind(nullptr, *table->topology);
    for (const Model& model : table->topology->models()) {
        std::shared_ptr<ModelState>& state = models_[model.id];
        if (!state || (model.gauge && state->gauge != model.gauge))
            state = std::make_shared<ModelState>(model.gauge);
        table->models.push_back(state);
    }
    return table;
}

void StateBook::make_room(WallNs now) {
    while (!token_ends_.empty() &&
           (token_ends_.begin()->first <= now || tokens_.size() >= kMaxTokens)) {
        tokens_.erase(token_ends_.begin()->second);
        token_ends_.erase(token_ends_.begin());
    }
}

std::shared_ptr<TokenState> StateBook::token_state(const auth::TokenClaims& claims, WallNs now) {
    const std::scoped_lock lock(mutex_);
    const auto it = tokens_.find(claims.token_id);
    if (it != tokens_.end()) return it->second;
    make_room(now);
    auto state = std::make_shared<TokenState>(claims);
    tokens_.emplace(claims.token_id, state);
    token_ends_.emplace(claims.expires_ns, claims.token_id);
    return state;
}

void StateBook::sweep(MonoNs now) {
    std::vector<std::shared_ptr<WorkspaceState>> all;
    {
        const std::scoped_lock lock(mutex_);
        for (const auto& [name, state] : workspaces_) all.push_back(state);
    }
    for (const auto& state : all) state->soft_kv.sweep(now);
}

std::int64_t StateBook::soft_kv_tokens(const std::string& model_id) const {
    const std::scoped_lock lock(mutex_);
    const auto it = models_.find(model_id);
    return it == models_.end() ? 0 : it->second->soft_kv().load(std::memory_order_relaxed);
}

}  // namespace zerohop::admit
