// clang-format off: the includes and the pragma need this order
// The scanner once more, compiled for AVX2. Every header is included before the pragma, so that no
// inline function of theirs is emitted with instructions the machine may lack; Scanner<Avx2> is
// named here alone.
#include "skeleton/scan.h"
#include "skeleton/scanner_deps.h"

#if defined(__x86_64__)
#include <immintrin.h>
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,bmi,bmi2,lzcnt,popcnt"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,bmi,bmi2,lzcnt,popcnt")
#endif

#include "skeleton/simd_avx2.h"
// clang-format keeps this order: the scanner needs the pragma too.
#include "skeleton/scanner.h"

namespace zerohop::skeleton {

void scan_avx2(const Prompt& prompt, Arena::State& arena, const Options& options) {
    Scanner<Avx2>(arena, options).run(prompt);
}

}  // namespace zerohop::skeleton

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
