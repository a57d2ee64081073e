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

std::int64_t limit_of(const Limits& limits, std::size_t quota) {
    return quota == 0 ? limits.requests : quota == 1 ? limits.input_tokens : limits.output_tokens;
}

}  // namespace

void Meter::set_limit(std::int64_t limit_per_minute, std::int64_t burst) {
    limit_ = std::clamp<std::int64_t>(limit_per_minute, 0, auth::kMaxLimit);
    burst_ = burst > 0 ? std::min(burst, auth::kMaxLimit) : limit_;
}

Meter::Wide Meter::capacity() const { return Wide{burst_} * kUnit; }

void Meter::advance(MonoNs elapsed) {
    if (backlog_ == 0) return;
    backlog_ = std::max<Wide>(0, backlog_ - Wide{elapsed} * limit_);
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
                       const Limits& burst)
    : scope_(std::move(scope)), name_(std::move(name)) {
    set_limits(limits, burst);
}

void QuotaGroup::set_limits(const Limits& limits, const Limits& burst) {
    const std::scoped_lock lock(mutex_);
    for (std::size_t q = 0; q < kQuotas; ++q)
        meters_[q].set_limit(limit_of(limits, q), limit_of(burst, q));
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
    std::optional<QuotaRefusal> refusal;
    locked.each([&](const QuotaGroup& group, Quota quota, const Meter& meter) {
        const std::int64_t need = std::max(cost.of(quota), probe.of(quota));
        if (meter.admits(need)) return;
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
