#include "engine/model.h"

#include <fmt/format.h>
#include <gguf.h>
#include <llama-ext.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/log.h"
#include "engine/attention.h"
#include "engine/pages.h"

namespace zerohop::engine {
namespace {

std::unexpected<Error> cannot_load(const std::string& path, std::string_view why) {
    return fail(Code::kInvalidRequest, kOrigin, fmt::format("cannot load {}: {}", path, why));
}

Status check_file(const std::string& path, Model& out) {
    struct stat info{};
    if (stat(path.c_str(), &info) != 0) return cannot_load(path, std::strerror(errno));
    if (!S_ISREG(info.st_mode)) return cannot_load(path, "not a regular file");
    std::array<char, 4> magic{};
    std::ifstream in(path, std::ios::binary);
    if (!in) return cannot_load(path, std::strerror(errno));
    in.read(magic.data(), magic.size());
    if (in.gcount() != 4 || std::string_view(magic.data(), 4) != "GGUF")
        return cannot_load(path, "not a GGUF file");
    out.file_bytes = info.st_size;
    out.info.created_ns = info.st_mtim.tv_sec * kNsPerSec + info.st_mtim.tv_nsec;
    const std::int64_t free = available_memory();
    if (free > 0 && info.st_size > free) {
        return cannot_load(path, fmt::format("it has {} MiB, {} MiB of memory are available",
                                             info.st_size >> 20, free >> 20));
    }
    return {};
}

// A LoRA adapter says so, but llama.cpp only misses the tensors of a model in it.
bool is_adapter(const std::string& path) {
    const std::unique_ptr<gguf_context, decltype(&gguf_free)> file(
        gguf_init_from_file(path.c_str(), {.no_alloc = true, .ctx = nullptr}), gguf_free);
    const std::int64_t key = file == nullptr ? -1 : gguf_find_key(file.get(), "general.type");
    return key >= 0 && gguf_get_kv_type(file.get(), key) == GGUF_TYPE_STRING &&
           std::string_view(gguf_get_val_str(file.get(), key)) == "adapter";
}

// The file is mapped: cut short or overwritten by a shorter one, its pages are gone and whoever
// computes with them gets SIGBUS. A private copy would take the model's size in memory again; so
// the process ends, and says why.
void tell_of_lost_pages() {
    struct sigaction action{};
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    action.sa_handler = [](int) {
        constexpr std::string_view kWhy =
            "zerohop: a model file was truncated or overwritten while it was served. Replace such "
            "a file by renaming a new one over it, then restart.\n";
        if (write(STDERR_FILENO, kWhy.data(), kWhy.size()) < 0) return;
    };
    sigaction(SIGBUS, &action, nullptr);
}

float meta_float(const llama_model* model, llama_model_meta_key key, float otherwise) {
    const std::string text = meta_string(model, llama_model_meta_key_str(key));
    if (text.empty()) return otherwise;
    char* end = nullptr;
    const float value = std::strtof(text.c_str(), &end);
    return end != text.c_str() ? value : otherwise;
}

SamplerParams sampling_of(const llama_model* model) {
    SamplerParams params;
    params.temperature = std::max(0.0F, meta_float(model, LLAMA_MODEL_META_KEY_SAMPLING_TEMP, 1));
    params.top_p = meta_float(model, LLAMA_MODEL_META_KEY_SAMPLING_TOP_P, 1);
    params.min_p = meta_float(model, LLAMA_MODEL_META_KEY_SAMPLING_MIN_P, 0);
    params.top_k =
        static_cast<std::int32_t>(meta_float(model, LLAMA_MODEL_META_KEY_SAMPLING_TOP_K, 0));
    params.repeat_penalty = meta_float(model, LLAMA_MODEL_META_KEY_SAMPLING_PENALTY_REPEAT, 1);
    params.penalty_last_n = static_cast<std::int32_t>(
        meta_float(model, LLAMA_MODEL_META_KEY_SAMPLING_PENALTY_LAST_N, 64));
    if (params.repeat_penalty <= 0) params.repeat_penalty = 1;
    return params;
}

void describe(Model& out, const LlamaOptions& options) {
    const llama_model* model = out.model.get();
    out.vocab = llama_model_get_vocab(model);
    out.trained_context = llama_model_n_ctx_train(model);
    out.info.id =
        options.id.empty() ? std::filesystem::path(options.path).stem().string() : options.id;
    const std::string name = meta_string(model, "general.name");
    out.info.display_name = name.empty() ? out.info.id : name;
    out.info.architecture = meta_string(model, "general.architecture");
    out.info.parameters = static_cast<std::int64_t>(llama_model_n_params(model));
    out.tail_removal = !llama_model_is_recurrent(model) && !llama_model_is_hybrid(model);
    out.partial_removal = out.tail_removal && llama_model_n_swa(model) == 0;
    out.info.can_share_prefix = out.partial_removal;
    out.sampling = sampling_of(model);
}

ggml_type type_named(const std::string& name) {
    if (name == "bf16") return GGML_TYPE_BF16;
    if (name == "q8_0") return GGML_TYPE_Q8_0;
    return GGML_TYPE_F16;
}

std::int64_t read_number(const char* path) {
    std::ifstream in(path);
    std::int64_t value = -1;
    return in >> value ? value : -1;
}

}  // namespace

std::string meta_string(const llama_model* model, const char* key) {
    if (key == nullptr) return {};
    const std::int32_t length = llama_model_meta_val_str(model, key, nullptr, 0);
    if (length <= 0) return {};
    std::string text(static_cast<std::size_t>(length), '\0');
    llama_model_meta_val_str(model, key, text.data(), text.size() + 1);
    return text;
}

std::int64_t available_memory() {
    std::int64_t available = 0;
    std::ifstream in("/proc/meminfo");
    for (std::string word; in >> word;) {
        if (word != "MemAvailable:") continue;
        in >> available;
        available *= 1024;
        break;
    }
    // cgroup v2, as in a container; "max" does not read as a number. Cached files count as used
    // there but give way.
    const std::int64_t limit = read_number("/sys/fs/cgroup/memory.max");
    std::int64_t used = read_number("/sys/fs/cgroup/memory.current");
    if (limit > 0 && used >= 0) {
        std::ifstream stat("/sys/fs/cgroup/memory.stat");
        std::int64_t value = 0;
        for (std::string word; stat >> word >> value;)
            if (word == "inactive_file") used -= value;
        available = std::min(available, std::max<std::int64_t>(0, limit - used));
    }
    return available;
}

KvBytes kv_bytes(const Model& model, const Layout& layout) {
    constexpr std::int32_t kStep = 256;  // cells: llama.cpp rounds up to these
    Layout one = layout;
    one.unified = true;
    const auto taken = [&](std::int32_t cells) -> std::int64_t {
        const ContextPtr context =
            make_context(model, one, {.cells = cells, .batch = 32, .ubatch = 32});
        if (context == nullptr) return 0;
        std::size_t bytes = 0;
        for (const auto& [type, memory] : llama_get_memory_breakdown(context.get()))
            bytes += memory.context;
        return static_cast<std::int64_t>(bytes);
    };
    const std::int64_t small = taken(kStep), large = taken(2 * kStep);
    const std::int64_t per_token = std::max<std::int64_t>(0, large - small) / kStep;
    return {.per_token = per_token,
            .per_sequence = std::max<std::int64_t>(0, small - per_token * kStep)};
}

Result<std::shared_ptr<const Model>> Model::load(const LlamaOptions& options,
                                                 const LoadProgress& progress) {
    init_llama();
    tell_of_lost_pages();
    use_own_attention(options.own_attention);
    auto out = std::make_shared<Model>();
    if (Status checked = check_file(options.path, *out); !checked)
        return std::unexpected(checked.error());
    llama_model_params params = llama_model_default_params();
    params.n_gpu_layers = options.gpu_layers;
    struct Told {
        const LoadProgress* progress;
    } told{&progress};
    params.progress_callback_user_data = &told;
    params.progress_callback = [](float done, void* user) {
        const LoadProgress& tell = *static_cast<Told*>(user)->progress;
        if (tell) tell("loading the model", static_cast<double>(done));
        return true;
    };
    (void)take_llama_error();
    try {
        out->model.reset(llama_model_load_from_file(options.path.c_str(), params));
    } catch (const std::exception& e) {
        return cannot_load(options.path, e.what());
    }
    if (out->model == nullptr) {
        std::string why = take_llama_error();
        if (is_adapter(options.path)) why = "a LoRA adapter, not a model";
        return cannot_load(options.path, why.empty() ? "corrupt or unsupported" : why);
    }
    const llama_model* model = out->model.get();
    if (!llama_model_has_decoder(model) || llama_model_has_encoder(model) ||
        llama_vocab_type(llama_model_get_vocab(model)) == LLAMA_VOCAB_TYPE_NONE)
        return cannot_load(options.path, "not a text generating model");
    if (llama_model_is_diffusion(model))
        return cannot_load(options.path, "diffusion models are not supported");
    drop_file_pages(options.path);
    describe(*out, options);
    out->on_gpu = options.gpu_layers != 0 && llama_supports_gpu_offload();
    return out;
}

ContextPtr make_context(const Model& model, const Layout& layout, const ContextSize& size) {
    llama_context_params params = llama_context_default_params();
    params.n_ctx = static_cast<std::uint32_t>(size.cells);
    params.n_seq_max = static_cast<std::uint32_t>(size.sequences);
    params.n_batch = static_cast<std::uint32_t>(std::max(size.batch, size.sequences));
    params.n_ubatch =
        static_cast<std::uint32_t>(std::max(std::min(size.ubatch, size.batch), size.sequences));
    // The buffers of logits would otherwise be for a whole batch.
    params.n_outputs_max = std::min(
        static_cast<std::uint32_t>(std::max(size.outputs, size.sequences)), params.n_batch);
    params.cb_eval = size.on_node;
    params.cb_eval_user_data = size.on_node_self;
    params.n_threads = layout.threads;
    params.n_threads_batch = layout.threads;
    params.flash_attn_type =
        layout.flash_attention ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    params.type_k = type_named(layout.kv_type);
    params.type_v = type_named(layout.kv_type);
    params.kv_unified = layout.unified;
    params.no_perf = true;
    params.swa_full = true;  // a sequence must be cut anywhere, also outside the window
    const BufferOwner owner(&model);
    try {
        return ContextPtr(llama_init_from_model(model.model.get(), params));
    } catch (const std::exception& e) {
        log_debug("engine", "context: {}", e.what());
        return nullptr;
    }
}

}  // namespace zerohop::engine
