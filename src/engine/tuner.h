// Tuner: how to lay out a context on this machine, found by measuring, kept in a small text file.
//
// Candidates: threads × flash attention × K/V type × unified or per-sequence KV. Measured one axis
// after the other (threads first), ≤ 5 s together. Score of a candidate: the weighted harmonic mean
// of three rates, each relative to the best seen: prefill of some hundred tokens, decode of one
// sequence, decode of eight with foreign cells beside them. Harmonic, so that being terrible at one
// thing is not bought back by another; q8_0 and a stream per sequence must win by a margin
// (tuner.cc). Measured while others take much of the CPUs, the result is not kept.
//
// The file: one line "key value" each, first the key it holds for (model file's size, time and
// name, CPU model and count, llama.cpp version). What the options give is not measured. Threads:
// the caller's, before the engine starts. Where nothing was through in time the defaults are
// taken unmeasured, with a thread for each core; fails only when no candidate works.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"
#include "engine/llama_engine.h"
#include "engine/model.h"

namespace zerohop::engine {

// A file in the options' folder of measurements for what is found out about this model on this
// machine by this build; `key` says so and is its first line. Empty: nothing is kept.
struct KeptFile {
    std::string path, key;
};
KeptFile kept_file(const Model& model, const LlamaOptions& options, std::string_view what);

Result<Layout> choose_layout(const Model& model, const LlamaOptions& options,
                             const LoadProgress& progress);

// Tokens of one request: as configured, else what the model was trained for, at most kMostContext;
// the KV pool may hold fewer.
inline constexpr std::int32_t kMostContext = 131'072;
std::int32_t wanted_context(const Model& model, const LlamaOptions& options);

struct ContextPlan {
    std::int32_t cells = 0;  // of the whole KV cache
    std::int32_t sequences = 0;
    std::int64_t kv_bytes = 0;  // once all of it was used
    KvBytes bytes;
    std::int32_t side_cells = 0;  // of a second context for long prompts; 0: none
    std::int32_t outputs = 1;     // rows of logits of one call
};

// How large the KV cache may be. kInvalidRequest when config asks for more than there is.
Result<ContextPlan> plan_context(const Model& model, const LlamaOptions& options,
                                 const Layout& layout);

}  // namespace zerohop::engine
