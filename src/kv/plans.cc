#include "kv/plans.h"

#include <algorithm>
#include <cmath>

namespace zerohop::kv {
namespace {

constexpr double kQuantile = 0.9;
constexpr double kRate = 1.0 / 16;  // weight of a new output once there are enough

std::size_t cell_of(std::uint32_t tokens) {
    if (tokens == 0) return 0;
    return std::min<std::size_t>(static_cast<std::size_t>(2 * std::log2(tokens)) + 1, 41);
}
// Largest count of a cell.
std::uint32_t top_of(std::size_t cell) {
    if (cell == 0) return 0;
    return static_cast<std::uint32_t>(std::ceil(std::exp2(static_cast<double>(cell) / 2))) - 1;
}

}  // namespace

void Plans::update(Record& record, std::uint32_t tokens) {
    ++record.samples;
    const double rate = std::max(kRate, 1.0 / record.samples);
    record.mean += (tokens - record.mean) * rate;
    for (float& c : record.cells) c *= static_cast<float>(1 - rate);
    record.cells[cell_of(tokens)] += static_cast<float>(rate);
}

Expectation Plans::read(const Record& record, std::uint32_t cap) {
    double below = 0;
    std::size_t cell = 0;
    while (cell + 1 < kCells &&
           (below += static_cast<double>(record.cells[cell])) < kQuantile - 1e-4)
        ++cell;
    Expectation e{.mean_tokens = record.mean,
                  .reserve_tokens = std::max(1U, top_of(cell)),
                  .samples = record.samples};
    if (cap == 0) return e;
    e.mean_tokens = std::min(e.mean_tokens, static_cast<double>(cap));
    e.reserve_tokens = std::min(e.reserve_tokens, cap);
    return e;
}

Expectation Plans::expect(std::span<const PlanKey> chain, std::uint32_t cap) {
    for (const PlanKey& key : chain) {
        const auto it = entries_.find(key);
        if (it == entries_.end() || it->second->samples < config_.enough) continue;
        order_.splice(order_.begin(), order_, it->second);
        return read(*it->second, cap);
    }
    const auto all = chain.empty() ? entries_.end() : entries_.find(any(chain.front().ns));
    if (all != entries_.end() && all->second->samples >= 8 * config_.enough) {
        order_.splice(order_.begin(), order_, all->second);
        return read(*all->second, cap);
    }
    const std::uint32_t guess =
        cap == 0 ? config_.default_output : std::min(config_.default_output, cap);
    return {.mean_tokens = static_cast<double>(guess), .reserve_tokens = guess, .samples = 0};
}

void Plans::learn_key(const PlanKey& key, std::uint32_t output_tokens) {
    auto it = entries_.find(key);
    if (it == entries_.end()) {
        order_.emplace_front().key = key;
        it = entries_.emplace(key, order_.begin()).first;
    } else {
        order_.splice(order_.begin(), order_, it->second);
    }
    update(*it->second, output_tokens);
}

void Plans::forget(std::uint64_t owner) {
    std::erase_if(order_, [&](const Record& record) {
        return record.key.ns.owner == owner && entries_.erase(record.key) > 0;
    });
}

void Plans::learn(std::span<const PlanKey> chain, std::uint32_t output_tokens) {
    if (chain.empty()) return;
    for (std::size_t i = 0; i < chain.size(); ++i) {
        const PlanKey& key = chain[i];
        if ((key.lo | key.hi) == 0 || std::ranges::count(chain.first(i), key) > 0) continue;
        learn_key(key, output_tokens);
    }
    learn_key(any(chain.front().ns), output_tokens);
    while (entries_.size() > config_.max_entries) {
        entries_.erase(order_.back().key);
        order_.pop_back();
    }
}

}  // namespace zerohop::kv
