// clang-format off: the includes and the pragma need this order
// AttentionJob with AVX-512. Every header is included before the pragma, so that no inline function
// of theirs is emitted with instructions the machine may lack.
//
//     rows ──> groups of rows that see nearly the same cells (a prompt's chunk, a draft)
//          ──> the cells they see, without those of other sequences
//          ──> 16 cells at a time: scores, running softmax, weighted sum of V
//
// Each row is computed alike whatever else is in the call: the same cells in the same sixteens,
// whether its group has one row or many. (Rows of a group see the same cells but for some at their
// end, and a sixteen that a row does not see changes nothing for it.)
#include "engine/attention_job.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,fma,f16c,bmi,popcnt"))), apply_to = function)
#else
#pragma GCC diagnostic ignored "-Wuninitialized"  // g++ 12: its own AVX-512 headers
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,fma,f16c,bmi,popcnt")
#endif

// clang-format on
namespace zerohop::engine {
namespace {

constexpr std::int32_t kLanes = 16;
constexpr std::int32_t kGroupRows = 16;     // rows that are computed together, at most …
constexpr std::int32_t kGroupQueries = 48;  // … and rows × heads of a kv head
constexpr std::uint16_t kMasked = 0xFC00;   // -inf as f16
constexpr float kLowest = -1e30F;           // below every score, and finite: differences of it are

// --- which rows see what ------------------------------------------------------------------------

struct Group {
    std::int32_t row = 0, rows = 1;
};

struct alignas(64) Floats {
    float value[kLanes];
};

// Reused from call to call: a compute thread's own. Vectors only grow: growing fills with zeros.
struct Scratch {
    std::vector<Group> groups;
    std::vector<std::int32_t> cells;
    std::int32_t count = 0;  // of cells that hold something
    std::vector<Floats> floats;
};

template <class T>
T* at_least(std::vector<T>& memory, std::size_t size) {
    if (memory.size() < size) memory.resize(size);
    return memory.data();
}

__mmask32 seen(const std::uint16_t* mask, std::int32_t at, std::int32_t cells) {
    const std::int32_t left = cells - at;
    const __mmask32 valid = left >= 32 ? ~0U : (1U << left) - 1;
    return _mm512_mask_cmpneq_epi16_mask(valid, _mm512_maskz_loadu_epi16(valid, mask + at),
                                         _mm512_set1_epi16(static_cast<short>(kMasked)));
}

// Whether the row `b` sees what `a` sees and at most kLanes cells more, all of them after those.
bool goes_on(const std::uint16_t* a, const std::uint16_t* b, std::int32_t cells) {
    std::int32_t more = 0;
    for (std::int32_t i = 0; i < cells; i += 32) {
        const std::uint32_t sees_a = seen(a, i, cells), sees_b = seen(b, i, cells);
        if ((sees_a & ~sees_b) != 0 || (more > 0 && sees_a != 0)) return false;
        const std::uint32_t extra = sees_b & ~sees_a;
        if (extra == 0) continue;
        if (sees_a != 0 && std::countr_zero(extra) < 32 - std::countl_zero(sees_a)) return false;
        more += std::popcount(extra);
        if (more > kLanes) return false;
    }
    return true;
}

const std::uint16_t* mask_of(const AttentionJob& job, std::int32_t stream, std::int32_t row) {
    return reinterpret_cast<const std::uint16_t*>(
        job.mask.data + static_cast<std::size_t>(stream) * job.mask.stream +
        static_cast<std::size_t>(row) * job.mask.row);
}

void find_groups(const AttentionJob& job, std::int32_t stream, std::vector<Group>& groups) {
    const std::int32_t most = std::clamp(kGroupQueries / (job.heads / job.kv_heads), 1, kGroupRows);
    groups.clear();
    for (std::int32_t row = 0; row < job.rows; ++row) {
        if (!groups.empty() && groups.back().rows < most &&
            goes_on(mask_of(job, stream, row - 1), mask_of(job, stream, row), job.cells))
            ++groups.back().rows;
        else
            groups.push_back({.row = row});
    }
}

// The cells a row sees, in order.
void list_cells(const std::uint16_t* mask, std::int32_t cells, Scratch& scratch) {
    std::int32_t* out = at_least(scratch.cells, static_cast<std::size_t>(cells) + 2 * kLanes);
    std::int32_t n = 0;
    const __m512i count = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    for (std::int32_t i = 0; i < cells; i += 32) {
        const std::uint32_t sees = seen(mask, i, cells);
        if (sees == 0) continue;
        for (const std::int32_t half : {0, 16}) {
            const auto part = static_cast<__mmask16>(sees >> half);
            _mm512_storeu_si512(out + n,
                                _mm512_maskz_compress_epi32(
                                    part, _mm512_add_epi32(count, _mm512_set1_epi32(i + half))));
            n += std::popcount(static_cast<std::uint32_t>(part));
        }
    }
    scratch.count = n;
}

// --- arithmetic ---------------------------------------------------------------------------------

template <AttentionJob::Kv kKv>
__m512 load16(const char* from) {
    const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    if constexpr (kKv == AttentionJob::Kv::kF16) return _mm512_cvtph_ps(half);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

// e^x to 2e-7, for x ≤ 0.
__m512 exp16(__m512 x) {
    x = _mm512_max_ps(x, _mm512_set1_ps(-87.0F));
    const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504F)), 0);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375F), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4F), r);
    __m512 p = _mm512_set1_ps(1.3888889e-3F);
    for (const float c : {8.3333333e-3F, 4.1666667e-2F, 1.6666667e-1F, 0.5F, 1.0F, 1.0F})
        p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(c));
    return _mm512_scalef_ps(p, n);
}

