// SidePrefill: a second context of the same model where one long prompt at a time is computed in
// large chunks that can be interrupted.
//
// On a CPU a chunk of 512 tokens costs half as much per token as one of 16, but takes seconds deep
// in a prompt; whoever decodes must not wait for that. llama.cpp computes a graph piece by piece
// when an observer asks to see some of its nodes: at each layer's output this one gives the engine
// the thread, which then runs a step of its own on the main context. So the others wait for a piece
// (a part of a layer), and the prompt pays only for their steps.
//
// KV: copied in if a beginning was cached, and taken into the main context when the prompt is done
// (KvStore::copy_out, take_in): ~1 % of what computing it costs.
//
// Threads: the engine's. Owns its context: memory for `cells` more tokens of KV, taken while a
// prompt is computed.
#pragma once

#include <llama.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "base/clock.h"
#include "engine/llama_glue.h"
#include "engine/model.h"
#include "engine/sequence.h"

namespace zerohop::engine {

class SidePrefill {
  public:
    // on_break: between two pieces, on the engine thread; may use any other context. stop: asked
    // by compute threads, ends a chunk early.
    struct Hooks {
        std::function<void(std::int64_t piece_ns)> on_break;
        bool (*stop)(void*) = nullptr;
        void* self = nullptr;
    };
    // Null when the context cannot be made (memory): then there is no side.
    static std::unique_ptr<SidePrefill> make(const Model& model, const Layout& layout,
                                             std::int32_t cells, std::int32_t chunk,
                                             Compute& compute, Hooks hooks);

    SidePrefill(const SidePrefill&) = delete;  // its context calls it by address
    SidePrefill& operator=(const SidePrefill&) = delete;

    bool fits(std::int64_t tokens) const { return tokens <= cells_; }
    std::int32_t chunk() const { return chunk_; }
    llama_context* context() { return context_.get(); }

    Sequence* current() const { return current_; }
    std::int32_t computed() const { return computed_; }  // of the current one's tokens, here
    std::int32_t left() const;                           // tokens; 0: nothing to do
    void begin(Sequence& sequence);                      // its cached beginning is here already
    void end() { current_ = nullptr; }
    void give_back() { llama_memory_clear(llama_get_memory(context_.get()), true); }  // nobody's

    // Computes the next chunk; llama_decode's code. The last one has the logits of the last token.
    std::int32_t run_chunk(std::int32_t threads);
    float* logits() { return llama_get_logits_ith(context_.get(), -1); }

    // What a token takes, from what chunks took (breaks not counted); 0: none was computed yet.
    double token_ns() const { return token_ns_; }

  private:
    explicit SidePrefill(std::int32_t chunk) : batch_(chunk), chunk_(chunk) {}
    static bool on_node(ggml_tensor* node, bool ask, void* self);

    Hooks hooks_;
    Compute* compute_ = nullptr;
    ContextPtr context_;
    Batch batch_;
    std::int32_t chunk_, cells_ = 0;
    Sequence* current_ = nullptr;
    std::int32_t computed_ = 0;
    double token_ns_ = 0;
    MonoNs piece_began_ = 0;
    std::int64_t elsewhere_ns_ = 0;  // spent in breaks during this chunk
};

}  // namespace zerohop::engine
