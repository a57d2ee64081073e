// Choosing where a request's KV comes from. Costs are expected ns: the work of this request, plus
// what overwriting takes from later ones (return_chance × computing it again).
#include "kv/residency.h"

#include <algorithm>

#include "base/check.h"

namespace zerohop::kv {
namespace {

constexpr std::size_t kHolders = 8;  // slots looked at for one prefix
constexpr std::uint32_t kMaxSlots = 256;

std::uint64_t tree_tokens(const ResidencyConfig& c) {
    return c.unified ? c.pool_tokens : std::uint64_t{c.slots} * c.slot_tokens;
}

}  // namespace

Residency::Residency(const ResidencyConfig& config)
    : config_(config),
      resident_({.capacity_tokens = tree_tokens(config),
                 .pin_cap_tokens = config.pin_cap_tokens,
                 .pin_total_tokens = config.pin_total_tokens}),
      stored_({.capacity_tokens = ~0ULL >> 8,
               .pin_cap_tokens = config.pin_cap_tokens,
               .pin_total_tokens = config.pin_total_tokens,
               .adaptive = false}),
      gone_({.capacity_tokens = ~0ULL >> 8, .adaptive = false}),
      slots_(config.slots),
      host_limit_(std::min(config.host_bytes, config.host_first_bytes)) {
    ZH_CHECK(config.slots > 0 && config.slots <= kMaxSlots && config.slot_tokens > 0);
    config_.min_reuse = std::max(1U, config_.min_reuse);
    if (config_.unified)
        config_.slot_tokens = static_cast<std::uint32_t>(
            std::min<std::uint64_t>(config_.slot_tokens, config_.pool_tokens));
}

double Residency::compute_cost(const Ask& ask, std::uint32_t cached) const {
    return static_cast<double>(ask.tokens.size() - cached) * config_.costs.prefill_per_token;
}

// What later requests lose if the slot keeps only its first `kept` tokens.
double Residency::loss(SlotId slot, std::uint32_t kept) const {
    const Slot& s = at(slot);
    if (s.use == Use::kFree) return 0;
    const EntryInfo info = resident_.info(s.entry);
    if (info.length <= kept) return 0;
    const std::uint32_t lost = std::min(resident_.unique_tail(s.entry), info.length - kept);
    const double again = lost * config_.costs.prefill_per_token * config_.return_chance;
    return resident_.pinned(s.entry) ? again * 100 : again;
}

// The slot whose overwriting loses least: an empty one, one that holds nothing of its own, else the
// coldest; a pinned one only when all are pinned.
SlotId Residency::victim(SlotId except, bool for_restore) const {
    SlotId best = -1;
    int best_class = 0;
    double best_heat = 0;
    for (SlotId i = 0; i < static_cast<SlotId>(slots_.size()); ++i) {
        const Slot& s = at(i);
        if (i == except || s.use == Use::kRunning || (for_restore && s.copying)) continue;
        if (s.use == Use::kFree) return i;
        const int cls = resident_.pinned(s.entry) ? 2 : resident_.unique_tail(s.entry) > 0 ? 1 : 0;
        const double heat = resident_.heat(s.entry);
        if (best >= 0 && (cls > best_class || (cls == best_class && heat >= best_heat))) continue;
        best = i;
        best_class = cls;
        best_heat = heat;
    }
    return best;
}

void Residency::price_slots(const Ask& ask, std::vector<Option>& options) const {
    const Match match = resident_.lookup(ask.ns, ask.tokens);
    const SlotId usual = victim(-1, false);
    const auto last = static_cast<std::uint32_t>(ask.tokens.size() - 1);
    const std::uint32_t usable = std::min(match.cached, last);
    std::vector<EntryId> entries;
    if (config_.partial_removal) resident_.holders(match, usable, kHolders, entries);
    resident_.prefixes(match, entries);
    for (const EntryId id : entries) {
        const EntryInfo info = resident_.info(id);
        const auto slot = static_cast<SlotId>(info.tag);
        if (!config_.partial_removal && (info.running || info.length > last)) continue;
        const std::uint32_t cached = std::min(usable, info.computed);
        if (cached < config_.min_reuse) continue;
        if (!info.running)
            options.push_back({.how = Grant::How::kTakeOver,
                               .source = slot,
                               .cached = cached,
                               .target = slot,
                               .cost = compute_cost(ask, cached) + loss(slot, cached)});
        const SlotId target = usual == slot ? victim(slot, false) : usual;
        if (target < 0) continue;
        // Streams copy whatever the source holds, and later the running source writes on beside it.
        const double copied = config_.unified ? cached : info.computed;
        options.push_back({.how = Grant::How::kCopy,
                           .source = slot,
                           .cached = cached,
                           .target = target,
                           .cost = compute_cost(ask, cached) + loss(target, 0) +
                                   config_.costs.copy_fixed +
                                   copied * config_.costs.copy_per_token});
    }
}

void Residency::price_blobs(const Ask& ask, std::vector<Option>& options) const {
    if (blobs_.empty()) return;
    const Match match = stored_.lookup(ask.ns, ask.tokens);
    const auto last = static_cast<std::uint32_t>(ask.tokens.size() - 1);
    const std::uint32_t usable = std::min(match.cached, last);
    std::vector<EntryId> entries;
    if (config_.partial_removal) stored_.holders(match, usable, kHolders, entries);
    stored_.prefixes(match, entries);
    const SlotId target = victim(-1, true);
    if (target < 0) return;
    for (const EntryId id : entries) {
        const EntryInfo info = stored_.info(id);
        if (!config_.partial_removal && info.length > last) continue;
        const std::uint32_t cached = std::min(usable, info.length);
        if (cached < config_.min_reuse || info.length > config_.slot_tokens) continue;
        options.push_back({.how = Grant::How::kRestore,
                           .blob = info.tag,
                           .cached = cached,
                           .target = target,
                           .cost = compute_cost(ask, cached) + loss(target, 0) +
                                   config_.costs.restore_fixed +
                                   info.length * config_.costs.restore_per_token});
    }
}

std::optional<Residency::Option> Residency::cheapest(const Ask& ask, bool restores) const {
    std::vector<Option> options;
    price_slots(ask, options);
    if (restores) price_blobs(ask, options);
    const SlotId target = victim(-1, false);
    if (target >= 0)
        options.push_back({.target = target, .cost = compute_cost(ask, 0) + loss(target, 0)});
    const auto best = std::ranges::min_element(options, {}, &Option::cost);
    if (best == options.end()) return std::nullopt;
    return *best;
}

Grant Residency::admit(const Ask& ask) {
    Grant grant;
    const auto size = static_cast<std::uint32_t>(ask.tokens.size());
    ZH_CHECK(size > 0);
    if (size > config_.slot_tokens) {
        grant.outcome = Grant::Outcome::kNever;
        return grant;
    }
    expire(ask.now);
    grow_host(ask);
    const Match match = resident_.lookup(ask.ns, ask.tokens);
    if (ask.may_wait && config_.partial_removal && match.computing != 0) {
        const std::uint32_t usable = std::min(match.promised, size - 1);
        if (usable >= match.cached + config_.min_wait) {
            grant.outcome = Grant::Outcome::kWait;
            grant.wait_for = static_cast<SlotId>(resident_.info(match.computing).tag);
            grant.wait_until = usable;
            ++count_.waits;
            return grant;
        }
    }
    // A restore may find no room where computing anew does: then once more without.
    for (const bool restores : {true, false}) {
        const std::optional<Option> best = cheapest(ask, restores);
        if (!best) return grant;
        if (carry_out(ask, *best, grant) || best->how != Grant::How::kRestore) break;
    }
    return grant;
}

std::uint32_t Residency::known_prefix(const Namespace& ns, std::span<const Token> tokens) const {
    return std::max(resident_.lookup(ns, tokens).promised,
                    blobs_.empty() ? 0U : stored_.lookup(ns, tokens).cached);
}

ResidencyCounters Residency::counters() const {
    ResidencyCounters c = count_;
    c.blob_bytes = blob_bytes_;
    c.host_limit = host_limit_;
    c.blobs = static_cast<std::uint32_t>(blobs_.size());
    c.resident = resident_.counters();
    return c;
}

}  // namespace zerohop::kv
