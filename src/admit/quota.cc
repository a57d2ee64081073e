// Invariant: 0 ≤ backlog. A unit is kUnit backlog parts; limit parts are earned back each
// nanosecond.
#include "admit/quota.h"

#include <algorithm>

namespace zerohop::admit {
namespace {

__extension__ using Wide = __int128;
constexpr std::int64_t kUnit = 60 * kNsPerSec;  // parts of one unit: nanoseconds in a minute

// 128-bit division is a library call of ~30 ns; nearly always 64 bits are enough.
std::int64_t divide(Wide value, std::int64_t by) {
    if (value <= INT64_MAX) return static_cast<std::int64_t>(value) / by;
    return static_cast<std::int64_t>(value / by);
}

std::int64_t limit_of(const Limits& limits, Quota quota) {
    switch (quota) {
        case Quota::kInputTokens:
            return limits.input_tokens;
        case Quota::kOutputTokens:
            return limits.output_tokens;
        default:
            return limits.requests;
    }
}

}  // namespace

std::int64_t Cost::of(Quota q) const {
    const std::array<std::int64_t, kQuotas> all = {requests, input_tokens, output_tokens,
                                                   counts,   lookups,      deletes};
    return all[static_cast<std::size_t>(q)];
}

Cost request_cost(Quota request_class, std::int64_t n) {
    Cost cost;
    (request_class == Quota::kCounts    ? cost.counts
     : request_class == Quota::kLookups ? cost.lookups
                                        : cost.requests) = n;
    return cost;
}

void Meter::set_limit(std::int64_t limit_per_minute, std::int64_t burst) {
    limit_ = std::clamp<std::int64_t>(limit_per_minute, 0, auth::kMaxLimit);
    if (limit_ != 0) rate_ = limit_;
    burst_ = burst > 0 ? std::min(burst, auth::kMaxLimit) : limit_;
}

Meter::Wide Meter::capacity() const { return Wide{burst_} * kUnit; }

void Meter::advance(MonoNs elapsed) {
    if (backlog_ == 0) return;
    backlog_ = std::max<Wide>(0, backlog_ - Wide{elapsed} * rate_);
}

bool Meter::admits(std::int64_t cost) const {
    return limit_ == 0 || backlog_ + Wide{cost} * kUnit <= capacity();
}

void Meter::charge(std::int64_t cost) {
    if (limit_ != 0) backlog_ = std::max<Wide>(0, backlog_ + Wide{cost} * kUnit);
}

std::int64_t Meter::remaining() const {
    const Wide left = capacity() - backlog_;
    return left <= 0 ? 0 : divide(left, kUnit);
}

MonoNs Meter::until_admits(std::int64_t cost) const {
    if (admits(cost)) return 0;
    if (cost > burst_) return -1;
    const Wide over = backlog_ + Wide{cost} * kUnit - capacity();
    return divide(over + limit_ - 1, limit_);
}

MonoNs Meter::until_full() const { return limit_ == 0 ? 0 : divide(backlog_ + limit_ - 1, limit_); }

QuotaGroup::QuotaGroup(std::string scope, std::string name, const Limits& limits,
                       const Limits& burst, std::int64_t deletes)
    : scope_(std::move(scope)), name_(std::move(name)) {
    set_limits(limits, burst);
    meters_[static_cast<std::size_t>(Quota::kDeletes)].set_limit(deletes, 0);
}

void QuotaGroup::set_limits(const Limits& limits, const Limits& burst) {
    const std::scoped_lock lock(mutex_);
    for (std::size_t q = 0; q < static_cast<std::size_t>(Quota::kDeletes); ++q)
        meters_[q].set_limit(limit_of(limits, static_cast<Quota>(q)),
                             limit_of(burst, static_cast<Quota>(q)));
}

std::int64_t QuotaGroup::burst_of(Quota quota) const {
    const std::scoped_lock lock(mutex_);
    const Meter& meter = meters_[static_cast<std::size_t>(quota)];
    return meter.limited() ? meter.burst() : 0;
}

void QuotaGroup::advance(MonoNs now) {
    if (now <= last_ns_) return;
    // The first call only sets the clock: a new bucket is full.
    const MonoNs elapsed = last_ns_ == 0 ? 0 : now - last_ns_;
    last_ns_ = now;
    for (Meter& meter : meters_) meter.advance(elapsed);
}

// All groups locked in order and brought up to date.
class QuotaCharge::Locked {
  public:
    Locked(const Groups& groups, MonoNs now) : groups_(groups) {
        for (QuotaGroup* group : groups_) {
            if (group == nullptr) continue;
            group->mutex_.lock();
            group->advance(now);
        }
    }
    Locked(const Locked&) = delete;
    Locked& operator=(const Locked&) = delete;
    ~Locked() {
        for (QuotaGroup* group : groups_)
            if (group != nullptr) group->mutex_.unlock();
    }

