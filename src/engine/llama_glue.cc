#include "engine/llama_glue.h"

#include <ggml-cpu.h>
#include <log.h>

#include <mutex>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "engine/pages.h"

namespace zerohop::engine {
namespace {

thread_local std::string t_first_error;

// "llama_model_load: error loading model: error loading model architecture: …" -> "…"
std::string_view without_names(std::string_view line) {
    while (true) {
        const std::size_t colon = line.find(": ");
        if (colon == std::string_view::npos) return line;
        const std::string_view head = line.substr(0, colon);
        const bool function = head.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") ==
                                  std::string_view::npos &&
                              head.find('_') != std::string_view::npos;
        if (!function && !head.starts_with("error loading model")) return line;
        line.remove_prefix(colon + 2);
    }
}

void on_llama_log(ggml_log_level level, const char* text, void* /*user*/) {
    if (text == nullptr || level == GGML_LOG_LEVEL_DEBUG) return;
    std::string line(text);
    while (!line.empty() && (line.back() == '\n' || line.back() == ' ')) line.pop_back();
    if (line.empty() || line == ".") return;
    if (level == GGML_LOG_LEVEL_ERROR && t_first_error.empty()) t_first_error = without_names(line);
    log_debug("llama", "{}", line);
}

}  // namespace

void init_llama() {
    static std::once_flag once;
    std::call_once(once, [] {
        llama_log_set(on_llama_log, nullptr);
        common_log_set_verbosity_thold(-1000);  // llama-common prints to stderr by itself
        llama_backend_init();
        use_own_pages();
    });
}

std::string take_llama_error() { return std::exchange(t_first_error, {}); }

Compute::Compute(int threads) : threads_(threads) {
    ggml_threadpool_params params = ggml_threadpool_params_default(threads);
    // A thread that waits for the next step polls for a few milliseconds (131,072 pauses a level),
    // as steps follow each other closely, then sleeps and leaves the core to others.
    params.poll = 1;
    pool_ = ggml_threadpool_new(&params);
    ZH_CHECK(pool_ != nullptr);
}

Compute::~Compute() { ggml_threadpool_free(pool_); }

std::shared_ptr<Compute> shared_compute(int threads) {
    static std::mutex mutex;
    static std::weak_ptr<Compute> shared;
    const std::lock_guard lock(mutex);
    std::shared_ptr<Compute> compute = shared.lock();
    if (compute == nullptr) {
        compute = std::make_shared<Compute>(threads);
        shared = compute;
    } else if (compute->threads() < threads) {
        log_warn("engine", "{} compute threads asked for, {} already run and are shared", threads,
                 compute->threads());
    }
    return compute;
}

}  // namespace zerohop::engine
