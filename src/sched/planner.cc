#include "sched/planner.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

namespace zerohop::sched {
namespace {

constexpr double kWeight = 0.2;  // of the newest measurement

void blend(double& average, double sample, bool first) {
    average = first ? sample : average + kWeight * (sample - average);
}

}  // namespace

int Planner::bucket(std::int32_t sequences) {
    const auto n = static_cast<std::uint32_t>(std::max(sequences, 1));
    return std::min(static_cast<int>(std::bit_width(n - 1)), kBuckets - 1);
}

double Planner::decode_step_ns(std::int32_t sequences) const {
    if (sequences <= 0) return 0;
    const int want = bucket(sequences);
    for (int distance = 0; distance < kBuckets; ++distance) {
        // A batch twice as wide costs up to twice as much; half as wide, at least half.
        if (const int below = want - distance; below >= 0 && decode_ns_[below] > 0)
            return decode_ns_[below] * static_cast<double>(1 << distance);
        if (const int above = want + distance; above < kBuckets && decode_ns_[above] > 0)
            return decode_ns_[above];
    }
    return kFirstTokenNs * 4;  // nothing measured: a step costs a few tokens' prefill
}

int Planner::size_class(std::int32_t tokens) {
    const auto n = static_cast<std::uint32_t>(std::max(tokens, 1));
    return std::clamp(static_cast<int>(std::bit_width(n - 1)) - 4, 0, kSizes - 1);
}

double Planner::chunk_ns(std::int32_t tokens) const {
    const int want = size_class(tokens);
    for (int distance = 0; distance < kSizes; ++distance) {
        // Nearest measured size; the smaller one first: larger chunks cost no more per token.
        for (const int at : {want - distance, want + distance})
            if (at >= 0 && at < kSizes && token_ns_[at] > 0) return token_ns_[at] * tokens;
    }
    return kFirstTokenNs * tokens;
}

std::int32_t Planner::prefill_budget(std::int32_t decoding) const {
    const std::int64_t limit = decoding > 0 ? limits_.step_ns : limits_.idle_step_ns;
    const std::int32_t room = limits_.batch_tokens - decoding;
    if (limit <= 0) return room;
    const double left = static_cast<double>(limit) - decode_step_ns(decoding);
    const double stretched = left + 0.25 * static_cast<double>(limit);
    // Of each size class the largest chunk that fits: the best that fits the limit, and the most
    // efficient that fits the stretched one.
    std::int32_t fits = kLeastPrefill, efficient = kLeastPrefill;
    for (int size = 0; size < kSizes; ++size) {
        const std::int32_t most = kGrain << size;
        const std::int32_t least = size == 0 ? kGrain : (most >> 1) + 1;
        const double per_token = chunk_ns(most) / most;
        const auto within = [&](double ns) {
            const double tokens = std::min(ns / per_token, static_cast<double>(most));
            return static_cast<std::int32_t>(std::max(tokens, 0.0)) / kGrain * kGrain;
        };
        if (within(left) >= least) fits = std::max(fits, within(left));
        const double best = chunk_ns(efficient) / efficient;
        if (within(stretched) >= least && per_token < best) efficient = within(stretched);
    }
    const double cost_fits = chunk_ns(fits) / fits, cost_best = chunk_ns(efficient) / efficient;
    const std::int32_t chosen = cost_fits > 1.5 * cost_best ? efficient : fits;
    return std::min(room, chosen);
}

void Planner::plan(std::span<const Runnable> runnable, MonoNs now, std::vector<Share>& out) {
    out.clear();
    const auto count = static_cast<std::uint32_t>(runnable.size());
    std::int32_t decoding = 0;
    for (std::uint32_t k = 0; k < count && decoding < limits_.batch_tokens; ++k) {
        const std::uint32_t i = (turn_ + k) % count;
        if (!runnable[i].decoding) continue;
        out.push_back({i, 1});
        ++decoding;
    }
    if (decoding == limits_.batch_tokens) {
        turn_ = (out.back().index + 1) % count;
    } else {
        turn_ = 0;
    }

    order_.clear();
    for (std::uint32_t i = 0; i < count; ++i)
        if (!runnable[i].decoding) order_.push_back(i);
    if (order_.empty()) return;
    const auto rank = [&](std::uint32_t i) {
        return runnable[i].pending - (now - runnable[i].since) / kNsPerMs;
    };
    std::sort(order_.begin(), order_.end(), [&](std::uint32_t a, std::uint32_t b) {
        return std::pair(rank(a), a) < std::pair(rank(b), b);
    });
    std::int32_t budget = prefill_budget(decoding);
    for (const std::uint32_t i : order_) {
        if (budget <= 0) break;
        const std::int32_t tokens = std::min(runnable[i].pending, budget);
        out.push_back({i, tokens});
        budget -= tokens;
    }
}

void Planner::observe(std::int32_t decoding, std::int32_t prefill_tokens, std::int64_t took_ns) {
    const auto took = static_cast<double>(took_ns);
    if (prefill_tokens == 0) {
        if (decoding <= 0) return;
        double& average = decode_ns_[bucket(decoding)];
        blend(average, took, average == 0);
    } else {
        // What the decoding part would have cost alone is not the prefill's; but never count a
        // prefill token as (nearly) free because that estimate was too high.
        const double decode = decoding > 0 ? decode_step_ns(decoding) : 0;
        observe_chunk(prefill_tokens, std::max(took - decode, took / 4));
    }
}

void Planner::observe_chunk(std::int32_t tokens, double took_ns) {
    double& average = token_ns_[size_class(tokens)];
    const bool first = average == 0;
    const double before = average;
    // A few tokens say nothing about their size class: its fixed part would count in full.
    if (tokens < kLeastPrefill / 2) return;
    blend(average, took_ns / tokens, first);
    if (first) return;
    // The other sizes most likely became slower or faster too; they are not all tried again.
    const double factor = std::sqrt(average / before);
    for (double& other : token_ns_)
        if (&other != &average) other *= factor;
}

}  // namespace zerohop::sched
