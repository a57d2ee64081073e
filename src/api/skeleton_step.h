// The skeleton of each request: read once from its turns, between parsing and the engine.
//
// Threads: any I/O thread or worker; each keeps an arena of its own. The counts are shared,
// relaxed. Errors: only when the request asked for strictness (x-anthropic-skeleton: strict): 400
// SKELETON_PARSE_ERROR with message, line, column, what was found and the cure. Otherwise parse
// errors are counted and logged by kind, and the text is read leniently.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/error.h"
#include "request/request.h"
#include "skeleton/skeleton.h"

namespace zerohop::api {

struct SkeletonSummary {
    skeleton::Key whole, last_turn, system_tools;
    // The same chain for the caches: what semantic anchors hold, wherever they stand, is part of
    // each.
    std::array<StructureKey, 3> structure;
    std::string header;  // value of x-anthropic-skeleton
};

class SkeletonStep {
  public:
    Result<SkeletonSummary> read(const Request& request, bool strict);
    // Most memory that reading it takes for a moment, in bytes.
    static std::size_t scratch_bytes(const Request& request);
    // Parse errors of one kind since the start, of all requests.
    std::uint64_t errors(skeleton::Problem problem) const {
        return counts_[static_cast<std::size_t>(problem)].load(std::memory_order_relaxed);
    }

  private:
    void count(const skeleton::Analysis& analysis, const std::string& request_id);

    std::array<std::atomic<std::uint64_t>, skeleton::kProblems> counts_{};
};

}  // namespace zerohop::api