__m512 add_pairs(__m512 a, __m512 b) {
    return _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
}
__m512 add_quads(__m512 ab, __m512 cd) {
    const __m512d x = _mm512_castps_pd(ab), y = _mm512_castps_pd(cd);
    return _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)),
                         _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
}
__m512 add_halves(__m512 a, __m512 b) {
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xDD));
}

// The sums of sixteen vectors, as one.
[[gnu::always_inline]] inline __m512 sums(const __m512 (&v)[kLanes]) {
    __m512 quads[4];
    for (int i = 0; i < 4; ++i)
        quads[i] =
            add_quads(add_pairs(v[4 * i], v[4 * i + 1]), add_pairs(v[4 * i + 2], v[4 * i + 3]));
    return add_halves(add_halves(quads[0], quads[1]), add_halves(quads[2], quads[3]));
}

// One group of rows and the heads of one kv head.
template <std::int32_t kSize, AttentionJob::Kv kKv>
class Unit {
    static constexpr std::int32_t kParts = kSize / kLanes;  // vectors of a head
    static constexpr std::int32_t kTogether = std::max(1, 16 / kParts);

  public:
    Unit(const AttentionJob& job, std::int32_t stream, Group group, std::int32_t kv_head,
         Scratch& scratch)
        : job_(job),
          group_(group),
          shared_(job.heads / job.kv_heads),
          queries_(group.rows * shared_),
          stream_(stream),
          kv_head_(kv_head),
          cells_(scratch.cells.data(), static_cast<std::size_t>(scratch.count)) {
        const auto n = static_cast<std::size_t>(queries_);
        const auto parts = static_cast<std::size_t>(kParts);
        q_ = reinterpret_cast<__m512*>(
            at_least(scratch.floats, n * (2 * parts + 3) + 2 * kLanes * parts));
        o_ = q_ + n * parts;
        l_ = o_ + n * parts;
        p_ = l_ + n;
        m_ = p_ + n;
        k_ = m_ + n;
        v_ = k_ + kLanes * parts;
    }

    void run() {
        load_queries();
        const auto count = static_cast<std::int32_t>(cells_.size());
        for (std::int32_t at = 0; at < count; at += kLanes)
            sixteen(cells_.data() + at, std::min(kLanes, count - at));
        store();
    }

  private:
    template <class T>
    static T* offset(T* data, std::size_t a, std::int32_t n) {
        return data + a * static_cast<std::size_t>(n);
    }
    std::int32_t row_of(std::int32_t query) const { return group_.row + query / shared_; }
    std::int32_t head_of(std::int32_t query) const { return kv_head_ * shared_ + query % shared_; }