    template <class Fn>
    void each(Fn&& fn) {
        for (QuotaGroup* group : groups_) {
            if (group == nullptr) continue;
            for (std::size_t q = 0; q < kQuotas; ++q)
                if (group->meters_[q].limited())
                    fn(*group, static_cast<Quota>(q), group->meters_[q]);
        }
    }

  private:
    const Groups& groups_;
};

std::optional<QuotaRefusal> QuotaCharge::charge(const Groups& groups, const Cost& cost,
                                                const Cost& probe, MonoNs now) {
    Locked locked(groups, now);
    return charge_locked(locked, cost, probe);
}

std::optional<QuotaRefusal> QuotaCharge::charge_what_remains(const Groups& groups, Cost& cost,
                                                             MonoNs now) {
    Locked locked(groups, now);
    locked.each([&cost](const QuotaGroup&, Quota quota, const Meter& meter) {
        if (quota == Quota::kOutputTokens && cost.output_tokens > 0)
            cost.output_tokens =
                std::min(cost.output_tokens, std::max<std::int64_t>(1, meter.remaining()));
    });
    return charge_locked(locked, cost, {});
}

std::optional<QuotaRefusal> QuotaCharge::charge_locked(Locked& locked, const Cost& cost,
                                                       const Cost& probe) {
    std::optional<QuotaRefusal> refusal;
    locked.each([&](const QuotaGroup& group, Quota quota, const Meter& meter) {
        const std::int64_t need = std::max(cost.of(quota), probe.of(quota));
        if (need == 0 || meter.admits(need)) return;  // what is owed elsewhere holds up nothing
        const MonoNs retry = meter.until_admits(need);
        const bool longer =
            !refusal || retry < 0 || (refusal->retry_in_ns >= 0 && retry > refusal->retry_in_ns);
        if (!longer) return;
        refusal = QuotaRefusal{.quota = quota,
                               .group = &group,
                               .limit = meter.limit(),
                               .burst = meter.burst(),
                               .cost = need,
                               .retry_in_ns = retry};
    });
    if (refusal) return refusal;
    locked.each([&](const QuotaGroup&, Quota quota, Meter& meter) {
        if (const std::int64_t c = cost.of(quota); c != 0) meter.charge(c);
    });
    return {};
}

void QuotaCharge::adjust(const Groups& groups, const Cost& delta, MonoNs now) {
    Locked locked(groups, now);
    locked.each([&](const QuotaGroup&, Quota quota, Meter& meter) {
        if (const std::int64_t c = delta.of(quota); c != 0) meter.charge(c);
    });
}

QuotaStates QuotaCharge::states(const Groups& groups, MonoNs now) {
    QuotaStates states{};
    Locked locked(groups, now);
    locked.each([&](const QuotaGroup&, Quota quota, const Meter& meter) {
        QuotaState& state = states[static_cast<std::size_t>(quota)];
        const std::int64_t remaining = meter.remaining();
        if (state.limit != 0 && state.remaining <= remaining) return;
        state = {.limit = meter.limit(), .remaining = remaining, .full_in_ns = meter.until_full()};
    });
    return states;
}

}  // namespace zerohop::admit
