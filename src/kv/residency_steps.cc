// Carrying out: book-keeping changes and the Steps that make the llama context follow.
#include <algorithm>
#include <random>
#include <utility>

#include "base/check.h"
#include "kv/residency.h"

namespace zerohop::kv {
namespace {

std::uint64_t random_id() {
    static thread_local std::random_device source;
    return (std::uint64_t{source()} << 32) | source() | 1;
}

}  // namespace

std::uint64_t Residency::promised(bool of_idle) const {
    std::uint64_t tokens = 0;
    for (const Slot& s : slots_) {
        if (s.use == Use::kRunning || of_idle) tokens += s.extra;
        if (s.use != Use::kRunning) continue;
        const std::uint32_t length = resident_.info(s.entry).length;
        tokens += s.reserve > length ? s.reserve - length : 0;
    }
    return tokens;
}

void Residency::release(SlotId slot) {
    Slot& s = at(slot);
    const bool copying = s.copying;
    s = Slot{};
    s.copying = copying;
}

void Residency::drop_blob(BlobId id, std::vector<Step>& steps) {
    const auto it = blobs_.find(id);
    if (it == blobs_.end()) return;
    stored_.drop(it->second.entry);
    blob_bytes_ -= it->second.bytes;
    blob_order_.erase(it->second.order);
    blobs_.erase(it);
    ++count_.blobs_dropped;
    steps.push_back({.kind = Step::Kind::kForget, .blob = id});
}

// Is this slot's content worth its bytes and the time to save it?
bool Residency::spill_pays(SlotId slot) {
    const Slot& s = at(slot);
    if (config_.host_bytes == 0 || s.use != Use::kIdle || s.copying) return false;
    const EntryInfo info = resident_.info(s.entry);
    if (bytes_of(info.length) > config_.host_bytes) return false;
    const std::vector<Token> tokens = resident_.tokens_of(s.entry);
    count_.tokens_weighed += tokens.size();
    const std::uint32_t stored = stored_.lookup(s.ns, tokens).cached;
    const std::uint32_t lost = std::min(resident_.unique_tail(s.entry), info.length - stored);
    if (lost < config_.min_reuse) return false;
    if (resident_.pinned(s.entry)) return true;
    const Costs& c = config_.costs;
    const double again = lost * (c.prefill_per_token - c.restore_per_token) - c.restore_fixed;
    return again * config_.return_chance > c.save_fixed + info.length * c.save_per_token;
}

void Residency::spill(SlotId slot, std::vector<Step>& steps) {
    const Slot& s = at(slot);
    const std::vector<Token> tokens = resident_.tokens_of(s.entry);
    count_.tokens_weighed += tokens.size();
    const auto length = static_cast<std::uint32_t>(tokens.size());
    const std::uint64_t bytes = bytes_of(length);
    for (auto it = blob_order_.end(); blob_bytes_ + bytes > host_limit_;) {
        if (it == blob_order_.begin()) {                           // only pinned ones are left
            if (blob_bytes_ + bytes > config_.host_bytes) return;  // not saved
            host_limit_ = blob_bytes_ + bytes;
            break;
        }
        const BlobId oldest = *--it;
        if (stored_.pinned(blobs_.at(oldest).entry)) continue;
        ++it;
        remember_gone(blobs_.at(oldest));
        drop_blob(oldest, steps);
    }
    std::vector<EntryId> covered;  // blobs that are prefixes of the new one
    if (config_.partial_removal) stored_.prefixes(stored_.lookup(s.ns, tokens), covered);
    const BlobId id = next_blob_++;
    Blob blob{.entry = stored_.open(s.ns, tokens, length, id),
              .id = random_id(),
              .ns = s.ns,
              .bytes = bytes,
              .hits = s.hits,
              .used = now_,
              .order = {}};
    stored_.close(blob.entry);
    const PrefixTree::PinInfo pin = resident_.pin_of(s.entry);
    if (pin.length > 0) (void)stored_.pin(blob.entry, pin.length, pin.until);
    blob.order = blob_order_.insert(blob_order_.begin(), id);
    blobs_.emplace(id, blob);
    blob_bytes_ += bytes;
    ++count_.saves;
    steps.push_back({.kind = Step::Kind::kSave, .slot = slot, .length = length, .blob = id});
    for (const EntryId old : covered) drop_blob(stored_.info(old).tag, steps);
}

// Empties an idle slot for another use.
void Residency::vacate(SlotId slot, std::vector<Step>& steps) {
    Slot& s = at(slot);
    ZH_CHECK(s.use != Use::kRunning);
    if (s.use == Use::kFree) return;
    if (spill_pays(slot)) spill(slot, steps);
    resident_.drop(s.entry);
    ++count_.slots_overwritten;
    steps.push_back({.kind = Step::Kind::kClear, .slot = slot});
    release(slot);
}

// Takes that many of the coldest entry's last tokens, or all of it where the model keeps a sequence
// whole.
void Residency::evict(SlotId slot, std::uint64_t tokens, std::vector<Step>& steps) {
    if (!config_.partial_removal) return vacate(slot, steps);
    if (!std::exchange(at(slot).weighed, true) && spill_pays(slot)) spill(slot, steps);
    std::vector<Trim> trims;
    resident_.evict(tokens, trims);
    for (const Trim& t : trims) {
        const auto owner = static_cast<SlotId>(t.tag);
        if (!steps.empty() && steps.back().kind == Step::Kind::kTrim && steps.back().slot == owner)
            steps.pop_back();  // one cut to the final length
        at(owner).extra = std::min(at(owner).extra, t.length);
        if (t.length == 0) release(owner);
        steps.push_back({.kind = t.length == 0 ? Step::Kind::kClear : Step::Kind::kTrim,
                         .slot = owner,
                         .length = t.length});
    }
}

// The last resort: no pin keeps a request out. One idle slot goes (saved before, where that is
// possible), the one whose pin ends first; none while even all of them would not be enough.
bool Residency::yield_pinned(std::vector<Step>& steps) {
    if (resident_.running_tokens() + promised(false) > config_.pool_tokens) return false;
    SlotId first = -1;
    MonoNs ends = 0;
    for (SlotId i = 0; i < static_cast<SlotId>(slots_.size()); ++i) {
        if (at(i).use != Use::kIdle) continue;
        const MonoNs until = resident_.pin_of(at(i).entry).until;
        if (first >= 0 && until >= ends) continue;
        first = i;
        ends = until;
    }
    if (first < 0) return false;
    vacate(first, steps);
    return true;
}

// Unified pools: evicts until the tree, the growth promised and the duplicates fit.
bool Residency::make_room(std::vector<Step>& steps) {
    if (!config_.unified) return true;
    while (true) {
        const std::uint64_t wanted = resident_.counters().used_tokens + promised(true);
        if (wanted <= config_.pool_tokens) return true;
        if (const EntryId cold = resident_.coldest(); cold != 0)
            evict(static_cast<SlotId>(resident_.info(cold).tag), wanted - config_.pool_tokens,
                  steps);
        else if (!yield_pinned(steps))
            return false;
    }
}

// The entry of the new sequence takes its slot; a taken-over one gives up its tail.
void Residency::occupy(const Ask& ask, const Option& option) {
    const auto size = static_cast<std::uint32_t>(ask.tokens.size());
    Slot& slot = at(option.target);
    const EntryId old = slot.entry;
    const std::uint32_t inherited = option.source < 0 ? 0 : at(option.source).extra;
    if (option.source >= 0) ++at(option.source).hits;
    const std::uint64_t hits = option.how == Grant::How::kTakeOver ? slot.hits : 0;
    slot.entry = resident_.open(ask.ns, ask.tokens, option.cached,
                                static_cast<std::uint64_t>(option.target));
    if (option.how == Grant::How::kTakeOver) resident_.drop(old);
    slot.use = Use::kRunning;
    slot.id = random_id();
    slot.ns = ask.ns;
    slot.reserve = std::min(config_.slot_tokens, size + ask.reserve);
    slot.restored = option.how == Grant::How::kRestore ? option.blob : 0;
    slot.extra = 0;
    slot.hits = hits;
    slot.forget = slot.weighed = false;
    if (!config_.unified) return;
    // Cells it will have to itself, against the tokens the tree counts for it alone.
    const std::uint32_t shared = option.source < 0 ? 0 : option.cached;
    const std::uint32_t sole = resident_.sole_tail(slot.entry);
    slot.extra =
        std::min(inherited, option.cached) + (size - shared > sole ? size - shared - sole : 0);
}

// No room after all. What was evicted stays evicted, a taken slot keeps its beginning.
void Residency::give_up(const Option& option, std::vector<Step>& steps) {
    Slot& slot = at(option.target);
    if (option.how == Grant::How::kTakeOver) {
        resident_.close(slot.entry);
        slot.use = Use::kIdle;
        slot.reserve = 0;
        return;
    }
    resident_.drop(slot.entry);
    release(option.target);
    if (option.how == Grant::How::kCopy)
        steps.push_back({.kind = Step::Kind::kClear, .slot = option.target});
}

// A blob comes back whole before it is cut, so there must be cells for all of it.
bool Residency::restore(const Option& option, std::vector<Step>& steps) {
    Slot& slot = at(option.target);
    const std::uint32_t length = stored_.info(blobs_.at(option.blob).entry).length;
    const std::uint32_t passing = length > slot.reserve ? length - slot.reserve : 0;
    slot.extra += passing;
    const bool fits = make_room(steps);
    slot.extra -= passing;
    const auto blob = blobs_.find(option.blob);
    if (!fits || blob == blobs_.end()) return false;  // or spilling pushed it out
    blob_order_.splice(blob_order_.begin(), blob_order_, blob->second.order);
    ++blob->second.hits;
    blob->second.used = now_;
    steps.push_back({.kind = Step::Kind::kRestore,
                     .slot = option.target,
                     .length = length,
                     .blob = option.blob});
    if (length > option.cached)
        steps.push_back(
            {.kind = Step::Kind::kTrim, .slot = option.target, .length = option.cached});
    return true;
}

bool Residency::carry_out(const Ask& ask, const Option& option, Grant& grant) {
    using How = Grant::How;
    std::vector<Step>& steps = grant.steps;
    Slot& slot = at(option.target);
    std::uint32_t arrives = option.cached;  // tokens in the slot before it is cut
    if (option.how == How::kTakeOver) {
        arrives = resident_.info(slot.entry).length;
        if (arrives > option.cached && spill_pays(option.target)) spill(option.target, steps);
    } else {
        vacate(option.target, steps);
    }
    // Before making room: the source may lose its tail, or itself, to that.
    if (option.how == How::kCopy) {
        steps.push_back({.kind = Step::Kind::kCopy,
                         .slot = option.target,
                         .from = option.source,
                         .length = option.cached});
        if (!config_.unified) {
            arrives = resident_.info(at(option.source).entry).computed;
            slot.copying = at(option.source).copying = true;
        }
    }
    occupy(ask, option);
    if (option.how != How::kRestore && arrives > option.cached)
        steps.push_back(
            {.kind = Step::Kind::kTrim, .slot = option.target, .length = option.cached});
    if (option.how == How::kRestore && !blobs_.contains(option.blob)) {
        give_up(option, steps);  // vacating the slot pushed the blob out
        return false;
    }
    if (!(option.how == How::kRestore ? restore(option, steps) : make_room(steps))) {
        give_up(option, steps);
        return false;
    }
    std::uint64_t* const counts[] = {&count_.take_overs, &count_.copies, &count_.restores,
                                     &count_.computes};
    ++*counts[static_cast<std::size_t>(option.how)];
    grant.outcome = Grant::Outcome::kGo;
    grant.how = option.how;
    grant.slot = option.target;
    grant.cached = option.cached;
    return true;
}

void Residency::computed(SlotId slot, std::uint32_t n) {
    const Slot& s = at(slot);
    ZH_CHECK(s.use == Use::kRunning);
    resident_.advance(s.entry, n);
}

void Residency::sampled(SlotId slot, Token token) {
    Slot& s = at(slot);
    ZH_CHECK(s.use == Use::kRunning);
    const std::uint64_t before = resident_.counters().used_tokens;
    resident_.append(s.entry, std::span(&token, 1));
    // Another slot has said the same: the tree counts it once, the cells are two.
    if (config_.unified && resident_.counters().used_tokens == before) ++s.extra;
}

bool Residency::cover(SlotId slot, std::uint32_t tokens, std::vector<Step>& steps) {
    Slot& s = at(slot);
    ZH_CHECK(s.use == Use::kRunning);
    if (tokens > config_.slot_tokens) return false;
    if (tokens <= s.reserve) return true;
    const std::uint32_t before = s.reserve;
    s.reserve = tokens;
    if (make_room(steps)) return true;
    s.reserve = before;
    return false;
}

void Residency::finish(SlotId slot, bool keep, std::vector<Step>& steps) {
    Slot& s = at(slot);
    ZH_CHECK(s.use == Use::kRunning);
    if (keep && !s.forget && resident_.close(s.entry) > 0) {
        s.use = Use::kIdle;
        s.reserve = 0;
        s.restored = 0;
        return;
    }
    resident_.drop(s.entry);
    release(slot);
    steps.push_back({.kind = Step::Kind::kClear, .slot = slot});
}

void Residency::abandon(SlotId slot, std::vector<Step>& steps) {
    distrust(slot, steps);
    finish(slot, false, steps);
}

void Residency::distrust(SlotId slot, std::vector<Step>& steps) {
    if (const BlobId blob = std::exchange(at(slot).restored, 0); blob != 0) drop_blob(blob, steps);
}

void Residency::on_decode() {
    if (config_.unified) return;
    for (Slot& s : slots_) s.copying = false;
}

Result<PinId> Residency::pin(SlotId slot, std::uint32_t length, MonoNs until) {
    const Slot& s = at(slot);
    if (s.use == Use::kFree) return fail(Code::kInternal, "kv", "the slot is empty");
    return resident_.pin(s.entry, length, until);
}

void Residency::expire(MonoNs now) {
    now_ = now;
    resident_.expire(now);
    stored_.expire(now);
}

std::uint64_t Residency::idle_tokens() const {
    std::uint64_t tokens = 0;
    for (const Slot& s : slots_)
        if (s.use == Use::kIdle) tokens += resident_.unique_tail(s.entry);
    return tokens;
}

bool Residency::save_ahead(std::vector<Step>& steps) {
    for (SlotId i = 0; i < static_cast<SlotId>(slots_.size()); ++i) {
        const Slot& s = at(i);
        // Where there is room: two that pushed each other out would be saved by turns for ever.
        if (s.use != Use::kIdle ||
            blob_bytes_ + bytes_of(resident_.info(s.entry).length) > host_limit_ || !spill_pays(i))
            continue;
        spill(i, steps);
        return true;
    }
    return false;
}

void Residency::trim_idle(std::uint64_t most, std::vector<Step>& steps) {
    if (!config_.unified || config_.host_bytes == 0) return;
    while (idle_tokens() > most) {
        SlotId coldest = -1;
        for (SlotId i = 0; i < static_cast<SlotId>(slots_.size()); ++i) {
            const Slot& s = at(i);
            if (s.use != Use::kIdle || resident_.unique_tail(s.entry) == 0) continue;
            if (coldest < 0 || resident_.heat(s.entry) < resident_.heat(at(coldest).entry))
                coldest = i;
        }
        if (coldest < 0) return;
        vacate(coldest, steps);
    }
}

void Residency::keep_free(std::uint64_t tokens, std::vector<Step>& steps) {
    const std::uint64_t used = resident_.counters().used_tokens + promised(true);
    const std::uint64_t free = config_.pool_tokens > used ? config_.pool_tokens - used : 0;
    if (free >= tokens) return;
    const std::uint64_t idle = idle_tokens();
    trim_idle(idle - std::min(idle, tokens - free), steps);
}

void Residency::forget(std::uint64_t owner, std::uint64_t id, std::vector<Step>& steps) {
    for (SlotId i = 0; i < static_cast<SlotId>(slots_.size()); ++i) {
        Slot& s = at(i);
        if (s.use == Use::kFree || s.ns.owner != owner || (id != 0 && s.id != id)) continue;
        if (s.use == Use::kRunning) {
            s.forget = true;
            continue;
        }
        resident_.drop(s.entry);
        release(i);
        steps.push_back({.kind = Step::Kind::kClear, .slot = i});
    }
    std::vector<BlobId> blobs;
    for (const auto& [blob, b] : blobs_)
        if (b.ns.owner == owner && (id == 0 || b.id == id)) blobs.push_back(blob);
    for (const BlobId blob : blobs) drop_blob(blob, steps);
    forget_gone(owner);
}

void Residency::list(std::vector<Holding>& out) const {
    for (const Slot& s : slots_) {
        if (s.use == Use::kFree) continue;
        const EntryInfo info = resident_.info(s.entry);
        out.push_back({.id = s.id,
                       .ns = s.ns,
                       .tokens = info.computed,
                       .hits = s.hits,
                       .pinned_until = resident_.pin_of(s.entry).until,
                       .running = info.running,
                       .in_host_memory = false});
    }
    for (const auto& [id, b] : blobs_)
        out.push_back({.id = b.id,
                       .ns = b.ns,
                       .tokens = stored_.info(b.entry).length,
                       .hits = b.hits,
                       .pinned_until = stored_.pin_of(b.entry).until,
                       .running = false,
                       .in_host_memory = true});
}

void Residency::check() const {
    resident_.check();
    stored_.check();
    std::uint32_t used = 0;
    for (std::size_t i = 0; i < slots_.size(); ++i) {
        const Slot& s = slots_[i];
        if (s.use == Use::kFree) {
            ZH_CHECK(s.entry == 0 && s.extra == 0);
            continue;
        }
        ++used;
        const EntryInfo info = resident_.info(s.entry);
        ZH_CHECK(info.length > 0 && info.tag == i && info.running == (s.use == Use::kRunning));
    }
    ZH_CHECK(used == resident_.counters().entries && blobs_.size() == stored_.counters().entries);
    ZH_CHECK(blob_order_.size() == blobs_.size() &&
             blob_bytes_ <= std::max<std::uint64_t>(config_.host_bytes, 0));
    std::uint64_t bytes = 0;
    for (const auto& [id, b] : blobs_) bytes += b.bytes;
    ZH_CHECK(bytes == blob_bytes_);
}

}  // namespace zerohop::kv
