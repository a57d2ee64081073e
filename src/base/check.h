// CHECK: an always-on assertion for our own bugs. Never for network input, which yields an Error.
#pragma once

#include <cstdio>
#include <cstdlib>

#define ZH_CHECK(cond)                                                                      \
    do {                                                                                    \
        if (!(cond)) [[unlikely]] {                                                         \
            std::fprintf(stderr, "CHECK failed: %s at %s:%d\n", #cond, __FILE__, __LINE__); \
            std::abort();                                                                   \
        }                                                                                   \
    } while (0)
