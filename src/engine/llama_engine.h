// LlamaEngine: a GGUF model behind EnginePort. The public face; nothing of llama.h is in it.
//
//     submit -> tokenizer pool (render, tokenize, Prepared) -> wait queue -> slots -> steps ->
//     Stream
//
// Threads: one engine thread per model owns the llama context, the KV bookkeeping and the planner;
// a few tokenizer threads; all models of a process share one compute threadpool, step by step.
// Errors of loading (missing, not GGUF, corrupt, too large) are one line in Status, never an abort.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "request/engine_port.h"
#include "request/request.h"
#include "sched/lane_caps.h"
#include "sched/occupancy.h"
#include "sched/queue_gauge.h"

namespace zerohop::engine {

// One batch given to the model, for tests that replay it on a bare context.
struct StepToken {
    std::int32_t token = 0, position = 0, sequence = 0;
    bool logits = false;
    std::int32_t sampled = -1;  // the token chosen from these logits
};
struct StepRecord {
    std::span<const StepToken> tokens;   // empty for a removal or a copy
    std::int32_t chunk = 0;              // computed in batches of so many; 0: in one
    std::int32_t removed_sequence = -1;  // KV of this sequence from removed_from on is gone
    std::int32_t removed_from = 0;
    std::int32_t copied_from = -1, copied_to = -1;  // the first copied_length tokens
    std::int32_t copied_length = 0;
};

struct LlamaOptions {
    std::string path;
    std::string id;  // public id; empty: the file's name without ".gguf"

    // Tokens of prompt + output of one request. 0: what the model was trained for, at most 131,072.
    // Never more than the KV pool holds.
    std::int32_t context_tokens = 0;
    // Tokens the KV pool holds over all requests: its memory bound (bytes per token are logged).
    // 0: one full context or two, less if that is more than half of the free memory. What is not
    // used takes no memory.
    std::int32_t kv_tokens = 0;
    std::int32_t max_sequences = 16;   // requests computed at once, 1 … 256
    std::int32_t batch_tokens = 2048;  // tokens of one step at most
    std::int32_t ubatch_tokens = 512;  // tokens computed at once within a step
    // How long a step may take while some request is decoding, and while none is: prefill is cut to
    // fit. 0: no limit but batch_tokens.
    std::int32_t step_ms = 150;
    std::int32_t idle_step_ms = 400;
    // Output a request is expected to have: KV reserved at its start, beyond its prompt.
    std::int32_t expected_output_tokens = 256;

    // Chosen by measuring (tune) unless given.
    std::int32_t threads = 0;  // compute threads
    std::optional<bool> flash_attention;
    std::string kv_type;           // f16, bf16 or q8_0
    std::optional<bool> unified;   // one KV pool for all sequences, or a stream for each
    bool tune = true;              // false: llama.cpp's defaults where not given
    bool trial = true;             // tried in a child process before it serves (trial.h)
    std::string cache_dir;         // where measurements are kept; empty: nowhere
    std::int32_t gpu_layers = -1;  // layers on a GPU, if there is one; -1: all

    // Beyond these a request fails with kOverloaded.
    std::int32_t queue_requests = 256;         // requests waiting for a slot
    std::int64_t queue_tokens = 1 << 20;       // their prompt and expected output in total
    std::shared_ptr<sched::QueueGauge> gauge;  // kept up to date for whoever asks; may be null
    std::vector<std::uint32_t> lane_reserved;  // slots by lane index (wait_queue.h)
    sched::OccupancyLimits occupancy;          // how long a reader may hold a place
    std::shared_ptr<const sched::LaneCaps> lane_caps;  // read at each step; null: none
    bool own_attention = true;                         // attention.h; of the whole process
    bool side_prefill = true;               // long prompts in a context of their own (on a CPU)
    bool prefix_cache = true;               // requests share the KV of what they begin with
    bool drafts_always = false;             // tests: tried whether or not they pay
    bool drafts = true;                     // outputs of one structure run on verified drafts
    std::int64_t cache_host_bytes = -1;     // saved prefixes, at most; -1: by free memory
    std::int32_t give_back_s = 10;          // without work: then pages go back to the system
    std::int64_t draft_bytes = 64LL << 20;  // what earlier outputs are remembered in
    double pin_share = 0.25;                // of the KV pool, that one workspace may pin
    double pin_total_share = 0.75;          // and all together
    std::int32_t tokenizer_threads = 2;
    std::int32_t tokenizer_queue = 256;  // requests waiting to be tokenized

    Sampling sampling;  // config's defaults; absent ones come from the GGUF, then temperature 1
                        // (a seed here makes every answer repeatable)

    std::function<void(const StepRecord&)> on_step;  // tests only; engine thread
};

// stage is a few words for a person; fraction is 0 … 1, or < 0 where it is unknown.
using LoadProgress = std::function<void(std::string_view stage, double fraction)>;

// Loads the model and starts its threads; seconds to minutes. Any thread.
Result<std::unique_ptr<EnginePort>> load_llama(const LlamaOptions& options,
                                               const LoadProgress& progress);

struct TuneRow {
    std::int32_t threads = 0;
    bool flash_attention = false;
    std::string kv_type;
    bool unified = false;
    double prefill_tps = 0;  // tokens/s, prompt of some hundred tokens
    double decode1_tps = 0;  // tokens/s of one sequence
    double decode8_tps = 0;  // tokens/s in total of eight, foreign cells beside them
    double score = 0;
    bool valid = true;  // false: this model or build cannot do it, or it was late
    bool late = false;  // not through in time
};

struct TuneReport {
    std::vector<TuneRow> thread_rows;  // short runs that chose the threads
    std::vector<TuneRow> rows;         // layouts, in the order measured
    TuneRow chosen;
    bool from_cache = false;  // then there are no rows
    std::string key;          // file, CPU and llama.cpp version it holds for
};

// Measures (≤ 5 s beyond loading) or reads what was measured before; `force` measures anyway.
Result<TuneReport> tune(const LlamaOptions& options, const LoadProgress& progress, bool force);

// "v0.4.0", and the CPU features it was built for.
std::string llama_version_text();

}  // namespace zerohop::engine
