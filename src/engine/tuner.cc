#include "engine/tuner.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

namespace zerohop::engine {

Result<Layout> choose_layout(const Model& model, const LlamaOptions& options,
                             const LoadProgress& progress) {
    (void)model;
    (void)progress;
    Layout layout;
    layout.threads =
        options.threads > 0
            ? options.threads
            : static_cast<std::int32_t>(std::max(1U, std::thread::hardware_concurrency()));
    layout.flash_attention = options.flash_attention.value_or(true);
    layout.kv_type = options.kv_type.empty() ? "f16" : options.kv_type;
    layout.unified = options.unified.value_or(true);
    return layout;
}

Result<ContextPlan> plan_context(const Model& model, const LlamaOptions& options,
                                 const Layout& layout) {
    ContextPlan plan;
    plan.sequences = std::clamp(options.max_sequences, 1, 256);
    const std::int64_t per_token =
        std::max<std::int64_t>(1, model.kv_bytes_per_token(layout.kv_type));
    const std::int32_t trained = std::max(model.trained_context, 512);
    std::int64_t context =
        options.context_tokens > 0 ? std::min(options.context_tokens, trained) : trained;
    const std::int64_t free = available_memory();
    std::int64_t cells = options.kv_tokens;
    if (cells <= 0) {
        cells = layout.unified ? context : context * plan.sequences;
        if (free > 0) cells = std::min(cells, std::max<std::int64_t>(free / 2 / per_token, 512));
    } else if (free > 0 && cells * per_token > free) {
        return fail(
            Code::kInvalidRequest, "engine",
            fmt::format(
                "cannot load {}: a KV cache of {} tokens takes {} MiB, {} MiB of memory are "
                "available",
                options.path, cells, (cells * per_token) >> 20, free >> 20));
    }
    if (!layout.unified)
        cells = std::max<std::int64_t>(cells / plan.sequences, 256) * plan.sequences;
    plan.cells = static_cast<std::int32_t>(cells);
    plan.kv_bytes = cells * per_token;
    return plan;
}

}  // namespace zerohop::engine
