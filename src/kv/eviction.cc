#include "kv/eviction.h"

#include <algorithm>

namespace zerohop::kv {
namespace {

// Measured on the mooncake-synthetic replay: half a pool of ghosts and half a pool of head start
// for reused leaves were never worse than plain LRU at pools of 10, 25 and 50 % (see
// bench/mooncake.cc).
constexpr double kGhostShare = 0.5;
constexpr double kReusedHeadStart = 0.5;
constexpr double kMaxRatio = 8.0;  // one ghost hit moves another class at most this far, in blocks

}  // namespace

Eviction::Eviction(std::uint64_t capacity_blocks, bool adaptive)
    : limit_(static_cast<double>(capacity_blocks)),
      max_ghosts_(static_cast<std::size_t>(limit_ * kGhostShare)),
      adaptive_(adaptive) {
    if (adaptive_) bonus_[index(LeafClass::kReused)] = limit_ * kReusedHeadStart;
}

void Eviction::insert(NodeId node, LeafClass cls, std::uint64_t stamp) {
    lists_[index(cls)].emplace(stamp, node);
}

void Eviction::erase(NodeId node, LeafClass cls, std::uint64_t stamp) {
    lists_[index(cls)].erase({stamp, node});
}

std::optional<NodeId> Eviction::victim() const {
    std::optional<NodeId> best;
    double lowest = 0;
    for (std::size_t c = 0; c < kLeafClasses; ++c) {
        if (lists_[c].empty()) continue;
        const auto& [stamp, node] = *lists_[c].begin();
        const double rank = static_cast<double>(stamp) + bonus_[c];
        if (!best || rank < lowest) {
            best = node;
            lowest = rank;
        }
    }
    return best;
}

bool Eviction::empty() const {
    return std::ranges::all_of(lists_, [](const List& l) { return l.empty(); });
}

void Eviction::evicted(std::uint64_t mark, LeafClass cls) {
    if (!adaptive_ || max_ghosts_ == 0) return;
    const std::uint64_t serial = ++serial_;
    auto [it, fresh] =
        ghosts_.try_emplace(mark, Ghost{static_cast<std::uint8_t>(index(cls)), serial});
    if (!fresh) {
        --ghost_count_[it->second.cls];
        it->second = {static_cast<std::uint8_t>(index(cls)), serial};
    }
    ++ghost_count_[index(cls)];
    order_.emplace_back(mark, serial);
    while (order_.size() > max_ghosts_) {
        const auto [old_mark, old_serial] = order_.front();
        order_.pop_front();
        const auto found = ghosts_.find(old_mark);
        if (found == ghosts_.end() || found->second.serial != old_serial) continue;
        --ghost_count_[found->second.cls];
        ghosts_.erase(found);
    }
}

bool Eviction::missed(std::uint64_t mark) {
    const auto it = ghosts_.find(mark);
    if (it == ghosts_.end()) return false;
    const std::size_t cls = it->second.cls;
    ghosts_.erase(it);  // its place in order_ lapses: the serial no longer matches
    --ghost_count_[cls];
    learn(cls);
    return true;
}

void Eviction::learn(std::size_t cls) {
    const auto count = [&](std::size_t c) {
        return static_cast<double>(std::max<std::uint64_t>(ghost_count_[c], 1));
    };
    for (std::size_t c = 0; c < kLeafClasses; ++c) {
        if (c == cls) continue;
        bonus_[c] -= std::clamp(count(c) / count(cls), 1.0, kMaxRatio) / (kLeafClasses - 1);
    }
    bonus_[cls] += 1;
    const double zero = bonus_[index(LeafClass::kOnce)];
    for (double& b : bonus_) b = std::clamp(b - zero, -limit_, limit_);
}

std::int64_t Eviction::bonus(LeafClass cls) const {
    return static_cast<std::int64_t>(bonus_[index(cls)]);
}

}  // namespace zerohop::kv
