// Glue around llama.h for the engine's own files: owners, log, process-wide compute threads.
//
// Threads: init_llama and shared_compute from any thread; the rest as llama.h says.
#pragma once

#include <llama.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/check.h"
#include "engine/step_gate.h"

namespace zerohop::engine {

inline constexpr std::string_view kOrigin = "engine";  // of errors and log lines

struct ModelFree {
    void operator()(llama_model* model) const { llama_model_free(model); }
};
struct ContextFree {
    void operator()(llama_context* context) const { llama_free(context); }
};
using ModelPtr = std::unique_ptr<llama_model, ModelFree>;
using ContextPtr = std::unique_ptr<llama_context, ContextFree>;

// A batch of tokens, each of one sequence, with room for `capacity`.
class Batch {
  public:
    explicit Batch(std::int32_t capacity)
        : capacity_(capacity), batch_(llama_batch_init(capacity, 0, 1)) {}
    Batch(const Batch&) = delete;
    Batch& operator=(const Batch&) = delete;
    ~Batch() { llama_batch_free(batch_); }

    void clear() { batch_.n_tokens = 0; }
    void add(llama_token token, std::int32_t position, std::int32_t sequence, bool logits) {
        const std::int32_t i = batch_.n_tokens++;
        ZH_CHECK(i < capacity_);
        batch_.token[i] = token;
        batch_.pos[i] = position;
        batch_.n_seq_id[i] = 1;
        batch_.seq_id[i][0] = sequence;
        batch_.logits[i] = logits ? 1 : 0;
    }
    std::int32_t size() const { return batch_.n_tokens; }
    std::int32_t capacity() const { return capacity_; }
    const llama_batch& get() const { return batch_; }

  private:
    std::int32_t capacity_;
    llama_batch batch_;
};

// Once per process; later calls do nothing. llama.cpp's log goes to ours at debug.
void init_llama();

// Why llama.cpp failed on this thread: the first error it logged since the call before, without the
// names of its functions. Those after it only say that the one before failed. Empty when none.
std::string take_llama_error();

// The compute threads that all contexts of the process share, and the gate they pass step by step.
class Compute {
  public:
    Compute(int threads, std::shared_ptr<StepGate> gate);
    ~Compute();
    Compute(const Compute&) = delete;
    Compute& operator=(const Compute&) = delete;

    StepGate& gate() { return *gate_; }  // one for all of the process
    void attach(llama_context* context) { llama_attach_threadpool(context, pool_, pool_); }

  private:
    ggml_threadpool* pool_;
    std::shared_ptr<StepGate> gate_;
};

// The pool of so many threads, which all who ask for as many share; it ends with the last of them.
// Pools take turns by the gate, and one that does not compute sleeps.
std::shared_ptr<Compute> shared_compute(int threads);

}  // namespace zerohop::engine
