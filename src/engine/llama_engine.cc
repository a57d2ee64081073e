#include "engine/llama_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/log.h"
#include "engine/llama_engine_impl.h"
#include "engine/trial.h"

namespace zerohop::engine {
namespace {

constexpr std::int32_t kSideChunk = 512;     // tokens
constexpr std::int32_t kSideCells = 16'384;  // most tokens of a prompt computed beside
constexpr std::int32_t kCachedSlots = 64;    // sequences of a unified pool, running or cached
constexpr std::int32_t kMostSlots = 255;     // llama.cpp's 256, less one for scratch
constexpr std::int64_t kMostHostBytes = 4LL << 30;
constexpr std::int64_t kFirstHostBytes = 256LL << 20;  // where nobody says how much

// Sequence ids of the main context: cached ones in a unified pool cost no more than their cells.
std::int32_t slots_of(const Model& model, const Layout& layout, const LlamaOptions& options,
                      std::int32_t sequences) {
    if (!options.prefix_cache || !layout.unified || !model.tail_removal) return sequences;
    return std::clamp(4 * sequences, std::max(sequences, kCachedSlots), kMostSlots);
}

KvStore::Options kv_options(const Model& model, const Layout& layout, const LlamaOptions& options,
                            const ContextPlan& plan, llama_context* context) {
    std::int64_t host = options.cache_host_bytes;
    if (host < 0) host = std::min(available_memory() / 4, kMostHostBytes);
    return {.prefix_cache = options.prefix_cache,
            .unified = layout.unified,
            .partial_removal = model.partial_removal,
            .slots = slots_of(model, layout, options, plan.sequences),
            .pool_tokens = llama_n_ctx(context),
            .slot_tokens = static_cast<std::int32_t>(llama_n_ctx_seq(context)),
            .bytes = plan.bytes,
            .host_bytes = host,
            .host_first_bytes = options.cache_host_bytes < 0 ? kFirstHostBytes : host,
            // On a CPU foreign cells cost every decode; on a GPU next to nothing.
            .idle_tokens = model.on_gpu ? llama_n_ctx(context) : 0,
            .pin_share = options.pin_share,
            .pin_total_share = options.pin_total_share};
}

}  // namespace

LlamaEngine::LlamaEngine(const LlamaOptions& options, std::shared_ptr<const Model> model,
                         std::unique_ptr<PromptRenderer> renderer, const Layout& layout,
                         const ContextPlan& plan, ContextPtr context)
    : options_(options),
      model_(std::move(model)),
      renderer_(std::move(renderer)),
      tokenizer_(model_->vocab),
      layout_(layout),
      info_(model_->info),
      compute_(shared_compute(layout.threads)),
      context_(std::move(context)),
      batch_(static_cast<std::int32_t>(llama_n_batch(context_.get()))),
      separate_calls_(!model_->on_gpu),
      waiting_({.bounds = {.max_requests =
                               static_cast<std::uint32_t>(std::max(options.queue_requests, 1)),
                           .max_tokens = options.queue_tokens,
                           .model = info_.id},
                .gauge = options.gauge,
                .reserved = options.lane_reserved,
                .slots = static_cast<std::uint32_t>(plan.sequences)}),
      plans_({.default_output =
                  static_cast<std::uint32_t>(std::max(options.expected_output_tokens, 1))}),
      seeds_(std::random_device{}()),
      kv_(context_.get(), kv_options(*model_, layout, options, plan, context_.get()),
          options.on_step),
      planner_({.batch_tokens = std::max(options.batch_tokens, plan.sequences),
                .step_ns = options.step_ms * kNsPerMs,
                .idle_step_ns = options.idle_step_ms * kNsPerMs}),
      governor_(layout.threads),
      pool_tokens_(llama_n_ctx(context_.get())) {
    const auto cells = static_cast<std::int32_t>(llama_n_ctx_seq(context_.get()));
    info_.context_tokens = std::min(wanted_context(*model_, options_), cells);
    info_.max_sequences = plan.sequences;
    info_.can_continue = renderer_->traits().can_continue;
    info_.can_share_prefix = model_->partial_removal && options_.prefix_cache;
    output_limit_ = plan.outputs;
    if (options_.gauge != nullptr) options_.gauge->engine_keeps_promises = options_.prefix_cache;
    std::int32_t n = 0;
    const llama_token* list = llama_vocab_get_suppress_tokens(model_->vocab, &n);
    if (list != nullptr) suppressed_ = {list, static_cast<std::size_t>(n)};
    compute_->attach(context_.get());
    llama_set_abort_callback(context_.get(), &LlamaEngine::abort_step, this);
    if (options_.drafts && model_->tail_removal)
        drafts_ = std::make_unique<Drafts>(options_.draft_bytes, options_.drafts_always);
    if (plan.side_cells > 0) {
        side_ = SidePrefill::make(
            *model_, layout_, plan.side_cells, std::min(kSideChunk, plan.side_cells), *compute_,
            {.on_break = [this](std::int64_t piece_ns) { side_break(piece_ns); },
             .stop = &LlamaEngine::abort_side,
             .self = this});
    }
    pool_ = std::make_unique<TokenizerPool>(
        *renderer_, tokenizer_,
        TokenizerPool::Limits{.threads = options_.tokenizer_threads,
                              .queue = options_.tokenizer_queue,
                              .context_tokens = info_.context_tokens},
        [this](PreparedRequest&& ready) { arrive(std::move(ready)); });
    thread_ = std::thread([this] { run(); });
}

void LlamaEngine::submit(RequestPtr request, StreamPtr stream) {
    stream->set_producer(this);
    if (draining_.load(std::memory_order_acquire)) {
        (void)stream->try_push(Failed{make_error(Code::kUnavailable, "shutting down")});
        return;
    }
    pool_->submit(std::move(request), std::move(stream));
}

void LlamaEngine::arrive(PreparedRequest&& ready) {
    const StreamPtr stream = ready.stream;
    if (inbox_.push(std::move(ready)) == Inbox<PreparedRequest>::Pushed::kClosed) {
        (void)stream->try_push(Failed{make_error(Code::kUnavailable, "shutting down")});
        return;
    }
    arrived_.store(true, std::memory_order_release);
    wake_.signal();
}

void LlamaEngine::forget_cached(std::string_view workspace, std::uint64_t id) {
    (void)forgets_.push({.workspace = std::string(workspace), .id = id});
    notify();
}

EngineStats LlamaEngine::stats_approx() const {
    const auto get = [](const auto& value) { return value.load(std::memory_order_relaxed); };
    EngineStats stats;
    {
        const std::lock_guard lock(stats_mutex_);
        stats = cache_stats_;
    }
    stats.waiting = get(n_waiting_);
    stats.running = get(n_running_);
    stats.paused = get(n_paused_);
    stats.kv_tokens_used = get(kv_used_);
    stats.kv_tokens_total = static_cast<std::uint64_t>(pool_tokens_);
    stats.steps = get(steps_);
    stats.prompt_tokens_computed = get(prompt_computed_);
    stats.output_tokens = get(output_tokens_);
    stats.cancelled = get(cancelled_);
    stats.last_cancel_ns = get(last_cancel_ns_);
    return stats;
}

void LlamaEngine::stop() {
    drain();
    const std::lock_guard lock(join_mutex_);
    stopping_.store(true, std::memory_order_release);  // first: it ends the running step
    notify();
    pool_->stop();
    if (thread_.joinable()) thread_.join();
}

Result<std::unique_ptr<EnginePort>> load_llama(const LlamaOptions& asked,
                                               const LoadProgress& progress) {
    Result<std::shared_ptr<const Model>> model = Model::load(asked, progress);
    if (!model) return std::unexpected(model.error());
    const Model& loaded = **model;
    if (progress) progress("trying the model", -1);
    const Result<Trial> trial = try_model(loaded, asked);
    if (!trial) return std::unexpected(trial.error());
    LlamaOptions options = asked;
    if (trial->one_sequence) {
        options.max_sequences = 1;
        options.prefix_cache = options.tune = false;
    }
    if (trial->one_sequence || trial->streams) options.unified = false;
    if (trial->streams) options.flash_attention = true;
    auto renderer = PromptRenderer::make(loaded.model.get(), loaded.vocab);
    if (!renderer) {
        Error error = renderer.error();
        error.detail = fmt::format("cannot load {}: {}", options.path, error.detail);
        return std::unexpected(std::move(error));
    }
    Result<Layout> layout = choose_layout(loaded, options, progress);
    if (!layout) return std::unexpected(layout.error());
    Result<ContextPlan> plan = plan_context(loaded, options, *layout);
    if (!plan) return std::unexpected(plan.error());
    // A context of streams takes no state of one without.
    if (!options.side_prefill || loaded.on_gpu || !loaded.tail_removal || !layout->unified)
        plan->side_cells = 0;
    plan->side_cells = std::min(plan->side_cells, kSideCells);
    // One row for each sequence, and some for drafts.
    plan->outputs = plan->sequences + static_cast<std::int32_t>(Drafts::kMostRows);
    (void)take_llama_error();
    const std::int32_t slots = slots_of(loaded, *layout, options, plan->sequences);
    ContextPtr context = make_context(loaded, *layout,
                                      {.cells = plan->cells,
                                       .sequences = slots + (layout->unified ? 1 : 0),
                                       .batch = options.batch_tokens,
                                       .ubatch = options.ubatch_tokens,
                                       .outputs = plan->outputs});
    if (context == nullptr) {
        return fail(Code::kInvalidRequest, kOrigin,
                    fmt::format("cannot load {}: no context of {} tokens: {}", options.path,
                                plan->cells, take_llama_error()));
    }
    auto engine = std::make_unique<LlamaEngine>(options, std::move(*model), std::move(*renderer),
                                                *layout, *plan, std::move(context));
    log_info(kOrigin,
             "{}: {} tokens of context, {} of KV (up to {} MiB), {} sequences, {} threads, flash "
             "attention "
             "{}, K/V {}, {}",
             engine->info().id, engine->info().context_tokens, plan->cells, plan->kv_bytes >> 20,
             plan->sequences, layout->threads, layout->flash_attention ? "on" : "off",
             layout->kv_type, layout->unified ? "unified" : "per sequence");
    if (options.context_tokens <= 0 && engine->info().context_tokens < loaded.trained_context) {
        log_info(kOrigin,
                 "{}: the model takes {} tokens of context; model.context_tokens and "
                 "model.kv_tokens set more",
                 engine->info().id, loaded.trained_context);
    }
    return engine;
}

}  // namespace zerohop::engine
