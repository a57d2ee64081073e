// StopFlag: how long work is told that nobody wants it any more. Work looks at it between pieces of
// bounded size and then ends at once, with kCancelled or with nothing.
//
// A plain function; called on the working thread only; must be cheap (some 10 ns).
#pragma once

#include <functional>

namespace zerohop {

using StopFlag = std::function<bool()>;  // empty: never

inline bool stopped(const StopFlag& flag) { return flag && flag(); }

}  // namespace zerohop
