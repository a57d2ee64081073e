#include "engine/kv_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace zerohop::engine {
namespace {

constexpr MonoNs kPublishEvery = kNsPerSec / 2;
constexpr MonoNs kShrinkEvery = 2 * kNsPerSec;
constexpr MonoNs kHostUnused = 600 * kNsPerSec;     // then a saved prefix goes
constexpr std::int64_t kSpareMemory = 512LL << 20;  // left to the machine's other uses
constexpr double kBytesPerNs = 2.0;                 // of saving and restoring, until measured

kv::ResidencyConfig residency_config(const KvStore::Options& o, const kv::Costs& costs) {
    const auto pool = static_cast<std::uint64_t>(std::max<std::int64_t>(o.pool_tokens, 1));
    const auto share_of_pool = [&](double share) {
        return static_cast<std::uint64_t>(share * static_cast<double>(o.pool_tokens));
    };
    return {.unified = o.unified,
            .slots = static_cast<std::uint32_t>(o.slots),
            .pool_tokens = pool,
            .slot_tokens = static_cast<std::uint32_t>(o.slot_tokens),
            .partial_removal = o.partial_removal,
            .host_bytes = o.prefix_cache ? static_cast<std::uint64_t>(o.host_bytes) : 0,
            .host_first_bytes = static_cast<std::uint64_t>(o.host_first_bytes),
            .bytes_per_token = static_cast<std::uint64_t>(o.bytes.per_token),
            .bytes_per_sequence = static_cast<std::uint64_t>(o.bytes.per_sequence),
            .pin_cap_tokens = share_of_pool(o.pin_share),
            .pin_total_tokens = share_of_pool(o.pin_total_share),
            .costs = costs};
}

kv::Costs first_costs(const KvStore::Options& o) {
    kv::Costs costs;
    costs.save_per_token = costs.restore_per_token =
        static_cast<double>(o.bytes.per_token) / kBytesPerNs;
    return costs;
}

// Empty when it could not be read.
PageBuffer read_state(llama_context* context, llama_seq_id sequence) {
    PageBuffer out(llama_state_seq_get_size(context, sequence));
    if (llama_state_seq_get_data(context, out.data(), out.size(), sequence) != out.size())
        return {};
    return out;
}

bool write_state(llama_context* context, llama_seq_id sequence, PageBuffer& in) {
    return !in.empty() && llama_state_seq_set_data(context, in.data(), in.size(), sequence) != 0;
}

// No sample moves it up by more than a fifth: that of a thread that was put aside says nothing.
void blend(double& average, double sample) {
    average += 0.2 * (std::min(sample, 2 * average) - average);
}

}  // namespace

KvStore::KvStore(llama_context* context, const Options& options, OnChange on_change)
    : context_(context),
      memory_(llama_get_memory(context)),
      options_(options),
      on_change_(std::move(on_change)),
      costs_(first_costs(options)),
      residency_(residency_config(options, costs_)),
      runs_(static_cast<std::size_t>(options.slots)),
      run_computed_(static_cast<std::size_t>(options.slots)) {}

KvStore::Admitted KvStore::admit(Sequence& sequence, std::int64_t reserve, MonoNs now) {
    const kv::Ask ask{.ns = sequence.ns,
                      .tokens = sequence.tokens,
                      .reserve = static_cast<std::uint32_t>(std::max<std::int64_t>(reserve, 0)),
                      .may_wait = options_.prefix_cache,
                      .now = now};
    changed_ = true;
    owners_.try_emplace(sequence.ns.owner, sequence.request->principal.cache_owner());
    while (true) {
        const kv::Grant grant = residency_.admit(ask);
        const bool restored = carry_out(grant.steps);
        switch (grant.outcome) {
            case kv::Grant::Outcome::kWait:
                sequence.wait_for = grant.wait_for;
                sequence.wait_order = runs_[static_cast<std::size_t>(grant.wait_for)];
                sequence.wait_until = static_cast<std::int32_t>(grant.wait_until);
                return Admitted::kWait;
            case kv::Grant::Outcome::kFull:
            case kv::Grant::Outcome::kNever:
                return Admitted::kFull;
            case kv::Grant::Outcome::kGo:
                break;
        }
        if (!restored) {
            log_warn(kOrigin, "saved KV could not be restored: computed anew");
            steps_.clear();
            residency_.abandon(grant.slot, steps_);
            carry_out(steps_);
            continue;
        }
        const auto slot = static_cast<std::size_t>(grant.slot);
        sequence.id = grant.slot;
        sequence.computed = static_cast<std::int32_t>(grant.cached);
        runs_[slot] = sequence.order + 1;
        run_computed_[slot] = sequence.computed;
        return Admitted::kGo;
    }
}

bool KvStore::wait_is_over(const Sequence& sequence) const {
    const auto slot = static_cast<std::size_t>(sequence.wait_for);
    return runs_[slot] != sequence.wait_order || run_computed_[slot] >= sequence.wait_until;
}

