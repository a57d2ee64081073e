// A model of some 200 KiB with random weights, made where a test needs one: two layers of the llama
// architecture, a vocabulary of letters and bytes, ChatML. Its answers are letters without sense,
// the same for the same prompt at temperature 0, and never end by themselves.
//
// Threads: any; each call writes a file of its own. Nothing fails but the test.
#pragma once

#include <ggml.h>
#include <gguf.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace zerohop::engine::testkit {

class TinyModel {
  public:
    static constexpr std::int32_t kContext = 8192;  // tokens; one is about a byte of text

    TinyModel()
        : path_(testing::TempDir() + "/zerohop_tiny_" + std::to_string(getpid()) + ".gguf") {
        gguf_.reset(gguf_init_empty());
        ggml_init_params params{.mem_size = 8 << 20, .mem_buffer = nullptr, .no_alloc = false};
        tensors_.reset(ggml_init(params));
        add_vocabulary();
        add_shape();
        add_tensors();
        EXPECT_TRUE(gguf_write_to_file(gguf_.get(), path_.c_str(), false));
    }
    ~TinyModel() { std::remove(path_.c_str()); }
    TinyModel(const TinyModel&) = delete;
    TinyModel& operator=(const TinyModel&) = delete;

    const std::string& path() const { return path_; }

  private:
    static constexpr std::int64_t kWidth = 64, kHeads = 2, kHead = 32, kInner = 64, kLayers = 2;
    enum Type : std::int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kByte = 6 };

    void token(std::string text, Type type) {
        tokens_.push_back(std::move(text));
        types_.push_back(type);
    }
    void add_vocabulary() {
        token("<unk>", kUnknown);
        for (const char* text : {"<s>", "</s>", "<|im_start|>", "<|im_end|>"})
            token(text, kControl);
        for (int i = 0; i < 256; ++i) {
            char text[8];
            std::snprintf(text, sizeof text, "<0x%02X>", static_cast<unsigned>(i));
            token(text, kByte);
        }
        token("\xE2\x96\x81", kNormal);  // SentencePiece's space
        for (char c = 'a'; c <= 'z'; ++c) token(std::string(1, c), kNormal);
        std::vector<const char*> texts;
        for (const std::string& text : tokens_) texts.push_back(text.c_str());
        const std::vector<float> scores(tokens_.size(), 0.0F);
        gguf_context* g = gguf_.get();
        gguf_set_val_str(g, "tokenizer.ggml.model", "llama");
        gguf_set_arr_str(g, "tokenizer.ggml.tokens", texts.data(), texts.size());
        gguf_set_arr_data(g, "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, scores.data(),
                          scores.size());
        gguf_set_arr_data(g, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types_.data(),
                          types_.size());
        gguf_set_val_u32(g, "tokenizer.ggml.bos_token_id", 1);
        gguf_set_val_u32(g, "tokenizer.ggml.eos_token_id", 2);
        gguf_set_val_u32(g, "tokenizer.ggml.unknown_token_id", 0);
        gguf_set_val_bool(g, "tokenizer.ggml.add_bos_token", false);
        gguf_set_val_bool(g, "tokenizer.ggml.add_space_prefix", false);
        gguf_set_val_str(g, "tokenizer.chat_template",
                         "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content "
                         "}}<|im_end|>\n{% endfor %}{% if add_generation_prompt "
                         "%}<|im_start|>assistant\n{% endif %}");
    }
    void add_shape() {
        gguf_context* g = gguf_.get();
        gguf_set_val_str(g, "general.architecture", "llama");
        gguf_set_val_str(g, "general.name", "tiny");
        const std::pair<const char*, std::int64_t> numbers[] = {
            {"context_length", kContext},    {"embedding_length", kWidth},
            {"block_count", kLayers},        {"feed_forward_length", kInner},
            {"rope.dimension_count", kHead}, {"attention.head_count", kHeads},
            {"attention.head_count_kv", 1}};
        for (const auto& [name, value] : numbers)
            gguf_set_val_u32(g, (std::string("llama.") + name).c_str(),
                             static_cast<std::uint32_t>(value));
        gguf_set_val_f32(g, "llama.attention.layer_norm_rms_epsilon", 1e-5F);
    }
    // `rows` of `width` random weights; those for which `zero` says so are 0.
    template <class Zero>
    void matrix(const std::string& name, std::int64_t width, std::int64_t rows, Zero zero) {
        ggml_tensor* t = ggml_new_tensor_2d(tensors_.get(), GGML_TYPE_F16, width, rows);
        ggml_set_name(t, name.c_str());
        std::normal_distribution<float> weight(0, 1 / std::sqrt(static_cast<float>(width)));
        auto* to = static_cast<ggml_fp16_t*>(t->data);
        for (std::int64_t row = 0; row < rows; ++row)
            for (std::int64_t i = 0; i < width; ++i)
                *to++ = ggml_fp32_to_fp16(zero(row) ? 0.0F : weight(random_));
        gguf_add_tensor(gguf_.get(), t);
    }
    void matrix(const std::string& name, std::int64_t width, std::int64_t rows) {
        matrix(name, width, rows, [](std::int64_t) { return false; });
    }
    void ones(const std::string& name) {
        ggml_tensor* t = ggml_new_tensor_1d(tensors_.get(), GGML_TYPE_F32, kWidth);
        ggml_set_name(t, name.c_str());
        for (std::int64_t i = 0; i < kWidth; ++i) static_cast<float*>(t->data)[i] = 1;
        gguf_add_tensor(gguf_.get(), t);
    }
    void add_tensors() {
        const auto count = static_cast<std::int64_t>(tokens_.size());
        matrix("token_embd.weight", kWidth, count);
        ones("output_norm.weight");
        // Only letters are ever the best: their logits are random, the others' 0.
        matrix("output.weight", kWidth, count,
               [&](std::int64_t row) { return types_[static_cast<std::size_t>(row)] != kNormal; });
        for (int layer = 0; layer < kLayers; ++layer) {
            const std::string blk = "blk." + std::to_string(layer) + ".";
            ones(blk + "attn_norm.weight");
            matrix(blk + "attn_q.weight", kWidth, kHeads * kHead);
            matrix(blk + "attn_k.weight", kWidth, kHead);
            matrix(blk + "attn_v.weight", kWidth, kHead);
            matrix(blk + "attn_output.weight", kHeads * kHead, kWidth);
            ones(blk + "ffn_norm.weight");
            matrix(blk + "ffn_gate.weight", kWidth, kInner);
            matrix(blk + "ffn_up.weight", kWidth, kInner);
            matrix(blk + "ffn_down.weight", kInner, kWidth);
        }
    }

    struct Free {
        void operator()(gguf_context* g) const { gguf_free(g); }
        void operator()(ggml_context* c) const { ggml_free(c); }
    };
    const std::string path_;
    std::mt19937 random_{7};
    std::vector<std::string> tokens_;
    std::vector<std::int32_t> types_;
    std::unique_ptr<gguf_context, Free> gguf_;
    std::unique_ptr<ggml_context, Free> tensors_;
};

// One for all tests of a program.
inline const std::string& tiny_model_path() {
    static const TinyModel model;
    return model.path();
}

}  // namespace zerohop::engine::testkit
