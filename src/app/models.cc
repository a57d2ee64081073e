#include "app/models.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <limits>

#include "app/topology_config.h"
#include "engine/llama_engine.h"
#include "engine/null_engine.h"

namespace zerohop::app {
namespace {

template <class To>
To clamped(std::int64_t value) {
    return static_cast<To>(std::clamp<std::int64_t>(value, 0, std::numeric_limits<To>::max()));
}

Sampling sampling_defaults(const ModelConfig& model) {
    Sampling sampling;
    if (model.temperature >= 0) sampling.temperature = static_cast<float>(model.temperature);
    if (model.top_p >= 0) sampling.top_p = static_cast<float>(model.top_p);
    if (model.top_k >= 0) sampling.top_k = clamped<std::int32_t>(model.top_k);
    if (model.seed >= 0) sampling.seed = clamped<std::uint32_t>(model.seed);
    return sampling;
}

sched::OccupancyLimits occupancy_of(const Config& config) {
    return {.slow_reader_ns = config.engine.slow_reader_s * kNsPerSec,
            .stalled_reader_ns = config.engine.stalled_reader_s * kNsPerSec};
}

}  // namespace

Result<engine::LlamaOptions> llama_options(const ModelConfig& model, const Config& config) {
    const Result<std::string> cache = cache_dir(config);
    if (!cache) return std::unexpected(cache.error());
    engine::LlamaOptions options;
    options.path = model.path;
    options.id = model.id;
    options.context_tokens = clamped<std::int32_t>(model.context_tokens);
    options.kv_tokens = clamped<std::int32_t>(model.kv_tokens);
    options.max_sequences = clamped<std::int32_t>(model.max_sequences);
    options.batch_tokens = clamped<std::int32_t>(model.batch_tokens);
    options.step_ms = clamped<std::int32_t>(model.step_ms);
    options.side_prefill = model.side_prefill;
    options.own_attention = config.engine.own_attention;
    options.occupancy = occupancy_of(config);
    options.threads = clamped<std::int32_t>(model.threads);
    if (model.flash_attention != "auto") options.flash_attention = model.flash_attention == "on";
    if (model.kv_type != "auto") options.kv_type = model.kv_type;
    if (model.kv_layout != "auto") options.unified = model.kv_layout == "unified";
    options.cache_dir = *cache;
    options.gpu_layers = clamped<std::int32_t>(model.gpu_layers);
    options.queue_requests = clamped<std::int32_t>(model.queue_requests);
    options.queue_tokens = model.queue_tokens;
    options.prefix_cache = config.cache.prefix;
    options.drafts = config.cache.drafts;
    options.cache_host_bytes = config.cache.host_mb < 0 ? -1 : config.cache.host_mb << 20;
    options.draft_bytes = config.cache.draft_mb << 20;
    options.pin_share = config.cache.pin_share;
    options.pin_total_share = config.cache.pin_total_share;
    options.tokenizer_threads = clamped<std::int32_t>(config.engine.tokenizer_threads);
    options.sampling = sampling_defaults(model);
    return options;
}

Result<std::unique_ptr<EnginePort>> load_model(const ModelConfig& model, const Config& config,
                                               std::shared_ptr<sched::QueueGauge> gauge,
                                               std::shared_ptr<const sched::LaneCaps> caps,
                                               const Progress& progress) {
    if (model.path.starts_with("null:")) {
        std::string script = model.path == "null:" ? "null" : model.path;
        if (!model.id.empty())
            script += fmt::format("{}id={}", script == "null" ? ":" : ",", model.id);
        return engine::make_null(script, reservations_of(lanes_of(config)), gauge,
                                 occupancy_of(config));
    }
    Result<engine::LlamaOptions> options = llama_options(model, config);
    if (!options) return std::unexpected(options.error());
    options->gauge = std::move(gauge);
    options->lane_reserved = reservations_of(lanes_of(config));
    options->lane_caps = std::move(caps);
    return engine::load_llama(*options, [&](std::string_view stage, double share) {
        if (progress)
            progress(fmt::format("{}: {}", options->id, stage), static_cast<float>(share));
    });
}

Result<std::string> cache_dir(const Config& config) {
    namespace fs = std::filesystem;
    fs::path dir = config.engine.cache_dir;
    if (dir.empty()) {
        const char* own = std::getenv("ZEROHOP_CACHE");
        const char* xdg = std::getenv("XDG_CACHE_HOME");
        const char* home = std::getenv("HOME");
        if (own != nullptr && *own != 0)
            dir = own;
        else if (xdg != nullptr && *xdg != 0)
            dir = fs::path(xdg) / "zerohop";
        else
            dir = fs::path(home != nullptr ? home : "/var/cache") /
                  (home != nullptr ? ".cache/zerohop" : "zerohop");
    }
    std::error_code ec;
    fs::create_directories(dir, ec);
    if (ec)
        return fail(
            Code::kInvalidRequest, "config",
            fmt::format(
                "{}: cannot be made ({}); set engine.cache_dir to a folder that can be written",
                dir.string(), ec.message()));
    return dir.string();
}

}  // namespace zerohop::app
