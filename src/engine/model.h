// Model: a loaded GGUF and what is known of it before any context exists.
//
// Immutable once loaded; shared by the tokenizer threads, the engine thread and the tuner.
// load() fails with one clear line: missing, not GGUF, corrupt, no decoder, larger than memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/error.h"
#include "engine/llama_engine.h"
#include "engine/llama_glue.h"
#include "engine/sampler.h"

namespace zerohop::engine {

struct Model {
    ModelPtr model;
    const llama_vocab* vocab = nullptr;
    ModelInfo info;
    SamplerParams sampling;  // the GGUF's general.sampling.*, else neutral; seed unset
    std::int32_t trained_context = 0;
    std::int64_t file_bytes = 0;
    bool on_gpu = false;  // some layers are
    // What may be cut off the end of a sequence. Anything: plain attention. A few tokens, in the
    // call's wake that computed them: sliding windows too, whose cells before the window llama.cpp
    // gives to others (so a sequence is used again where it ends, or not at all). Nothing: a
    // recurrent state is what all its tokens made of it.
    bool partial_removal = true;
    bool tail_removal = true;

    static Result<std::shared_ptr<const Model>> load(const LlamaOptions& options,
                                                     const LoadProgress& progress);
};

// How a context is laid out; chosen by the tuner, by config, or llama.cpp's default.
struct Layout {
    std::int32_t threads = 1;
    bool flash_attention = true;
    std::string kv_type = "f16";
    bool unified = true;
};

struct ContextSize {
    std::int32_t cells = 0;  // tokens of the whole KV cache
    std::int32_t sequences = 1;
    std::int32_t batch = 512, ubatch = 512;  // tokens
    std::int32_t outputs = 1;                // rows of logits of one batch
    // Sees nodes of the graph as they are computed (SidePrefill); null: nobody does.
    bool (*on_node)(ggml_tensor*, bool ask, void* self) = nullptr;
    void* on_node_self = nullptr;
};

// What a context's memory takes for each token it has room for, and for each sequence (recurrent
// states): what llama.cpp allocates for two small ones. Zeros when it makes none.
struct KvBytes {
    std::int64_t per_token = 0, per_sequence = 0;
};
KvBytes kv_bytes(const Model& model, const Layout& layout);

// nullptr when this model cannot be laid out so.
ContextPtr make_context(const Model& model, const Layout& layout, const ContextSize& size);

// Bytes this process may still take: free memory, or less under a cgroup's limit.
std::int64_t available_memory();

// Metadata as text; empty when absent.
std::string meta_string(const llama_model* model, const char* key);

}  // namespace zerohop::engine
