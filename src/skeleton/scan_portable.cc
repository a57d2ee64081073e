// clang-format off: the includes and the pragma need this order
#include "skeleton/simd_portable.h"

#include "skeleton/scan.h"
#include "skeleton/scanner_deps.h"
#include "skeleton/scanner.h"

namespace zerohop::skeleton {

void scan_portable(const Prompt& prompt, Arena::State& arena, const Options& options) {
    Scanner<Portable>(arena, options).run(prompt);
}

}  // namespace zerohop::skeleton
