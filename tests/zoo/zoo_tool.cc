// The zoo's tool: tiny random models of llama.cpp's architectures, and a judge of what a server
// makes of them. Built against the pinned llama.cpp by scripts/zoo.sh; no part of zerohop.
//
//     zoo_tool list                    names of the architectures
//     zoo_tool make FOLDER ARCH        FOLDER/ARCH.gguf, FOLDER/ARCH-moe.gguf; may abort: run one
//     each zoo_tool judge MODEL.gguf        reads {"prompt", "answer"} a line, writes
//     {"prompt_tokens",
//                                      "answer_tokens", "wrong_at", "gap", "ties"} a line
//
// Weights are random, but by kind of tensor: with small ones attention vanishes, and a server with
// a broken cache would give the same text. Only whole words come out, so that text and tokens are
// one to one. The judge computes prompt and answer in a fresh context: a token is wrong where
// another is more likely by more than a near tie.
#include <ggml.h>
#include <gguf.h>
#include <llama.h>

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "ggml-backend.h"
#include "ggml-cpp.h"
#include "llama-arch.h"
#include "llama-cpp.h"
#include "llama-model-saver.h"

namespace zoo {

constexpr uint32_t kContext = 8192;
constexpr uint32_t kWindow = 128;  // of sliding attention: most prompts are longer
constexpr double kTie = 0.15;      // difference of log probabilities

// --- vocabulary: bytes, 640 words of three letters with a space before, three control tokens -----

struct Vocabulary {
    std::vector<std::string> tokens, merges;
    std::vector<int32_t> types;
    std::vector<bool> word;
    int32_t end_of_text = 0;
};

// The printable characters that byte-level BPE writes bytes as.
std::string byte_symbol(int byte, int& next) {
    const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
    const int code = printable ? byte : 256 + next++;
    if (code < 128) return std::string(1, static_cast<char>(code));
    return {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 63))};
}

Vocabulary make_vocabulary() {
    Vocabulary v;
    const auto add = [&](const std::string& token, int32_t type, bool word) {
        if (std::find(v.tokens.begin(), v.tokens.end(), token) != v.tokens.end()) return;
        v.tokens.push_back(token);
        v.types.push_back(type);
        v.word.push_back(word);
    };
    int next = 0;
    std::string space;
    for (int b = 0; b < 256; ++b) {
        const std::string symbol = byte_symbol(b, next);
        if (b == ' ') space = symbol;
        add(symbol, 1, false);
    }
    const std::string first = "bdfgklmnprstvz", second = "aeiou", third = "lmnrstkd";
    const auto merge = [&](const std::string& left, char right, bool word) {
        const std::string line = left + " " + right;
        if (std::find(v.merges.begin(), v.merges.end(), line) == v.merges.end())
            v.merges.push_back(line);
        add(left + right, 1, word);
        return left + right;
    };
    for (const char a : first)
        for (const char b : second)
            for (const char c : third) merge(merge(merge(space, a, false), b, false), c, true);
    v.end_of_text = static_cast<int32_t>(v.tokens.size());
    for (const char* control : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"})
        add(control, 3, false);
    return v;
}

const Vocabulary& vocabulary() {
    static const Vocabulary v = make_vocabulary();
    return v;
}
uint32_t vocabulary_size() { return static_cast<uint32_t>(vocabulary().tokens.size()); }

void set_strings(gguf_context* meta, const char* key, const std::vector<std::string>& values) {
    std::vector<const char*> texts;
    for (const std::string& value : values) texts.push_back(value.c_str());
    gguf_set_arr_str(meta, key, texts.data(), texts.size());
}

void add_vocabulary(gguf_context* meta) {
    const Vocabulary& v = vocabulary();
    const auto end = static_cast<uint32_t>(v.end_of_text);
    gguf_set_val_str(meta, "tokenizer.ggml.model", "gpt2");
    gguf_set_val_str(meta, "tokenizer.ggml.pre", "gpt-2");
    set_strings(meta, "tokenizer.ggml.tokens", v.tokens);
    set_strings(meta, "tokenizer.ggml.merges", v.merges);
    gguf_set_arr_data(meta, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, v.types.data(),
                      v.types.size());
    gguf_set_val_u32(meta, "tokenizer.ggml.bos_token_id", end);
    gguf_set_val_u32(meta, "tokenizer.ggml.eos_token_id", end + 2);
    gguf_set_val_bool(meta, "tokenizer.ggml.add_bos_token", false);
    gguf_set_val_str(meta, "tokenizer.chat_template",
                     "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}"
                     "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
                     "{% endif %}");
}

}  // namespace zoo

#include "archs.inc"