    void load_queries() {
        const __m512 scale = _mm512_set1_ps(job_.scale);
        for (std::int32_t i = 0; i < queries_; ++i) {
            const char* from = offset(job_.q.data, job_.q.stream, stream_);
            from = offset(offset(from, job_.q.row, row_of(i)), job_.q.head, head_of(i));
            for (std::int32_t part = 0; part < kParts; ++part) {
                q_[i * kParts + part] = _mm512_mul_ps(
                    _mm512_loadu_ps(reinterpret_cast<const float*>(from) + part * kLanes), scale);
                o_[i * kParts + part] = _mm512_setzero_ps();
            }
            l_[i] = _mm512_setzero_ps();
            m_[i] = _mm512_set1_ps(kLowest);
        }
    }

    void sixteen(const std::int32_t* cells, std::int32_t count) {
        load(job_.k, cells, count, k_);
        load(job_.v, cells, count, v_);
        std::int32_t from = queries_, to = 0;  // those that see any of them
        for (std::int32_t row = 0; row < group_.rows; ++row) {
            const __m512 mask = load_mask(group_.row + row, cells, count);
            if (_mm512_cmp_ps_mask(mask, _mm512_set1_ps(kLowest), _CMP_GT_OQ) == 0) continue;
            for (std::int32_t i = row * shared_; i < (row + 1) * shared_; ++i) weigh(i, mask);
            from = std::min(from, row * shared_);
            to = (row + 1) * shared_;
        }
        std::int32_t i = from;
        for (; i + kTogether <= to; i += kTogether) add_values<kTogether>(i);
        for (; i < to; ++i) add_values<1>(i);
    }

    // Past the end the last one again: the mask hides it.
    void load(const AttentionJob::Tensor& tensor, const std::int32_t* cells, std::int32_t count,
              __m512* to) const {
        const char* base = offset(tensor.data, tensor.stream, stream_);
        base = offset(base, tensor.head, kv_head_);
        for (std::int32_t j = 0; j < kLanes; ++j) {
            const char* from = offset(base, tensor.row, cells[std::min(j, count - 1)]);
            for (std::int32_t part = 0; part < kParts; ++part)
                to[j * kParts + part] = load16<kKv>(from + part * kLanes * 2);
        }
    }

