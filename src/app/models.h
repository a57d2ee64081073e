// Makes an engine from one model's configuration: the llama engine for a GGUF file, the scripted
// one for "null:…". Main thread; blocks while loading and measuring. Errors: one line for a person.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "app/config.h"
#include "request/engine_port.h"
#include "sched/lane_caps.h"
#include "sched/queue_gauge.h"

namespace zerohop::engine {
struct LlamaOptions;
}

namespace zerohop::app {

// what: "loading smollm2", "measuring" …; share in [0, 1]. Called on the calling thread.
using Progress = std::function<void(std::string_view what, float share)>;

// What the llama engine is told for this model; `zerohop tune` measures with the same.
Result<engine::LlamaOptions> llama_options(const ModelConfig& model, const Config& config);

// `gauge` is told how long the model's queue is, `caps` is read at each step; both may be null.
Result<std::unique_ptr<EnginePort>> load_model(const ModelConfig& model, const Config& config,
                                               std::shared_ptr<sched::QueueGauge> gauge,
                                               std::shared_ptr<const sched::LaneCaps> caps,
                                               const Progress& progress);

// $XDG_CACHE_HOME/zerohop, ~/.cache/zerohop or config.engine.cache_dir; made when missing.
Result<std::string> cache_dir(const Config& config);

}  // namespace zerohop::app
