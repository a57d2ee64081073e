// Included ahead of llama.cpp's sources when g++ older than 13 builds them natively.
//
// g++ 12's _tile_loadconfig tells the compiler that only 8 of the 64 configuration bytes are read, so
// the optimizer drops the stores to the rest and ldtilecfg faults (seen as a SIGSEGV in
// ggml_backend_amx_mul_mat on any machine with AMX). This says what is read.
#pragma once
#if defined(__AMX_TILE__) && defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 13
#include <immintrin.h>
#undef _tile_loadconfig
#define _tile_loadconfig(config) \
    __asm__ volatile("ldtilecfg\t%0" ::"m"(*(const char(*)[64])(config)))
#endif
