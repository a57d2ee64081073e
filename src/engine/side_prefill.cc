#include "engine/side_prefill.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace zerohop::engine {

std::unique_ptr<SidePrefill> SidePrefill::make(const Model& model, const Layout& layout,
                                               std::int32_t cells, std::int32_t chunk,
                                               Compute& compute, Hooks hooks) {
    std::unique_ptr<SidePrefill> out(new SidePrefill(chunk));
    out->hooks_ = std::move(hooks);
    out->compute_ = &compute;
    Layout alone = layout;
    alone.unified = true;
    out->context_ = make_context(model, alone,
                                 {.cells = cells,
                                  .sequences = 1,
                                  .batch = chunk,
                                  .ubatch = chunk,
                                  .outputs = 1,
                                  .on_node = &SidePrefill::on_node,
                                  .on_node_self = out.get()});
    if (out->context_ == nullptr) return nullptr;
    out->cells_ = static_cast<std::int32_t>(llama_n_ctx_seq(out->context_.get()));
    compute.attach(out->context_.get());
    llama_set_abort_callback(out->context_.get(), out->hooks_.stop, out->hooks_.self);
    return out;
}

std::int32_t SidePrefill::left() const {
    return current_ == nullptr ? 0 : static_cast<std::int32_t>(current_->tokens.size()) - computed_;
}

void SidePrefill::begin(Sequence& sequence) {
    current_ = &sequence;
    computed_ = sequence.computed;
}

std::int32_t SidePrefill::run_chunk(std::int32_t threads) {
    const std::int32_t n = std::min(left(), chunk_);
    const bool last = n == left();
    batch_.clear();
    for (std::int32_t i = computed_; i < computed_ + n; ++i)
        batch_.add(current_->tokens[static_cast<std::size_t>(i)], i, 0,
                   last && i + 1 == computed_ + n);
    llama_set_n_threads(context_.get(), threads, threads);
    compute_->gate().lock();
    const MonoNs begin = piece_began_ = mono_now();
    elsewhere_ns_ = 0;
    const std::int32_t rc = llama_decode(context_.get(), batch_.get());
    if (rc == 0) llama_synchronize(context_.get());
    const auto took = static_cast<double>(mono_now() - begin - elsewhere_ns_);
    compute_->gate().unlock();
    if (rc != 0) return rc;
    computed_ += n;
    if (n >= chunk_ / 4) token_ns_ += (token_ns_ == 0 ? 1 : 0.3) * (took / n - token_ns_);
    return rc;
}

// llama.cpp asks first for each node whether it is wanted, then gives those that are.
bool SidePrefill::on_node(ggml_tensor* node, bool ask, void* self) {
    if (ask) {
        const char* name = ggml_get_name(node);
        return std::strncmp(name, "l_out", 5) == 0 || std::strncmp(name, "ffn_inp", 7) == 0;
    }
    auto& side = *static_cast<SidePrefill*>(self);
    const MonoNs now = mono_now();
    side.compute_->gate().unlock();
    side.hooks_.on_break(now - side.piece_began_);
    side.compute_->gate().lock();
    side.piece_began_ = mono_now();
    side.elsewhere_ns_ += side.piece_began_ - now;
    return true;
}

}  // namespace zerohop::engine
