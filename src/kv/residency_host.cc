// The host tier's size: it begins small, grows by what came back after it was gone, and gives back
// what nobody used for long or the machine needs.
#include <algorithm>

#include "kv/residency.h"

namespace zerohop::kv {
namespace {

constexpr std::uint64_t kBlobOverhead = 4096;  // header and per-cell metadata, roughly
constexpr std::size_t kMostGone = 256;         // dropped blobs whose tokens are remembered

}  // namespace

std::uint64_t Residency::bytes_of(std::uint32_t length) const {
    return kBlobOverhead + config_.bytes_per_sequence + length * config_.bytes_per_token;
}

void Residency::saved(BlobId id, std::uint64_t bytes) {
    const auto it = blobs_.find(id);
    if (it == blobs_.end()) return;
    blob_bytes_ += bytes - it->second.bytes;
    it->second.bytes = bytes;
}

// Before a blob goes for want of room: had it been kept, would somebody have used it?
void Residency::remember_gone(const Blob& blob) {
    if (host_limit_ >= config_.host_bytes) return;
    const std::vector<Token> tokens = stored_.tokens_of(blob.entry);
    const EntryId entry =
        gone_.open(blob.ns, tokens, static_cast<std::uint32_t>(tokens.size()), blob.bytes);
    gone_.close(entry);
    gone_order_.push_back({.entry = entry, .owner = blob.ns.owner});
    if (gone_order_.size() <= kMostGone) return;
    gone_.drop(gone_order_.front().entry);
    gone_order_.pop_front();
}

void Residency::forget_gone(std::uint64_t owner) {
    std::erase_if(gone_order_, [&](const Gone& g) {
        if (g.owner == owner) gone_.drop(g.entry);
        return g.owner == owner;
    });
}

void Residency::grow_host(const Ask& ask) {
    if (gone_order_.empty()) return;
    const Match match = gone_.lookup(ask.ns, ask.tokens);
    if (match.cached < known_prefix(ask.ns, ask.tokens) + config_.min_reuse) return;
    std::vector<EntryId> entries;
    gone_.holders(match, match.cached, 1, entries);
    for (const EntryId entry : entries) {
        host_limit_ = std::min(config_.host_bytes, host_limit_ + gone_.info(entry).tag);
        gone_.drop(entry);
        std::erase_if(gone_order_, [&](const Gone& g) { return g.entry == entry; });
    }
}

void Residency::shrink_host(std::uint64_t most, MonoNs unused_since, std::vector<Step>& steps) {
    const std::uint64_t before = blob_bytes_;
    for (auto it = blob_order_.end(); it != blob_order_.begin();) {
        const BlobId oldest = *--it;
        const Blob& blob = blobs_.at(oldest);
        if (blob_bytes_ <= most && blob.used >= unused_since) break;
        if (stored_.pinned(blob.entry)) continue;
        ++it;
        drop_blob(oldest, steps);
    }
    if (blob_bytes_ < before) host_limit_ = std::max(blob_bytes_, config_.host_first_bytes);
}

bool Residency::put_away(std::vector<Step>& steps) {
    bool empty = true;
    for (SlotId i = 0; i < static_cast<SlotId>(slots_.size()); ++i) {
        if (at(i).use == Use::kFree) continue;
        const bool idle = at(i).use == Use::kIdle && !at(i).copying && config_.host_bytes > 0;
        if (idle && spill_pays(i)) spill(i, steps);
        if (idle && !spill_pays(i))
            vacate(i, steps);
        else
            empty = false;
    }
    return empty;
}

}  // namespace zerohop::kv