namespace zoo {

// --- weights -------------------------------------------------------------------------------------

struct Weights {
    double mean = 0, deviation = 0;
    double low = -1e30, high = 1e30;
};

// By name; `in`: length of what a matrix is multiplied with.
Weights weights_of(const std::string& name, bool vector, double in) {
    const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
    const bool bias = name.ends_with(".bias");
    const double unit = 1 / std::sqrt(in);
    const double gain = 1.6 * unit;
    if (has("hc_")) return vector && has("scale") ? Weights{0.5, 0.05} : Weights{0, 0.5 * unit};
    if (has("ssm_a") && !has("alpha")) return {-0.04, 0.02, -1, -0.005};  // a long memory
    if (has("ssm_dt") && bias) return {-1, 0.5};
    if (has("ssm_d") && vector && !has("ssm_dt")) return {1, 0.2};
    if (has("rope_f") || has("layer_output_scale")) return {1, 0};
    if (has("_scale") && vector) return {1, 0.05};
    if (has("exp_probs_b")) return {0, 0.05};
    if (bias) return {0, 0.1};
    if (has("sinks")) return {0, 0.5};
    if (has("lerp")) return {0.5, 0.1, 0.05, 0.95};
    if (has("time_mix_decay.") || has("time_mix_w0") || has("time_mix_first")) return {0, 0.5};
    if (has("time_mix_k_k") || has("time_mix_k_a")) return {0.8, 0.1};
    if (has("time_mix_r_k")) return {0, 0.3};
    // Attention looks at few tokens and what it sees weighs: a lost cell changes the text.
    if (has("attn_q_norm") || has("attn_k_norm")) return {2.5, 0.2};
    if (has("post_attention_norm")) return {2, 0.1};
    if (has("norm") || has("time_mix_ln")) return {1, 0.1};
    if (has("conv")) return {0, 0.6};
    if (has("token_embd") || has("embd.weight")) return {0, 1};
    if (name == "output.weight") return {0, 3 * unit};
    if (has("ffn_gate_inp")) return {0, 2 * unit};
    if (vector) return {0, 0.2};
    for (const char* out : {"attn_output.", "attn_out", "ssm_out", "time_mix_output"})
        if (has(out)) return {0, 2.5 * gain};
    if (has("attn_v")) return {0, 2 * gain};
    if (has("attn_q") || has("attn_k")) return {0, 1.5 * gain};
    return {0, gain};
}

struct Made {
    std::string name;
    ggml_type type;
    int64_t ne[4];
    std::vector<uint8_t> data;
};
std::vector<Made> made;

void fill(ggml_tensor* tensor, void* /*user*/) {
    const std::string name = tensor->name;
    std::mt19937 random(static_cast<uint32_t>(std::hash<std::string>{}(name)));
    const bool vector = tensor->ne[1] == 1 && tensor->ne[2] == 1;
    const Weights w = weights_of(name, vector, static_cast<double>(tensor->ne[0]));
    std::normal_distribution<double> normal(w.mean, std::max(w.deviation, 1e-9));
    const int64_t in = tensor->ne[0], count = ggml_nelements(tensor);
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values)
        value = static_cast<float>(std::clamp(normal(random), w.low, w.high));
    // Words only; tied embeddings are the output matrix too.
    const auto& word = vocabulary().word;
    const bool output = name == "output.weight";
    if ((output || name == "token_embd.weight") && tensor->ne[1] == std::ssize(word))
        for (int64_t i = 0; i < count; ++i)
            if (!word[static_cast<size_t>(i / in)])
                values[static_cast<size_t>(i)] *= output ? 0.05F : 0.2F;
    std::vector<uint8_t> data(ggml_nbytes(tensor));
    if (tensor->type == GGML_TYPE_F32) {
        std::memcpy(data.data(), values.data(), data.size());
    } else if (tensor->type == GGML_TYPE_F16) {
        ggml_fp32_to_fp16_row(values.data(), reinterpret_cast<ggml_fp16_t*>(data.data()), count);
    } else if (tensor->type == GGML_TYPE_I32) {
        for (int64_t i = 0; i < count; ++i) reinterpret_cast<int32_t*>(data.data())[i] = i % 2;
    } else {
        throw std::runtime_error("a type of tensor that is not known here");
    }
    ggml_backend_tensor_set(tensor, data.data(), 0, data.size());
    for (const Made& m : made)
        if (m.name == name) return;  // one that two places share
    made.push_back({name,
                    tensor->type,
                    {tensor->ne[0], tensor->ne[1], tensor->ne[2], tensor->ne[3]},
                    std::move(data)});
}

// --- making --------------------------------------------------------------------------------------

void make(llm_arch arch, bool experts, const std::string& path) {
    made.clear();
    gguf_context_ptr meta = get_gguf_ctx(arch, experts);
    llama_model_params params = llama_model_default_params();
    params.progress_callback = [](float, void*) { return true; };
    const llama_model_ptr model(llama_model_init_from_user(meta.get(), fill, nullptr, params));
    if (model == nullptr) throw std::runtime_error("llama.cpp makes no model of it");
    gguf_context_ptr out(gguf_init_empty());
    gguf_set_kv(out.get(), meta.get());
    add_vocabulary(out.get());
    size_t bytes = 1 << 20;
    for (const Made& m : made) bytes += m.data.size() + 1024;
    ggml_context_ptr memory(ggml_init({bytes, nullptr, false}));
    for (const Made& m : made) {
        ggml_tensor* tensor = ggml_new_tensor(memory.get(), m.type, 4, m.ne);
        ggml_set_name(tensor, m.name.c_str());
        std::memcpy(tensor->data, m.data.data(), m.data.size());
        gguf_add_tensor(out.get(), tensor);
    }
    if (!gguf_write_to_file(out.get(), path.c_str(), false))
        throw std::runtime_error("cannot write " + path);
}

