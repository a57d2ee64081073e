// Volatile values: what changes from call to call (time stamps, ids, counters) and so ends the
// prefix that a cache can reuse. docs/formats/skeleton.md §7 defines each kind.
//
// match() looks at one word; who finds the words (the fast sweep, the reference) calls it for each
// word that holds a digit, from left to right. Any thread; nothing fails.
#pragma once

#include <cstddef>
#include <string_view>

#include "skeleton/skeleton.h"

namespace zerohop::skeleton {

struct VolatileMatch {
    bool found = false;
    VolatileKind kind = VolatileKind::kTimestamp;
    std::size_t begin = 0;
    std::size_t end = 0;  // found or not: no word before it needs to be looked at
};

class VolatileMatcher {
  public:
    explicit VolatileMatcher(std::string_view text) : text_(text) {}
    // `word`: where a maximal run of ASCII letters and digits begins; `digit`: its first digit.
    VolatileMatch match(std::size_t word, std::size_t digit);

  private:
    std::string_view text_;
    std::size_t no_token_before_ = 0;  // a run of token characters up to here was no token
};

}  // namespace zerohop::skeleton
