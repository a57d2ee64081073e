// The AVX2 vector policy: 64 bytes as two registers. Included by scan_avx2.cc alone, inside its
// target pragma.
//
// UTF-8 validation is the published table method (Keiser and Lemire, "Validating UTF-8 in less than
// one instruction per byte", 2020): three 16-entry look-ups name what a pair of bytes can be wrong
// in; what is left over is the length of three- and four-byte sequences.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>

#include <cstdint>

#include "skeleton/languages.h"

namespace zerohop::skeleton {

struct Avx2 {
    struct Bytes {
        __m256i a, b;
    };
    static Bytes load(const char* p) {
        return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
                _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32))};
    }
    static std::uint64_t join(__m256i a, __m256i b) {
        return static_cast<std::uint32_t>(_mm256_movemask_epi8(a)) |
               (static_cast<std::uint64_t>(static_cast<std::uint32_t>(_mm256_movemask_epi8(b)))
                << 32);
    }
    static __m256i table(const std::uint8_t* sixteen) {
        return _mm256_broadcastsi128_si256(
            _mm_loadu_si128(reinterpret_cast<const __m128i*>(sixteen)));
    }
    static __m256i high_nibble(__m256i v) {
        return _mm256_and_si256(_mm256_srli_epi16(v, 4), _mm256_set1_epi8(15));
    }
    static std::uint64_t in(const Bytes& v, const CharSet& set) {
        const __m256i lo = table(set.lo.data());
        const __m256i bit = _mm256_setr_epi8(1, 2, 4, 8, 16, 32, 64, -128, 0, 0, 0, 0, 0, 0, 0, 0,
                                             1, 2, 4, 8, 16, 32, 64, -128, 0, 0, 0, 0, 0, 0, 0, 0);
        const auto miss = [&](__m256i x) {
            return _mm256_cmpeq_epi8(_mm256_and_si256(_mm256_shuffle_epi8(lo, x),
                                                      _mm256_shuffle_epi8(bit, high_nibble(x))),
                                     _mm256_setzero_si256());
        };
        return ~join(miss(v.a), miss(v.b));
    }
    static std::uint64_t high(const Bytes& v) { return join(v.a, v.b); }
    static std::uint64_t equal(const Bytes& v, char c) {
        const __m256i all = _mm256_set1_epi8(c);
        return join(_mm256_cmpeq_epi8(v.a, all), _mm256_cmpeq_epi8(v.b, all));
    }

    class Utf8 {
      public:
        // Written out: g++ gives implicit members the default target.
        Utf8() { reset(); }
        void reset() { error_ = open_ = last_ = _mm256_setzero_si256(); }
        void ascii() {
            error_ = _mm256_or_si256(error_, open_);
            open_ = _mm256_setzero_si256();
            last_ = _mm256_setzero_si256();
        }
        void block(const Bytes& v) {
            half(v.a);
            half(v.b);
        }
        bool bad() const { return _mm256_testz_si256(error_, error_) == 0; }

      private:
        template <int N>
        static __m256i before(__m256i now, __m256i last) {
            return _mm256_alignr_epi8(now, _mm256_permute2x128_si256(last, now, 0x21), 16 - N);
        }
        void half(__m256i now) {
            static constexpr std::uint8_t kShort = 1, kLong = 2, kOver3 = 4, kLarge = 8, kSurr = 16,
                                          kOver2 = 32, kLarge4 = 64, kTwo = 128, kOver4 = 64;
            static constexpr std::uint8_t kCarry = kShort | kLong | kTwo;
            static constexpr std::uint8_t kFirstHigh[16] = {kLong,
                                                            kLong,
                                                            kLong,
                                                            kLong,
                                                            kLong,
                                                            kLong,
                                                            kLong,
                                                            kLong,
                                                            kTwo,
                                                            kTwo,
                                                            kTwo,
                                                            kTwo,
                                                            kShort | kOver2,
                                                            kShort,
                                                            kShort | kOver3 | kSurr,
                                                            kShort | kLarge | kLarge4 | kOver4};
            static constexpr std::uint8_t kBig = kCarry | kLarge | kLarge4;
            static constexpr std::uint8_t kFirstLow[16] = {kCarry | kOver3 | kOver2 | kOver4,
                                                           kCarry | kOver2,
                                                           kCarry,
                                                           kCarry,
                                                           kCarry | kLarge,
                                                           kBig,
                                                           kBig,
                                                           kBig,
                                                           kBig,
                                                           kBig,
                                                           kBig,
                                                           kBig,
                                                           kBig,
                                                           kBig | kSurr,
                                                           kBig,
                                                           kBig};
            static constexpr std::uint8_t kCont = kLong | kOver2 | kTwo;
            static constexpr std::uint8_t kSecondHigh[16] = {kShort,
                                                             kShort,
                                                             kShort,
                                                             kShort,
                                                             kShort,
                                                             kShort,
                                                             kShort,
                                                             kShort,
                                                             kCont | kOver3 | kLarge4 | kOver4,
                                                             kCont | kOver3 | kLarge,
                                                             kCont | kSurr | kLarge,
                                                             kCont | kSurr | kLarge,
                                                             kShort,
                                                             kShort,
                                                             kShort,
                                                             kShort};
            const __m256i one = before<1>(now, last_);
            const __m256i two = before<2>(now, last_);
            const __m256i three = before<3>(now, last_);
            const __m256i pair = _mm256_and_si256(
                _mm256_and_si256(_mm256_shuffle_epi8(table(kFirstHigh), high_nibble(one)),
                                 _mm256_shuffle_epi8(table(kFirstLow),
                                                     _mm256_and_si256(one, _mm256_set1_epi8(15)))),
                _mm256_shuffle_epi8(table(kSecondHigh), high_nibble(now)));
            // Bytes that must be the third of three or four, or the fourth of four.
            const __m256i third = _mm256_subs_epu8(two, _mm256_set1_epi8(0x60));
            const __m256i fourth = _mm256_subs_epu8(three, _mm256_set1_epi8(0x70));
            const __m256i must =
                _mm256_and_si256(_mm256_or_si256(third, fourth), _mm256_set1_epi8(-128));
            error_ = _mm256_or_si256(error_, _mm256_xor_si256(must, pair));
            // A lead byte so late in the register that its sequence is still open.
            const __m256i most = _mm256_setr_epi8(-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,
                                                  -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,
                                                  -1, -1, -1, -1, -1, static_cast<char>(0xEF),
                                                  static_cast<char>(0xDF), static_cast<char>(0xBF));
            open_ = _mm256_subs_epu8(now, most);
            last_ = now;
        }
        __m256i error_;
        __m256i open_;
        __m256i last_;
    };
};

}  // namespace zerohop::skeleton

#endif