int make_all(const std::string& folder, const std::string& name) {
    const llm_arch arch = llm_arch_from_string(name);
    if (arch == LLM_ARCH_UNKNOWN) return 2;
    for (const bool experts : {false, true}) {
        if (experts ? !moe_implemented(arch) : moe_mandatory(arch)) continue;
        make(arch, experts, folder + "/" + name + (experts ? "-moe.gguf" : ".gguf"));
    }
    return 0;
}

// --- judging -------------------------------------------------------------------------------------

std::vector<llama_token> tokenize(const llama_vocab* vocab, const std::string& text) {
    std::vector<llama_token> tokens(text.size() + 8);
    tokens.resize(static_cast<size_t>(std::max(
        0, llama_tokenize(vocab, text.data(), static_cast<int32_t>(text.size()), tokens.data(),
                          static_cast<int32_t>(tokens.size()), true, true))));
    return tokens;
}

nlohmann::json judge_one(llama_context* context, const llama_vocab* vocab,
                         const nlohmann::json& ask) {
    const auto prompt = tokenize(vocab, ask.at("prompt"));
    const auto answer = tokenize(vocab, ask.at("answer"));
    std::vector<llama_token> all = prompt;
    all.insert(all.end(), answer.begin(), answer.end());
    const size_t begin = prompt.size() - 1, end = all.size() - 1;  // rows that name the answer
    const int32_t count = llama_vocab_n_tokens(vocab);
    nlohmann::json out = {{"prompt_tokens", prompt.size()},
                          {"answer_tokens", answer.size()},
                          {"wrong_at", -1},
                          {"gap", 0.0},
                          {"ties", 0}};
    llama_memory_clear(llama_get_memory(context), true);
    llama_batch batch = llama_batch_init(512, 0, 1);
    for (size_t at = 0; at < end && out["wrong_at"] == -1;) {
        batch.n_tokens = 0;
        const size_t stop = std::min(end, at < begin ? std::min(begin, at + 512) : at + 512);
        for (size_t i = at; i < stop; ++i) {
            const int32_t k = batch.n_tokens++;
            batch.token[k] = all[i];
            batch.pos[k] = static_cast<llama_pos>(i);
            batch.n_seq_id[k] = 1;
            batch.seq_id[k][0] = 0;
            batch.logits[k] = i >= begin;
        }
        if (llama_decode(context, batch) != 0) return {{"error", "the judge cannot compute it"}};
        for (size_t i = std::max(at, begin); i < stop; ++i) {
            const float* row = llama_get_logits_ith(context, static_cast<int32_t>(i - at));
            const double gap = *std::max_element(row, row + count) - row[all[i + 1]];
            if (gap <= 0) continue;
            out["gap"] = std::max(out["gap"].get<double>(), gap);
            if (gap <= kTie) {
                out["ties"] = out["ties"].get<int>() + 1;
                continue;
            }
            out["wrong_at"] = i - begin;
            break;
        }
        at = stop;
    }
    llama_batch_free(batch);
    return out;
}

int judge(const char* path) {
    const llama_model_ptr model(llama_model_load_from_file(path, llama_model_default_params()));
    if (model == nullptr) return 1;
    llama_context_params params = llama_context_default_params();
    params.n_ctx = kContext;
    params.n_batch = params.n_ubatch = 512;
    params.n_threads = params.n_threads_batch = 1;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    params.swa_full = true;
    const llama_context_ptr context(llama_init_from_model(model.get(), params));
    if (context == nullptr) return 1;
    const llama_vocab* vocab = llama_model_get_vocab(model.get());
    for (std::string line; std::getline(std::cin, line);)
        std::cout << judge_one(context.get(), vocab, nlohmann::json::parse(line)).dump()
                  << std::endl;
    return 0;
}

int list() {
    for (const llm_arch arch : llm_arch_all())
        if (arch != LLM_ARCH_UNKNOWN) std::printf("%s\n", llm_arch_name(arch));
    return 0;
}

}  // namespace zoo

int main(int argc, char** argv) {
    const std::vector<std::string> args(argv + 1, argv + argc);
    llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
    llama_backend_init();
    try {
        if (args.size() == 1 && args[0] == "list") return zoo::list();
        if (args.size() == 3 && args[0] == "make") return zoo::make_all(args[1], args[2]);
        if (args.size() == 2 && args[0] == "judge") return zoo::judge(argv[2]);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "%s\n", e.what());
        return 1;
    }
    std::fprintf(stderr, "zoo_tool list | make FOLDER ARCH | judge MODEL.gguf\n");
    return 2;
}
