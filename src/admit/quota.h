// Quotas: requests, input tokens and output tokens per minute of a key, a workspace or a token.
//
// Counting tokens and looking up (models, caches) have meters of their own with the limit of
// requests, so that neither takes from messages; what a workspace deletes is bounded even where it
// has no limits.
//
// Each is a GCRA meter, kept as the backlog it stands for: `backlog` units not yet earned back fall
// by limit per minute, and a cost is admitted when backlog + cost ≤ burst. Held exactly, in units
// of 1/60e9 (unit·minute per nanosecond), so that over any Δt from a full bucket precisely burst +
// ⌊Δt · limit / minute⌋ units are admitted, whatever the interleaving.
//
// Threads: any. One short mutex per group, so a decision over several groups and quotas is one
// atomic step: nobody is refused because of a charge that is then taken back. Time is passed in; a
// clock that steps back stands still.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "auth/key_record.h"
#include "base/clock.h"

namespace zerohop::admit {

using auth::Limits;

enum class Quota : std::uint8_t {
    kRequests,
    kInputTokens,
    kOutputTokens,
    kCounts,
    kLookups,
    kDeletes,
};
inline constexpr std::size_t kQuotas = 6;

struct Cost {
    std::int64_t requests = 0;
    std::int64_t input_tokens = 0;
    std::int64_t output_tokens = 0;
    std::int64_t counts = 0;
    std::int64_t lookups = 0;
    std::int64_t deletes = 0;
    std::int64_t of(Quota q) const;
};
// n requests of a class: kRequests, kCounts or kLookups.
Cost request_cost(Quota request_class, std::int64_t n = 1);

// One meter. Not thread-safe by itself; pure arithmetic, tested alone.
class Meter {
  public:
    void set_limit(std::int64_t limit_per_minute, std::int64_t burst);
    bool limited() const { return limit_ != 0; }
    std::int64_t limit() const { return limit_; }
    std::int64_t burst() const { return burst_; }

    void advance(MonoNs elapsed);
    bool admits(std::int64_t cost) const;
    // May exceed the burst (a debt) or be negative (a refund, never beyond a full bucket).
    void charge(std::int64_t cost);
    std::int64_t remaining() const;                // whole units, ≥ 0
    MonoNs until_admits(std::int64_t cost) const;  // 0 now; -1 never (cost > burst)
    MonoNs until_full() const;

  private:
    __extension__ using Wide = __int128;
    Wide capacity() const;
    std::int64_t limit_ = 0;  // 0: unlimited
    std::int64_t burst_ = 0;
    std::int64_t rate_ = 0;  // the last limit there was: what was used is earned back at it
    Wide backlog_ = 0;
};

class QuotaGroup {
  public:
    // `scope` and `name` are for messages: "key" "key_ab…", "workspace" "team-a", "token" "…".
    // burst: 0 where it equals the limit. deletes: per minute, not to be changed; 0: no limit.
    QuotaGroup(std::string scope, std::string name, const Limits& limits, const Limits& burst = {},
               std::int64_t deletes = 0);
    QuotaGroup(const QuotaGroup&) = delete;
    QuotaGroup& operator=(const QuotaGroup&) = delete;

    // What has been used stays used.
    void set_limits(const Limits& limits, const Limits& burst = {});
    const std::string& scope() const { return scope_; }
    const std::string& name() const { return name_; }
    std::int64_t burst_of(Quota quota) const;  // 0: unlimited

  private:
    friend class QuotaCharge;
    void advance(MonoNs now);  // lock held
    const std::string scope_, name_;
    mutable std::mutex mutex_;
    MonoNs last_ns_ = 0;
    std::array<Meter, kQuotas> meters_;
};

// The state of one quota, the tightest of all groups; limit 0: none applies.
struct QuotaState {
    std::int64_t limit = 0;
    std::int64_t remaining = 0;
    MonoNs full_in_ns = 0;
};
using QuotaStates = std::array<QuotaState, kQuotas>;

struct QuotaRefusal {
    Quota quota = Quota::kRequests;
    const QuotaGroup* group = nullptr;
    std::int64_t limit = 0;
    std::int64_t burst = 0;
    std::int64_t cost = 0;
    MonoNs retry_in_ns = 0;  // -1: never, the cost alone is beyond the burst
};

// The groups that one request draws on, always in the same order (workspace, key, token) so that
// their locks cannot deadlock. Null entries are skipped.
class QuotaCharge {
  public:
    using Groups = std::array<QuotaGroup*, 3>;
    // Charges `cost` to all groups, or to none: the refusal that lasts longest is told. `probe`
    // must be admissible too but is not charged.
    static std::optional<QuotaRefusal> charge(const Groups& groups, const Cost& cost,
                                              const Cost& probe, MonoNs now);
    // The same where nobody knows how long the answer will be: of cost.output_tokens only as much
    // as remains, but at least one. `cost` then tells what was charged.
    static std::optional<QuotaRefusal> charge_what_remains(const Groups& groups, Cost& cost,
                                                           MonoNs now);
    // Adds (or, negative, gives back) without asking.
    static void adjust(const Groups& groups, const Cost& delta, MonoNs now);
    static QuotaStates states(const Groups& groups, MonoNs now);

  private:
    class Locked;
    static std::optional<QuotaRefusal> charge_locked(Locked& locked, const Cost& cost,
                                                     const Cost& probe);
};

}  // namespace zerohop::admit
