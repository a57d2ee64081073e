#include "engine/attention.h"

#include <ggml-backend.h>
#include <ggml-cpu/traits.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#ifdef GGML_BACKEND_DL
#include <dlfcn.h>
#endif

#include "engine/attention_job.h"

#ifdef GGML_BACKEND_DL  // ggml's own lie in the backend, out of the linker's sight
ggml::cpu::tensor_traits::~tensor_traits() = default;
ggml::cpu::extra_buffer_type::~extra_buffer_type() = default;
#endif

namespace zerohop::engine {
namespace {

std::atomic<bool> in_use{false};

bool is_kv_type(ggml_type type) { return type == GGML_TYPE_F16 || type == GGML_TYPE_BF16; }

// Its parameters: scale, the bias of ALiBi, soft cap (ggml.h).
float parameter(const ggml_tensor* op, std::size_t index) {
    float value = 0;
    std::memcpy(&value, op->op_params + index, sizeof value);
    return value;
}

bool can_do(const ggml_tensor* op) {
    const ggml_tensor *q = op->src[0], *k = op->src[1], *v = op->src[2], *mask = op->src[3];
    return std::ranges::find(kHeadSizes, k->ne[0]) != kHeadSizes.end() && v->ne[0] == k->ne[0] &&
           q->type == GGML_TYPE_F32 && is_kv_type(k->type) && v->type == k->type &&
           mask != nullptr && mask->ne[2] == 1 && mask->ne[3] == q->ne[3] &&
           op->src[4] == nullptr && k->ne[2] == v->ne[2] && k->ne[3] == q->ne[3] &&
           parameter(op, 1) == 0 && parameter(op, 2) == 0;
}

AttentionJob::Tensor tensor_of(const ggml_tensor* t) {
    return {.data = static_cast<const char*>(t->data),
            .row = t->nb[1],
            .head = t->nb[2],
            .stream = t->nb[3]};
}

class Attention final : public ggml::cpu::tensor_traits {
  public:
    bool work_size(int, const ggml_tensor*, std::size_t& size) override {
        size = 0;
        return true;
    }
    bool compute_forward(ggml_compute_params* params, ggml_tensor* op) override {
        const ggml_tensor *q = op->src[0], *k = op->src[1];
        const AttentionJob job{
            .q = tensor_of(q),
            .k = tensor_of(k),
            .v = tensor_of(op->src[2]),
            .mask = tensor_of(op->src[3]),
            .out = static_cast<char*>(op->data),
            .rows = static_cast<std::int32_t>(q->ne[1]),
            .cells = static_cast<std::int32_t>(k->ne[1]),
            .heads = static_cast<std::int32_t>(q->ne[2]),
            .kv_heads = static_cast<std::int32_t>(k->ne[2]),
            .streams = static_cast<std::int32_t>(q->ne[3]),
            .head_size = static_cast<std::int32_t>(k->ne[0]),
            .scale = parameter(op, 0),
            .kv = k->type == GGML_TYPE_F16 ? AttentionJob::Kv::kF16 : AttentionJob::Kv::kBf16};
        attend_avx512(job, params->ith, params->nth);
        return true;
    }
};

// ggml asks its extra buffer types first who computes an operation. This one is asked only: no
// tensor ever lies in it.
class AskedFirst final : public ggml::cpu::extra_buffer_type {
  public:
    bool supports_op(ggml_backend_dev_t, const ggml_tensor*) override { return false; }
    ggml::cpu::tensor_traits* get_tensor_traits(const ggml_tensor* op) override {
        const bool ours = op->op == GGML_OP_FLASH_ATTN_EXT &&
                          in_use.load(std::memory_order_relaxed) && can_do(op);
        return ours ? &attention_ : nullptr;
    }

  private:
    Attention attention_;
};

// The list of the CPU backend in use; null: it has none of that kind.
std::vector<ggml_backend_buffer_type_t>* extra_types_of(void* some_function) {
#ifdef GGML_BACKEND_DL  // a package: the backend was loaded at start, its list is found by name
    Dl_info backend{};
    if (dladdr(some_function, &backend) == 0) return nullptr;
    void* handle = dlopen(backend.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    if (handle == nullptr) return nullptr;
    void* list = dlsym(handle, "_Z39ggml_backend_cpu_get_extra_buffer_typesv");
    dlclose(handle);
    if (list == nullptr) return nullptr;
    return &reinterpret_cast<decltype(&ggml_backend_cpu_get_extra_buffer_types)>(list)();
#else
    (void)some_function;
    return &ggml_backend_cpu_get_extra_buffer_types();
#endif
}

// False: this backend cannot be asked.
bool ask_first() {
    // The list that weights are placed by is a copy, made at the first question: before ours is in.
    const ggml_backend_dev_t cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    const auto extra_types =
        reinterpret_cast<ggml_backend_dev_get_extra_bufts_t>(ggml_backend_reg_get_proc_address(
            ggml_backend_dev_backend_reg(cpu), "ggml_backend_dev_get_extra_bufts"));
    if (extra_types == nullptr) return false;
    (void)extra_types(cpu);
    std::vector<ggml_backend_buffer_type_t>* types =
        extra_types_of(reinterpret_cast<void*>(extra_types));
    if (types == nullptr) return false;
    static AskedFirst asked;
    static ggml_backend_buffer_type type{};
    type.device = cpu;
    type.context = &asked;
    types->push_back(&type);
    return true;
}

}  // namespace

bool has_avx512() {
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
#else
    return false;
#endif
}

bool use_own_attention(bool own) {
    static const bool possible = has_avx512() && ask_first();
    in_use.store(own && possible, std::memory_order_relaxed);
    return own && possible;
}

}  // namespace zerohop::engine
