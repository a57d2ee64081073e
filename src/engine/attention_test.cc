#include "engine/attention.h"

#include <ggml-cpu.h>
#include <ggml.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "engine/attention_job.h"
#include "engine/llama_glue.h"

namespace zerohop::engine {
namespace {

constexpr float kHidden = -std::numeric_limits<float>::infinity();

struct Shape {
    int size = 64, heads = 9, kv_heads = 3, rows = 1, cells = 256, streams = 1;
    ggml_type type = GGML_TYPE_F16;
};

// One attention operation with its data; run() computes it on ggml's CPU backend.
class Attend {
  public:
    Attend(const Shape& shape, unsigned seed) : shape_(shape), random_(seed) {
        context_.reset(ggml_init(
            {.mem_size = std::size_t{256} << 20, .mem_buffer = nullptr, .no_alloc = false}));
        ggml_context* c = context_.get();
        const auto [size, heads, kv_heads, rows, cells, streams, type] = shape;
        // As llama.cpp lays them out: the heads of a token side by side, seen head by head.
        q_ = ggml_new_tensor_4d(c, GGML_TYPE_F32, size, heads, rows, streams);
        k_ = ggml_new_tensor_4d(c, type, size, kv_heads, cells, streams);
        v_ = ggml_new_tensor_4d(c, type, size, kv_heads, cells, streams);
        mask_ = ggml_new_tensor_4d(c, GGML_TYPE_F16, cells, rows, 1, streams);
        for (ggml_tensor* t : {q_, k_, v_}) fill(t);
        hide_all();
        out_ = ggml_flash_attn_ext(c, ggml_permute(c, q_, 0, 2, 1, 3),
                                   ggml_permute(c, k_, 0, 2, 1, 3), ggml_permute(c, v_, 0, 2, 1, 3),
                                   mask_, 1.0F / std::sqrt(static_cast<float>(size)), 0, 0);
        graph_ = ggml_new_graph(c);
        ggml_build_forward_expand(graph_, out_);
    }

    void hide_all() {
        auto* mask = static_cast<ggml_fp16_t*>(mask_->data);
        std::fill(mask, mask + ggml_nelements(mask_), ggml_fp32_to_fp16(kHidden));
    }
    void show(int row, int cell, int stream = 0) {
        static_cast<ggml_fp16_t*>(mask_->data)[(stream * shape_.rows + row) * shape_.cells + cell] =
            0;
    }
    std::vector<float> run(bool own, int threads = 2) {
        EXPECT_EQ(use_own_attention(own), own);
        std::memset(out_->data, 0xFF, ggml_nbytes(out_));
        ggml_graph_compute_with_ctx(context_.get(), graph_, threads);
        use_own_attention(true);
        const auto* from = static_cast<const float*>(out_->data);
        return {from, from + ggml_nelements(out_)};
    }
    // What is right, in double precision.
    std::vector<double> exact() const {
        std::vector<double> out;
        for (int stream = 0; stream < shape_.streams; ++stream)
            for (int row = 0; row < shape_.rows; ++row)
                for (int head = 0; head < shape_.heads; ++head) exact_one(stream, row, head, out);
        return out;
    }
    int width() const { return shape_.heads * shape_.size; }

  private:
    struct Free {
        void operator()(ggml_context* c) const { ggml_free(c); }
    };
    void fill(ggml_tensor* t) {
        std::normal_distribution<float> normal;
        std::vector<float> row(static_cast<std::size_t>(ggml_nelements(t)));
        for (float& x : row) x = 2 * normal(random_);
        if (t->type == GGML_TYPE_F32)
            std::memcpy(t->data, row.data(), ggml_nbytes(t));
        else if (t->type == GGML_TYPE_F16)
            ggml_fp32_to_fp16_row(row.data(), static_cast<ggml_fp16_t*>(t->data),
                                  ggml_nelements(t));
        else
            ggml_fp32_to_bf16_row(row.data(), static_cast<ggml_bf16_t*>(t->data),
                                  ggml_nelements(t));
    }
    static double value(const ggml_tensor* t, int i, int head, int row, int stream) {
        const char* at =
            static_cast<const char*>(t->data) + t->nb[1] * static_cast<std::size_t>(head) +
            t->nb[2] * static_cast<std::size_t>(row) + t->nb[3] * static_cast<std::size_t>(stream);
        const auto n = static_cast<std::size_t>(i);
        if (t->type == GGML_TYPE_F32)
            return static_cast<double>(reinterpret_cast<const float*>(at)[n]);
        if (t->type == GGML_TYPE_F16)
            return static_cast<double>(
                ggml_fp16_to_fp32(reinterpret_cast<const ggml_fp16_t*>(at)[n]));
        return static_cast<double>(ggml_bf16_to_fp32(reinterpret_cast<const ggml_bf16_t*>(at)[n]));
    }
    void exact_one(int stream, int row, int head, std::vector<double>& out) const {
        const int kv_head = head / (shape_.heads / shape_.kv_heads);
        const auto* mask = static_cast<const ggml_fp16_t*>(mask_->data) +
                           static_cast<std::ptrdiff_t>(stream * shape_.rows + row) * shape_.cells;
        std::vector<double> sum(static_cast<std::size_t>(shape_.size));
        std::vector<double> weights(static_cast<std::size_t>(shape_.cells));
        double all = 0;
        for (int cell = 0; cell < shape_.cells; ++cell) {
            if (std::isinf(ggml_fp16_to_fp32(mask[cell]))) continue;
            double dot = 0;
            for (int i = 0; i < shape_.size; ++i)
                dot += value(q_, i, head, row, stream) * value(k_, i, kv_head, cell, stream);
            const double weight = std::exp(dot / std::sqrt(shape_.size));
            all += weight;
            for (int i = 0; i < shape_.size; ++i)
                sum[static_cast<std::size_t>(i)] += weight * value(v_, i, kv_head, cell, stream);
        }
        for (const double s : sum) out.push_back(all > 0 ? s / all : 0);
    }

