#include "engine/llama_glue.h"

#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <log.h>

#include <filesystem>
#include <map>
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

// Of the CPU backend, which a package loads at start: asked for by name, not linked.
template <typename Function>
Function* cpu_function(const char* name) {
    const ggml_backend_dev_t cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    ZH_CHECK(cpu != nullptr);
    return reinterpret_cast<Function*>(
        ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(cpu), name));
}

}  // namespace

void init_llama() {
    static std::once_flag once;
    std::call_once(once, [] {
        llama_log_set(on_llama_log, nullptr);
        common_log_set_verbosity_thold(-1000);  // llama-common prints to stderr by itself
#ifdef GGML_BACKEND_DL
        // Relative to the program, as installed (CMakeLists.txt): the best of them for this CPU.
        std::error_code failed;
        const auto program = std::filesystem::read_symlink("/proc/self/exe", failed);
        ggml_backend_load_all_from_path((program.parent_path() / ZEROHOP_BACKENDS).c_str());
#endif
        llama_backend_init();
        use_own_pages();
    });
}

std::string take_llama_error() { return std::exchange(t_first_error, {}); }

Compute::Compute(int threads, std::shared_ptr<StepGate> gate) : gate_(std::move(gate)) {
    init_llama();
    ggml_threadpool_params params = ggml_threadpool_params_default(threads);
    // A thread that waits for the next step polls for a few milliseconds (131,072 pauses a level),
    // as steps follow each other closely, then sleeps and leaves the core to others.
    params.poll = 1;
    pool_ = cpu_function<decltype(ggml_threadpool_new)>("ggml_threadpool_new")(&params);
    ZH_CHECK(pool_ != nullptr);
}

Compute::~Compute() { cpu_function<decltype(ggml_threadpool_free)>("ggml_threadpool_free")(pool_); }

std::shared_ptr<Compute> shared_compute(int threads) {
    static std::mutex mutex;
    static std::map<int, std::weak_ptr<Compute>> pools;  // by threads
    static const auto gate = std::make_shared<StepGate>();
    const std::lock_guard lock(mutex);
    std::weak_ptr<Compute>& pool = pools[threads];
    std::shared_ptr<Compute> compute = pool.lock();
    if (compute == nullptr) pool = compute = std::make_shared<Compute>(threads, gate);
    return compute;
}

}  // namespace zerohop::engine
