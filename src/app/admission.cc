#include "app/admission.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "admit/token_endpoint.h"
#include "app/topology_config.h"
#include "auth/key_file.h"
#include "base/log.h"
#include "sched/lane_slots.h"

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
                 "{:.0f} prompt tokens/s, so prompts above {:.0f} tokens{} will be refused (429); "
                 "raise the lane's ttft_p99_ms to {:.0f} for prompts of {}",
                 lane.name, lane.ttft_p99_ms, model.id, 1000 / token, std::floor(left / token),
                 model.gauge->engine_keeps_promises ? " that are not cached" : "",
                 std::ceil(fixed + token * kUsualPrompt), kUsualPrompt);
    }
}

// Says where a lane has less than somebody asked for it.
void reserve_slots(admit::Model& model, const std::vector<admit::Lane>& lanes, bool asked) {
    const std::vector<std::uint32_t> wanted = reservations_of(lanes);
    model.lane_slots = sched::granted_slots(wanted, model.max_sequences);
    for (std::size_t i = 0; asked && i < lanes.size(); ++i)
        if (model.lane_slots[i] < wanted[i])
            log_warn("app",
                     "lane \"{}\" asks for {} reserved sequences of model {} and has {}: all lanes "
                     "together get at most half of its {}; raise model.max_sequences or lower the "
                     "lanes' reserved_sequences",
                     lanes[i].name, wanted[i], model.id, model.lane_slots[i], model.max_sequences);
}

// Only of lanes that promise something else than before.
void check_objectives(const std::vector<admit::Lane>& lanes, const std::vector<admit::Lane>& before,
                      const std::vector<admit::Model>& models) {
    for (std::size_t i = 0; i < lanes.size(); ++i)
        if (i >= before.size() || before[i].ttft_p99_ms != lanes[i].ttft_p99_ms)
            for (const admit::Model& model : models) check_objective(lanes[i], model);
}

}  // namespace

Result<std::unique_ptr<Admission>> Admission::open(const Config& config) {
    Result<auth::KeyStore> keys = open_keys(config);
    if (!keys) return std::unexpected(keys.error());
    return std::unique_ptr<Admission>(new Admission(std::move(*keys)));
}

Status Admission::start(const Config& config, std::vector<std::unique_ptr<EnginePort>>& engines,
                        const std::vector<std::shared_ptr<sched::QueueGauge>>& gauges) {
    lanes_ = lanes_of(config);
    for (std::size_t i = 0; i < engines.size(); ++i) {
        const ModelInfo& info = engines[i]->info();
        models_.push_back({.id = config.models[i].id,
                           .aliases = {},
                           .instance = static_cast<std::uint32_t>(i),
                           .context_tokens = info.context_tokens,
                           .kv_reserve_tokens = std::min(info.context_tokens / 4, 1024),
                           .gauge = i < gauges.size() ? gauges[i] : nullptr,
                           .max_sequences = static_cast<std::uint32_t>(info.max_sequences)});
        reserve_slots(models_.back(), lanes_, !config.lanes.empty());
    }
    set_names(config, models_);
    body_bytes_ = config.limits.body_bytes;
    check_objectives(lanes_, {}, models_);
    auto topology = make_topology(config, models_, lanes_);
    if (!topology) return std::unexpected(topology.error());
    topology_ = std::move(*topology);
    set_caps();
    decider_ = std::make_unique<admit::HeadDecider>(keys_.snapshot(), topology_);
    return {};
}

void Admission::set_caps() {
    for (std::size_t i = 0; i < lanes_.size(); ++i)
        lane_caps_->set(i, lanes_[i].beside_step_tokens);
}

void Admission::tick(MonoNs now) {
    // The store logs a broken file, once per state of it; who asks for a reload is told again.
    static_cast<void>(reload_keys());
    decider_->sweep(now);
}

Status Admission::reload_topology(const Config& config) {
    // What is served stays what was loaded; the file may say more of it.
    std::vector<admit::Model> models = models_;
    set_names(config, models);
    std::vector<admit::Lane> lanes = lanes_;
    const std::vector<admit::Lane> wanted = lanes_of(config);
    for (admit::Lane& lane : lanes)
        if (const auto it = std::ranges::find(wanted, lane.name, &admit::Lane::name);
            it != wanted.end()) {
            lane.ttft_p99_ms = it->ttft_p99_ms;
            lane.beside_step_tokens = it->beside_step_tokens;
        }
    Config merged = config;
    merged.limits.body_bytes = body_bytes_;  // bodies in flight are held to it as well
    auto topology = make_topology(merged, models, lanes);
    if (!topology) return std::unexpected(topology.error());
    check_objectives(lanes, lanes_, models);
    models_ = std::move(models);
    lanes_ = std::move(lanes);
    topology_ = std::move(*topology);
    set_caps();
    decider_->install(keys_.snapshot(), topology_);
    return {};
}

Status Admission::reload_keys() {
    const Result<bool> changed = keys_.reload();
    if (!changed) return std::unexpected(changed.error());
    if (*changed) decider_->install(keys_.snapshot(), topology_);
    return {};
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
