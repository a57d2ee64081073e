#include "engine/vocab_tool.h"

#include <fmt/format.h>
#include <llama.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "engine/prompt.h"
#include "engine/tokenizer.h"

namespace zerohop::engine {

struct VocabTool::Impl {
    struct Free {
        void operator()(llama_model* loaded) const { llama_model_free(loaded); }
    };
    std::unique_ptr<llama_model, Free> model;
    std::unique_ptr<Tokenizer> tokenizer;
    std::unique_ptr<PromptRenderer> renderer;
    std::size_t frame = 0;  // tokens encode() adds to nothing
};

VocabTool::VocabTool(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
VocabTool::~VocabTool() = default;

Result<std::unique_ptr<VocabTool>> VocabTool::load(const std::string& path) {
    char magic[4] = {};
    std::ifstream in(path, std::ios::binary);
    if (!in)
        return fail(Code::kInvalidRequest, "engine",
                    fmt::format("cannot load {}: {}", path, std::strerror(errno)));
    if (!in.read(magic, 4) || std::string_view(magic, 4) != "GGUF")
        return fail(Code::kInvalidRequest, "engine",
                    fmt::format("cannot load {}: not a GGUF file", path));
    llama_log_set([](ggml_log_level, const char*, void*) {},
                  nullptr);  // the one line below says it
    llama_model_params params = llama_model_default_params();
    params.vocab_only = true;
    auto impl = std::make_unique<Impl>();
    impl->model.reset(llama_model_load_from_file(path.c_str(), params));
    if (impl->model == nullptr)
        return fail(Code::kInvalidRequest, "engine",
                    fmt::format("cannot load {}: no vocabulary can be read from it", path));
    const llama_vocab* vocab = llama_model_get_vocab(impl->model.get());
    impl->tokenizer = std::make_unique<Tokenizer>(vocab);
    auto renderer = PromptRenderer::make(impl->model.get(), vocab);
    if (!renderer) return std::unexpected(renderer.error());
    impl->renderer = std::move(*renderer);
    impl->frame = impl->tokenizer->encode({}).size();
    return std::unique_ptr<VocabTool>(new VocabTool(std::move(impl)));
}

std::size_t VocabTool::count(std::string_view text) const {
    return impl_->tokenizer->encode({{.text = std::string(text), .input = true}}).size() -
           impl_->frame;
}

Result<std::size_t> VocabTool::count_prompt(const std::vector<Turn>& turns,
                                            bool continue_last) const {
    auto prompt = impl_->renderer->render(turns, continue_last);
    if (!prompt) return std::unexpected(prompt.error());
    return impl_->tokenizer->encode(*prompt).size();
}

}  // namespace zerohop::engine
