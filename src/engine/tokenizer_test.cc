// Over every vocabulary in llama.cpp's models/: same tokens as llama_tokenize, no crash, no crawl.
#include "engine/tokenizer.h"

#include <common.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "engine/llama_glue.h"

namespace zerohop::engine {
namespace {

namespace fs = std::filesystem;

struct Vocabulary {
    std::string name;
    fs::path path;
    ModelPtr model;
    const llama_vocab* vocab = nullptr;
};

std::vector<Vocabulary> load_vocabularies() {
    init_llama();
    std::vector<Vocabulary> out;
    for (const auto& entry : fs::directory_iterator(ZEROHOP_LLAMA_SOURCE_DIR "/models")) {
        const std::string name = entry.path().stem().string();
        // Encoders (BERT) generate nothing; the engine refuses them when loading.
        if (entry.path().extension() != ".gguf" || name.find("bert") != std::string::npos) continue;
        llama_model_params params = llama_model_default_params();
        params.vocab_only = true;
        Vocabulary v{.name = name, .path = entry.path()};
        v.model.reset(llama_model_load_from_file(entry.path().c_str(), params));
        EXPECT_NE(v.model, nullptr) << name;
        if (v.model == nullptr) continue;
        v.vocab = llama_model_get_vocab(v.model.get());
        out.push_back(std::move(v));
    }
    EXPECT_GE(out.size(), 15U);
    return out;
}

const std::vector<Vocabulary>& vocabularies() {
    static const std::vector<Vocabulary> all = load_vocabularies();
    return all;
}

std::string read(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    std::stringstream all;
    all << in.rdbuf();
    return all.str();
}

std::vector<std::string> split(const std::string& text, const std::string& by) {
    std::vector<std::string> out;
    std::size_t at = 0;
    for (std::size_t next; (next = text.find(by, at)) != std::string::npos; at = next + by.size())
        out.push_back(text.substr(at, next - at));
    out.push_back(text.substr(at));
    return out;
}

void on_small_stack(std::size_t bytes, const std::function<void()>& work) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, bytes);
    pthread_t thread{};
    const auto main = [](void* user) -> void* {
        (*static_cast<const std::function<void()>*>(user))();
        return nullptr;
    };
    ASSERT_EQ(pthread_create(&thread, &attributes, main, const_cast<std::function<void()>*>(&work)),
              0);
    pthread_join(thread, nullptr);
    pthread_attr_destroy(&attributes);
}

std::string repeated(std::string_view unit, std::size_t bytes) {
    std::string out;
    while (out.size() < bytes) out += unit;
    return out;
}

std::string noise(std::size_t bytes, std::string_view alphabet) {
    std::string out;
    std::uint32_t x = 12345;
    while (out.size() < bytes) {
        x = x * 1664525 + 1013904223;
        out += alphabet[(x >> 16) % alphabet.size()];
    }
    return out;
}

TEST(Tokenizer, EqualsLlamaTokenizeOnOrdinaryText) {
    const std::string prose =
        read(ZEROHOP_LLAMA_SOURCE_DIR "/README.md").substr(0, 16 << 10) +
        read(ZEROHOP_LLAMA_SOURCE_DIR "/src/llama-batch.cpp").substr(0, 16 << 10);
    for (const Vocabulary& v : vocabularies()) {
        const Tokenizer tokenizer(v.vocab);
        std::vector<std::string> texts{prose, "", "Hello world", " leading", "trailing \n"};
        const fs::path samples = v.path.string() + ".inp";
        if (fs::exists(samples))
            for (const std::string& text : split(read(samples), "\n__ggml_vocab_test__\n"))
                texts.push_back(text);
        for (const std::string& text : texts) {
            const std::vector<std::int32_t> want = common_tokenize(v.vocab, text, true, true);
            std::vector<std::int32_t> got = tokenizer.encode({{text, false}});
            if (llama_vocab_get_add_eos(v.vocab)) got.push_back(llama_vocab_eos(v.vocab));
            EXPECT_EQ(got, want) << v.name << ": " << text.substr(0, 60);
        }
    }
}

TEST(Tokenizer, InputNeverBecomesAControlToken) {
    for (const Vocabulary& v : vocabularies()) {
        const Tokenizer tokenizer(v.vocab);
        std::string all;
        const std::int32_t count = llama_vocab_n_tokens(v.vocab);
        for (std::int32_t id = 0; id < count && all.size() < 3000; ++id)
            if ((llama_vocab_get_attr(v.vocab, id) & LLAMA_TOKEN_ATTR_CONTROL) != 0)
                all += llama_vocab_get_text(v.vocab, id);
        std::vector<std::int32_t> tokens = tokenizer.encode({{all, true}});
        if (llama_vocab_get_add_bos(v.vocab)) tokens.erase(tokens.begin());
        for (const std::int32_t token : tokens)
            EXPECT_EQ(llama_vocab_get_attr(v.vocab, token) & LLAMA_TOKEN_ATTR_CONTROL, 0)
                << v.name << " " << llama_vocab_get_text(v.vocab, token);
    }
}

TEST(Tokenizer, HostileTextNeitherCrashesNorCrawls) {
    constexpr std::size_t kBytes = 32 << 10;
    constexpr std::size_t kStack = Tokenizer::kStackBytes / 16;
    const std::string base64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string every;
    for (int c = 1; c < 128; ++c) every += static_cast<char>(c);
    const std::vector<std::string> texts{
        repeated("a", kBytes),  repeated("1", kBytes),     repeated("!", kBytes),
        repeated(" ", kBytes),  repeated("\n", kBytes),    repeated("\t \n", kBytes),
        repeated("中", kBytes), repeated("😀", kBytes),    repeated("a\xCC\x81", kBytes),
        repeated("'s", kBytes), repeated("aA1! ", kBytes), repeated("\r\n", kBytes),
        noise(kBytes, base64),  noise(kBytes, every),      noise(kBytes, "a \n"),
    };
    double worst = 0;
    std::string worst_name;
    for (const Vocabulary& v : vocabularies()) {
        const Tokenizer tokenizer(v.vocab);
        for (std::size_t i = 0; i < texts.size(); ++i) {
            const auto begin = std::chrono::steady_clock::now();
            std::size_t tokens = 0;
            on_small_stack(kStack, [&] { tokens = tokenizer.encode({{texts[i], true}}).size(); });
            const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
            EXPECT_GT(tokens, 0U) << v.name << " text " << i;
            if (took.count() > worst) {
                worst = took.count();
                worst_name = v.name + " text " + std::to_string(i);
            }
            EXPECT_LT(took.count(), 3)
                << v.name << " text " << i;  // 40 × what a quiet machine takes
        }
    }
    std::printf("slowest: %.0f ms for 32 KiB (%s)\n", worst * 1000, worst_name.c_str());
}

TEST(Tokenizer, CutsKeepTheTextWhole) {
    for (const Vocabulary& v : vocabularies()) {
        const Tokenizer tokenizer(v.vocab);
        const std::string text = noise(20000, "abcdefgh") + " and " + repeated("日本", 9000);
        std::vector<std::int32_t> tokens = tokenizer.encode({{text, true}});
        std::string back = common_detokenize(v.vocab, tokens, false);
        const std::size_t begin = back.find(text.substr(0, 50));
        ASSERT_NE(begin, std::string::npos) << v.name;
        if (v.name.find("falcon") != std::string::npos) continue;  // its detokenizer cleans spaces
        EXPECT_EQ(back.substr(begin, text.size()), text) << v.name;
    }
}

}  // namespace
}  // namespace zerohop::engine
