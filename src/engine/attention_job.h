// AttentionJob: one attention operation over a KV pool, as pointers and strides.
//
//     out[row][head] = softmax(q[row][head] · K + mask[row]) V     per stream
//
// q: f32; K, V: f16 or bf16, all cells of a kv head at one stride; mask: f16, 0 or -inf per cell
// (other finite values are added). Several heads share a kv head (grouped queries).
//
// Threads: compute threads call attend_avx512() with the same job and their own number; together
// they write all of out. Nothing fails.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace zerohop::engine {

struct AttentionJob {
    enum class Kv : std::uint8_t { kF16, kBf16 };

    // Byte strides; a tensor's elements within a head lie side by side.
    struct Tensor {
        const char* data = nullptr;
        std::size_t row = 0, head = 0, stream = 0;
    };
    Tensor q, k, v, mask;  // of k and v a row is a cell; the mask has no heads
    char* out = nullptr;   // [stream][row][head][head_size] f32
    std::int32_t rows = 0, cells = 0, heads = 0, kv_heads = 0, streams = 1;
    std::int32_t head_size = 0;
    float scale = 1;
    Kv kv = Kv::kF16;
};

// What a kernel is compiled for: multiples of 16.
inline constexpr std::array<std::int32_t, 5> kHeadSizes = {64, 80, 96, 128, 256};

bool has_avx512();
void attend_avx512(const AttentionJob& job, std::int32_t thread, std::int32_t threads);

}  // namespace zerohop::engine