bool KvStore::cover(const Sequence& sequence, std::int64_t tokens) {
    steps_.clear();
    const bool there = residency_.cover(sequence.id, static_cast<std::uint32_t>(tokens), steps_);
    carry_out(steps_);
    return there;
}

void KvStore::computed(const Sequence& sequence) {
    residency_.computed(sequence.id, static_cast<std::uint32_t>(sequence.computed));
    run_computed_[static_cast<std::size_t>(sequence.id)] = sequence.computed;
}

void KvStore::sampled(const Sequence& sequence, std::int32_t token) {
    residency_.sampled(sequence.id, token);
}

std::int32_t KvStore::held(std::int32_t slot) const {
    return llama_memory_seq_pos_max(memory_, slot) + 1;
}

std::int32_t KvStore::held(const Sequence& sequence) const { return held(sequence.id); }

bool KvStore::cut(const Sequence& sequence, std::int32_t from) { return remove(sequence.id, from); }

void KvStore::distrust(const Sequence& sequence) {
    steps_.clear();
    residency_.distrust(sequence.id, steps_);
    carry_out(steps_);
}

void KvStore::release(Sequence& sequence, bool keep) {
    if (sequence.id < 0) return;
    // A last token was sampled but is not computed; drafts beyond it are gone already.
    keep = keep && options_.prefix_cache && sequence.computed > 0;
    if (keep && held(sequence) != sequence.computed) {
        log_warn(kOrigin, "{}: its KV is {} tokens long, not {}: not kept", sequence.request->id,
                 held(sequence), sequence.computed);
        keep = false;
    }
    steps_.clear();
    residency_.finish(sequence.id, keep, steps_);
    carry_out(steps_);
    changed_ = unsaved_ = true;
    doubt_costs();
    runs_[static_cast<std::size_t>(sequence.id)] = 0;
    sequence.id = -1;
    sequence.computed = 0;
}

void KvStore::pin(const Sequence& sequence, std::int32_t tokens, MonoNs until) {
    if (!options_.prefix_cache) return;
    const auto pinned =
        residency_.pin(sequence.id, static_cast<std::uint32_t>(std::max(tokens, 1)), until);
    if (!pinned)
        log_debug(kOrigin, "{} not pinned: {}", sequence.request->id, pinned.error().detail);
}

void KvStore::forget(std::string_view workspace, std::uint64_t id) {
    for (const auto& [owner, name] : owners_) {
        if (name != workspace) continue;
        steps_.clear();
        residency_.forget(owner, id, steps_);
        carry_out(steps_);
    }
    changed_ = true;
    published_ns_ = 0;
}

// --- moving KV ----------------------------------------------------------------------------------

bool KvStore::carry_out(const std::vector<kv::Step>& steps) {
    using Kind = kv::Step::Kind;
    bool restored = true;
    for (const kv::Step& step : steps) {
        switch (step.kind) {
            case Kind::kSave:
                if (!save(step)) log_warn(kOrigin, "KV could not be saved");
                break;
            case Kind::kClear:
                remove(step.slot, 0);
                break;
            case Kind::kTrim:
                if (restored) remove(step.slot, static_cast<std::int32_t>(step.length));
                break;
            case Kind::kCopy: {
                copy_pending_ = !options_.unified;
                // Where a range cannot be removed it cannot be copied either.
                const bool range = options_.unified && options_.partial_removal;
                llama_memory_seq_cp(memory_, step.from, step.slot, range ? 0 : -1,
                                    range ? static_cast<llama_pos>(step.length) : -1);
                if (on_change_)
                    on_change_({.tokens = {},
                                .copied_from = step.from,
                                .copied_to = step.slot,
                                .copied_length = static_cast<std::int32_t>(step.length)});
                break;
            }
            case Kind::kRestore:
                restored = restore(step);
                break;
            case Kind::kForget:
                blobs_.erase(step.blob);
                break;
        }
    }
    return restored;
}

bool KvStore::save(const kv::Step& step) {
    const MonoNs begin = mono_now();
    PageBuffer& blob = blobs_[step.blob];
    // A restore of nothing fails, and is computed anew.
    if (held(step.slot) != static_cast<std::int32_t>(step.length)) return false;
    blob = read_state(context_, step.slot);
    if (blob.empty()) return false;
    residency_.saved(step.blob, blob.size());
    const double took = static_cast<double>(mono_now() - begin);
    blend(costs_.save_per_token, took / std::max(step.length, 64U));
    residency_.set_costs(costs_);
    return true;
}

bool KvStore::restore(const kv::Step& step) {
    const auto blob = blobs_.find(step.blob);
    if (blob == blobs_.end()) return false;
    const MonoNs begin = mono_now();
    if (!write_state(context_, step.slot, blob->second)) return false;
    const double took = static_cast<double>(mono_now() - begin);
    blend(costs_.restore_per_token, took / std::max(step.length, 64U));
    residency_.set_costs(costs_);
    return true;
}

bool KvStore::remove(std::int32_t slot, std::int32_t from) {
    if (!llama_memory_seq_rm(memory_, slot, from > 0 ? from : -1, -1)) return false;
    if (on_change_) on_change_({.tokens = {}, .removed_sequence = slot, .removed_from = from});
    return true;
}

