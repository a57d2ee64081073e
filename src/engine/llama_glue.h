// Glue around llama.h for the engine's own files: owners, log, process-wide compute threads.
//
// Threads: init_llama and shared_compute from any thread; the rest as llama.h says.
#pragma once

#include <llama.h>

#include <memory>
#include <string>

#include "engine/step_gate.h"

namespace zerohop::engine {

struct ModelFree {
    void operator()(llama_model* model) const { llama_model_free(model); }
};
struct ContextFree {
    void operator()(llama_context* context) const { llama_free(context); }
};
using ModelPtr = std::unique_ptr<llama_model, ModelFree>;
using ContextPtr = std::unique_ptr<llama_context, ContextFree>;

// Once per process; later calls do nothing. llama.cpp's log goes to ours at debug.
void init_llama();

// The last error line llama.cpp logged on this thread since the call before; empty when none.
std::string take_llama_error();

// The compute threads that all contexts of the process share, and the gate they pass step by step.
class Compute {
  public:
    explicit Compute(int threads);
    ~Compute();
    Compute(const Compute&) = delete;
    Compute& operator=(const Compute&) = delete;

    StepGate& gate() { return gate_; }
    int threads() const { return threads_; }
    void attach(llama_context* context) { llama_attach_threadpool(context, pool_, pool_); }

  private:
    int threads_;
    ggml_threadpool* pool_;
    StepGate gate_;
};

// The first caller's thread count stays until nobody holds it; later callers use at most that many.
std::shared_ptr<Compute> shared_compute(int threads);

}  // namespace zerohop::engine