    __m512 load_mask(std::int32_t row, const std::int32_t* cells, std::int32_t count) const {
        const std::uint16_t* mask = mask_of(job_, stream_, row);
        if (count == kLanes && cells[kLanes - 1] - cells[0] == kLanes - 1)
            return _mm512_cvtph_ps(
                _mm256_loadu_si256(reinterpret_cast<const __m256i*>(mask + cells[0])));
        alignas(32) std::uint16_t values[kLanes];
        std::fill(std::begin(values), std::end(values), kMasked);
        for (std::int32_t j = 0; j < count; ++j) values[j] = mask[cells[j]];
        return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(values)));
    }

    // Scores of one query, and what they are in its running softmax.
    void weigh(std::int32_t i, __m512 mask) {
        __m512 dots[kLanes];
        for (std::int32_t j = 0; j < kLanes; ++j)
            dots[j] = _mm512_mul_ps(q_[i * kParts], k_[j * kParts]);
        for (std::int32_t part = 1; part < kParts; ++part)
            for (std::int32_t j = 0; j < kLanes; ++j)
                dots[j] = _mm512_fmadd_ps(q_[i * kParts + part], k_[j * kParts + part], dots[j]);
        const __m512 score = _mm512_add_ps(sums(dots), mask);
        const float highest = _mm512_reduce_max_ps(score), before = _mm512_cvtss_f32(m_[i]);
        if (highest > before) {
            m_[i] = _mm512_set1_ps(highest);
            const __m512 shrink = exp16(_mm512_set1_ps(before - highest));
            l_[i] = _mm512_mul_ps(l_[i], shrink);
            for (std::int32_t part = 0; part < kParts; ++part)
                o_[i * kParts + part] = _mm512_mul_ps(o_[i * kParts + part], shrink);
        }
        const __mmask16 counts = _mm512_cmp_ps_mask(score, _mm512_set1_ps(kLowest), _CMP_GT_OQ);
        p_[i] = _mm512_maskz_mov_ps(counts, exp16(_mm512_sub_ps(score, m_[i])));
        l_[i] = _mm512_add_ps(l_[i], p_[i]);
    }

    template <std::int32_t kQueries>
    void add_values(std::int32_t first) {
        __m512 sum[kQueries][kParts];
        for (std::int32_t i = 0; i < kQueries; ++i)
            for (std::int32_t part = 0; part < kParts; ++part)
                sum[i][part] = o_[(first + i) * kParts + part];
        const float* weights = reinterpret_cast<const float*>(p_ + first);
        for (std::int32_t j = 0; j < kLanes; ++j) {
            for (std::int32_t i = 0; i < kQueries; ++i) {
                const __m512 weight = _mm512_set1_ps(weights[i * kLanes + j]);
                for (std::int32_t part = 0; part < kParts; ++part)
                    sum[i][part] = _mm512_fmadd_ps(weight, v_[j * kParts + part], sum[i][part]);
            }
        }
        for (std::int32_t i = 0; i < kQueries; ++i)
            for (std::int32_t part = 0; part < kParts; ++part)
                o_[(first + i) * kParts + part] = sum[i][part];
    }

    void store() const {
        for (std::int32_t i = 0; i < queries_; ++i) {
            const float sum = _mm512_reduce_add_ps(l_[i]);
            const __m512 share = _mm512_set1_ps(sum > 0 ? 1 / sum : 0);
            const std::int64_t at =
                (std::int64_t{stream_} * job_.rows + row_of(i)) * job_.heads + head_of(i);
            float* to = reinterpret_cast<float*>(job_.out) + at * kSize;
            for (std::int32_t part = 0; part < kParts; ++part)
                _mm512_storeu_ps(to + part * kLanes, _mm512_mul_ps(o_[i * kParts + part], share));
        }
    }

    const AttentionJob& job_;
    const Group group_;
    const std::int32_t shared_, queries_, stream_, kv_head_;  // shared_: heads of a kv head
    const std::span<const std::int32_t> cells_;
    // By query: [parts] of q and of the sum; sum and highest of the weights; the current weights.
    __m512 *q_, *o_, *l_, *p_, *m_;
    __m512 *k_, *v_;  // the current sixteen: [cell][parts]
};

template <std::int32_t kSize, AttentionJob::Kv kKv>
void run_units(const AttentionJob& job, std::int32_t thread, std::int32_t threads) {
    static thread_local Scratch scratch;
    std::int32_t unit = 0;
    for (std::int32_t stream = 0; stream < job.streams; ++stream) {
        find_groups(job, stream, scratch.groups);
        for (const Group& group : scratch.groups) {
            bool listed = false;
            for (std::int32_t kv_head = 0; kv_head < job.kv_heads; ++kv_head) {
                if (unit++ % threads != thread) continue;
                if (!std::exchange(listed, true))
                    list_cells(mask_of(job, stream, group.row + group.rows - 1), job.cells,
                               scratch);
                Unit<kSize, kKv>(job, stream, group, kv_head, scratch).run();
            }
        }
    }
}

template <std::int32_t kSize>
void run_size(const AttentionJob& job, std::int32_t thread, std::int32_t threads) {
    if (job.kv == AttentionJob::Kv::kF16)
        run_units<kSize, AttentionJob::Kv::kF16>(job, thread, threads);
    else
        run_units<kSize, AttentionJob::Kv::kBf16>(job, thread, threads);
}

template <std::size_t... kAt>
void run_any(const AttentionJob& job, std::int32_t thread, std::int32_t threads,
             std::index_sequence<kAt...>) {
    (void)((job.head_size == kHeadSizes[kAt] &&
            (run_size<kHeadSizes[kAt]>(job, thread, threads), true)) ||
           ...);
}

}  // namespace

void attend_avx512(const AttentionJob& job, std::int32_t thread, std::int32_t threads) {
    run_any(job, thread, threads, std::make_index_sequence<kHeadSizes.size()>());
}

}  // namespace zerohop::engine

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#else

namespace zerohop::engine {

void attend_avx512(const AttentionJob&, std::int32_t, std::int32_t) {}  // has_avx512() says no

}  // namespace zerohop::engine
#endif