bool KvStore::copy_out(const Sequence& sequence, llama_context* to) {
    llama_memory_clear(llama_get_memory(to), true);
    if (sequence.computed == 0) return true;
    if (copy_pending_) return false;  // its data comes with the next decode
    PageBuffer state = read_state(context_, sequence.id);
    return write_state(to, 0, state);
}

// Only what this sequence lacks comes over: the beginning it shares stays shared.
bool KvStore::take_in(Sequence& sequence, llama_context* from, std::int32_t tokens) {
    const std::int32_t scratch_id = options_.slots;
    const bool whole = !options_.unified;
    if (!whole && sequence.computed > 0)
        llama_memory_seq_rm(llama_get_memory(from), 0, 0, sequence.computed);
    PageBuffer state = read_state(from, 0);
    llama_memory_clear(llama_get_memory(from), true);  // its pages with it
    const bool good = write_state(context_, whole ? sequence.id : scratch_id, state);
    if (!whole) {
        if (good) llama_memory_seq_cp(memory_, scratch_id, sequence.id, sequence.computed, tokens);
        llama_memory_seq_rm(memory_, scratch_id, -1, -1);
    }
    if (!good) return false;
    sequence.computed = tokens;
    computed(sequence);
    return true;
}

// --- upkeep -------------------------------------------------------------------------------------

void KvStore::set_prefill_cost(double ns_per_token) {
    costs_.prefill_per_token = ns_per_token;
    residency_.set_costs(costs_);
}

void KvStore::make_way() {
    steps_.clear();
    residency_.trim_idle(static_cast<std::uint64_t>(options_.idle_tokens), steps_);
    carry_out(steps_);
}

void KvStore::keep_free(std::int64_t tokens) {
    steps_.clear();
    residency_.keep_free(static_cast<std::uint64_t>(tokens), steps_);
    changed_ |= !steps_.empty();
    carry_out(steps_);
}

// What looks too dear to be done is never measured again: with each request that ends, costs go a
// little back to where they began.
void KvStore::doubt_costs() {
    const kv::Costs first = first_costs(options_);
    costs_.save_per_token += 0.02 * (first.save_per_token - costs_.save_per_token);
    costs_.restore_per_token += 0.02 * (first.restore_per_token - costs_.restore_per_token);
    residency_.set_costs(costs_);
}

bool KvStore::save_ahead() {
    if (!unsaved_) return false;
    steps_.clear();
    unsaved_ = residency_.save_ahead(steps_);
    changed_ |= unsaved_;
    carry_out(steps_);
    return unsaved_;
}

void KvStore::tidy(MonoNs now, bool now_or_never) {
    residency_.expire(now);
    if (!blobs_.empty() && now >= next_tidy()) shrink_host(now);
    if (!changed_ || (!now_or_never && now - published_ns_ < kPublishEvery)) return;
    changed_ = false;
    published_ns_ = now;
    publish();
}

MonoNs KvStore::next_tidy() const {
    return blobs_.empty() ? std::numeric_limits<MonoNs>::max() : shrunk_ns_ + kShrinkEvery;
}

void KvStore::shrink_host(MonoNs now) {
    shrunk_ns_ = now;
    const std::uint64_t held = residency_.counters().blob_bytes;
    const std::int64_t available = available_memory();
    std::uint64_t most = held;
    if (available > 0 && available < kSpareMemory)
        most -= std::min(held, static_cast<std::uint64_t>(kSpareMemory - available));
    steps_.clear();
    residency_.shrink_host(most, now - kHostUnused, steps_);
    changed_ |= !steps_.empty();
    carry_out(steps_);
}

void KvStore::give_back() {
    steps_.clear();
    const bool empty = residency_.put_away(steps_);
    changed_ |= !steps_.empty();
    carry_out(steps_);
    if (empty) llama_memory_clear(memory_, true);
}

void KvStore::publish() {
    std::vector<kv::Holding> held;
    residency_.list(held);
    auto list = std::make_shared<CacheList>();
    list->reserve(held.size());
    for (const kv::Holding& h : held) {
        const auto owner = owners_.find(h.ns.owner);
        list->push_back({.id = h.id,
                         .workspace = owner == owners_.end() ? std::string() : owner->second,
                         .tokens = h.tokens,
                         .hits = h.hits,
                         .pinned_until = h.pinned_until,
                         .running = h.running,
                         .in_host_memory = h.in_host_memory});
    }
    const std::lock_guard lock(mutex_);
    list_ = std::move(list);
}

std::shared_ptr<const CacheList> KvStore::cached_approx() const {
    const std::lock_guard lock(mutex_);
    return list_;
}

void KvStore::add_to(EngineStats& stats) const {
    const kv::ResidencyCounters c = residency_.counters();
    stats.block_needs = c.resident.block_needs;
    stats.block_hits = c.resident.block_hits;
    stats.evicted_blocks = c.resident.evicted_blocks;
    stats.pool_tokens = c.resident.used_tokens;
    stats.host_bytes = c.blob_bytes;
}

}  // namespace zerohop::engine