    const Shape shape_;
    std::mt19937 random_;
    std::unique_ptr<ggml_context, Free> context_;
    ggml_tensor *q_, *k_, *v_, *mask_, *out_;
    ggml_cgraph* graph_;
};

template <class A, class B>
double furthest(const A& a, const B& b) {
    EXPECT_EQ(a.size(), b.size());
    double most = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        const double d = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
        most = std::isnan(d) ? 1e9 : std::max(most, d);
    }
    return most;
}

#define NEED_AVX512() \
    if (!has_avx512()) GTEST_SKIP() << "this CPU has no AVX-512: ggml computes attention"

// Rows of a prompt behind `before` cells of their own, some of other sequences' between.
void show_prompt(Attend& a, const Shape& shape, int before, int stream = 0) {
    for (int row = 0; row < shape.rows; ++row)
        for (int i = 0; i < before + row + 1; ++i)
            a.show(row, i < before ? 2 * i : before + i, stream);
}

TEST(Attention, IsExactForEveryShape) {
    NEED_AVX512();
    for (const ggml_type type : {GGML_TYPE_F16, GGML_TYPE_BF16})
        for (const int size : {64, 80, 96, 128, 256})
            for (const int shared : {1, 3, 8})
                for (const int rows : {1, 5, 40}) {
                    const Shape shape{.size = size,
                                      .heads = 2 * shared,
                                      .kv_heads = 2,
                                      .rows = rows,
                                      .cells = 256,
                                      .streams = 1,
                                      .type = type};
                    Attend a(shape, 7);
                    show_prompt(a, shape, 100);
                    EXPECT_LT(furthest(a.run(true), a.exact()), 1e-5)
                        << ggml_type_name(type) << " " << size << " " << shared << " " << rows;
                }
}

TEST(Attention, GgmlAgrees) {
    NEED_AVX512();
    const Shape shape{.rows = 70, .cells = 512};
    Attend a(shape, 8);
    show_prompt(a, shape, 120);
    EXPECT_LT(furthest(a.run(true), a.run(false)), 2e-2);  // ggml adds up in f16
}

TEST(Attention, StreamsAndUnrelatedRows) {
    NEED_AVX512();
    const Shape shape{.rows = 9, .cells = 512, .streams = 3};
    Attend a(shape, 9);
    std::mt19937 random(3);
    for (int stream = 0; stream < 3; ++stream)
        for (int row = 0; row < 9; ++row)
            for (int i = 0; i < 30 * row; ++i)
                a.show(row, static_cast<int>(random() % 512), stream);
    EXPECT_LT(furthest(a.run(true, 3), a.exact()), 1e-5);  // a row that sees nothing is zero
}

// A row's result does not depend on what else is in the call, nor on where in the pool its cells
// lie as long as their order stays.
TEST(Attention, ARowIsComputedAlikeInAnyBatch) {
    NEED_AVX512();
    const Shape many{.rows = 64, .cells = 512};
    Attend all(many, 10);
    show_prompt(all, many, 90);
    const std::vector<float> together = all.run(true);
    for (const int row : {0, 1, 15, 16, 17, 40, 63}) {
        Attend alone(many, 10);  // the same numbers; only this row sees anything
        for (int i = 0; i < 90 + row + 1; ++i) alone.show(row, i < 90 ? 2 * i : 90 + i);
        const std::vector<float> one = alone.run(true, 1);
        const auto at = static_cast<std::size_t>(row) * static_cast<std::size_t>(all.width());
        EXPECT_EQ(std::memcmp(&one[at], &together[at],
                              sizeof(float) * static_cast<std::size_t>(all.width())),
                  0)
            << row;
    }
}

}  // namespace
}  // namespace zerohop::engine
