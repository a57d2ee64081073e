// The two instances of the scanner. Each fills the arena's nodes, shapes, spans and errors; equal
// results is what skeleton_fuzz.cc checks. Any thread.
#pragma once

#include "skeleton/arena.h"

namespace zerohop::skeleton {

void scan_portable(const Prompt& prompt, Arena::State& arena, const Options& options);
void scan_avx2(const Prompt& prompt, Arena::State& arena, const Options& options);  // x86-64 only

// Writes the canonical form, the keys and the depth from the nodes.
void write_canonical(Arena::State& arena, Analysis& out);

}  // namespace zerohop::skeleton
