// Token runs and a namespace, for tests of this module. Pure; any thread.
#pragma once

#include <cstddef>
#include <numeric>
#include <vector>

#include "kv/namespace.h"
#include "kv/prefix_tree.h"

namespace zerohop::kv::testing {

// from, from + 1, …: `count` of them.
inline std::vector<Token> run_of(Token from, int count) {
    std::vector<Token> out(static_cast<std::size_t>(count));
    std::iota(out.begin(), out.end(), from);
    return out;
}

inline std::vector<Token> joined(std::vector<Token> a, const std::vector<Token>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

inline const Namespace kA = derive_namespace("a", "m");

}  // namespace zerohop::kv::testing
