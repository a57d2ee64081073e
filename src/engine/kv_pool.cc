#include "engine/kv_pool.h"

#include <algorithm>

#include "base/check.h"

namespace zerohop::engine {

KvPool::KvPool(std::int32_t sequences, std::int64_t total, std::int64_t per_sequence, bool unified)
    : total_(total), per_sequence_(per_sequence), unified_(unified) {
    for (std::int32_t id = sequences; id-- > 0;) free_.push_back(id);
    held_.assign(static_cast<std::size_t>(sequences), -1);
}

std::optional<KvGrant> KvPool::admit(std::span<const std::int32_t> /*tokens*/,
                                     std::int64_t reserve) {
    reserve = std::min(reserve, per_sequence_);
    if (free_.empty() || (unified_ && reserved_ + reserve > total_)) return std::nullopt;
    const std::int32_t id = free_.back();
    free_.pop_back();
    held_[static_cast<std::size_t>(id)] = reserve;
    reserved_ += reserve;
    return KvGrant{.sequence = id, .cached = 0};
}

bool KvPool::cover(std::int32_t sequence, std::int64_t tokens) {
    std::int64_t& held = held_[static_cast<std::size_t>(sequence)];
    ZH_CHECK(held >= 0);
    if (tokens <= held) return true;
    if (tokens > per_sequence_) return false;
    std::int64_t want = std::min(tokens + kStride, per_sequence_);
    if (unified_) {
        const std::int64_t room = total_ - reserved_;
        if (held + room < tokens) return false;
        want = std::min(want, held + room);
    }
    reserved_ += want - held;
    held = want;
    return true;
}

void KvPool::release(std::int32_t sequence) {
    std::int64_t& held = held_[static_cast<std::size_t>(sequence)];
    ZH_CHECK(held >= 0);
    reserved_ -= held;
    held = -1;
    free_.push_back(sequence);
}

}  // namespace zerohop::engine
