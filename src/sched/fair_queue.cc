// Invariants: a workspace is in ring_[b] exactly when entries[b] is not empty, and in workspaces_
// exactly when it has any entry; tokens_ and count_ are the sums over all entries.
#include "sched/fair_queue.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace zerohop::sched {
namespace {

int band_of(Priority p) { return p == Priority::kHigh ? 1 : 0; }

MonoNs counted_arrival(const FairItem& item) {
    return item.arrived_ns + (item.priority == Priority::kLow ? FairQueue::kLowDelay : 0);
}

MonoNs order_of(const FairItem& item) {
    return counted_arrival(item) +
           std::clamp<MonoNs>(item.expected_work_ns, 0, FairQueue::kMaxOvertake);
}

}  // namespace

std::int64_t FairQueue::retry_after_ms() const {
    const double ms = ns_per_pop_ * static_cast<double>(size()) / 1e6;
    return std::clamp<std::int64_t>(static_cast<std::int64_t>(ms), 1000, 60'000);
}

Status FairQueue::check_bounds(const FairItem& item) const {
    const auto it = workspaces_.find(item.workspace);
    const std::size_t held = it == workspaces_.end() ? 0 : it->second->requests();
    const std::int64_t held_tokens = it == workspaces_.end() ? 0 : it->second->tokens;
    const std::size_t active = workspaces_.size() + (held == 0 ? 1 : 0);
    const std::size_t max = bounds_.max_requests;

    const bool full = size() >= max || (size() > 0 && tokens_ + item.tokens > bounds_.max_tokens);
    const bool crowded = size() >= max - max / 4 || tokens_ >= bounds_.max_tokens / 4 * 3;
    const bool above_share =
        held > 0 &&
        (held >= max / active ||
         held_tokens + item.tokens > bounds_.max_tokens / static_cast<std::int64_t>(active));
    const bool greedy = held > 0 && (held + 1 > max - max / 8 ||
                                     held_tokens + item.tokens > bounds_.max_tokens / 8 * 7);
    if (!full && !greedy && !(crowded && above_share)) return {};

    Error error{.code = Code::kOverloaded, .detail = {}, .origin = "admit"};
    error.retry_after_ms = retry_after_ms();
    const auto seconds = (*error.retry_after_ms + 999) / 1000;
    const std::string queue = bounds_.model.empty()
                                  ? "the queue"
                                  : fmt::format("the queue of model \"{}\"", bounds_.model);
    error.detail =
        full ? fmt::format(
                   "overloaded: {} is full: {} requests with {} tokens are waiting (limits {} and "
                   "{}); try again in {} s",
                   queue, size(), tokens_, max, bounds_.max_tokens, seconds)
             : fmt::format(
                   "overloaded: {} requests of workspace \"{}\" are waiting, which is its "
                   "share of {}; try again in {} s",
                   held, item.workspace, queue, seconds);
    return std::unexpected(std::move(error));
}

void FairQueue::insert(FairItem item) {
    std::unique_ptr<Workspace>& slot = workspaces_[item.workspace];
    if (!slot) {
        slot = std::make_unique<Workspace>();
        slot->name = item.workspace;
    }
    const int band = band_of(item.priority);
    if (slot->entries[band].empty()) enter(*slot, band);
    slot->tokens += item.tokens;
    tokens_ += item.tokens;
    ++count_[band];
    if (band == 1) high_first_token_ns_ += item.first_token_ns;
    const std::uint64_t handle = item.handle;
    const MonoNs order = order_of(item);
    const auto [entry, fresh] = slot->entries[band].insert(
        Entry{.order = order, .sequence = next_sequence_++, .item = std::move(item)});
    ZH_CHECK(fresh);
    const bool unique =
        by_handle_.emplace(handle, Place{.workspace = slot.get(), .band = band, .entry = entry})
            .second;
    ZH_CHECK(unique);
}

Status FairQueue::push(FairItem item, MonoNs now) {
    if (item.arrived_ns == 0) item.arrived_ns = now;
    item.tokens = std::max<std::int64_t>(item.tokens, 1);
    if (Status s = check_bounds(item); !s) return s;
    insert(std::move(item));
    return {};
}

// What a workspace that has nothing queued starts with when it comes.
std::int64_t FairQueue::given_to(const std::string& workspace, int band) const {
    const auto known = away_[band].find(workspace);
    if (known == away_[band].end()) return level_[band];
    return std::max(known->second, level_[band] - kMaxCredit);
}

// In front: among equals it has waited longest for a turn.
void FairQueue::enter(Workspace& workspace, int band) {
    workspace.given[band] = given_to(workspace.name, band);
    away_[band].erase(workspace.name);
    ring_[band].push_front(&workspace);
}

void FairQueue::leave(Workspace& workspace, int band) {
    ring_[band].remove(&workspace);
    away_[band][workspace.name] = workspace.given[band];
    std::erase_if(away_[band],
                  [&](const auto& w) { return w.second <= level_[band] - kMaxCredit; });
}

std::optional<FairQueue::Place> FairQueue::choose_in(int band, MonoNs now, bool due_only) const {
    Workspace* best = nullptr;
    for (Workspace* w : ring_[band]) {
        if (due_only && counted_arrival(w->entries[band].begin()->item) > now) continue;
        if (band == 0 && std::ranges::find(held_back_, w->name) != held_back_.end()) continue;
        if (best == nullptr || w->given[band] < best->given[band]) best = w;
    }
    if (best == nullptr) return {};
    return Place{.workspace = best, .band = band, .entry = best->entries[band].begin()};
}

bool FairQueue::others_overdue(MonoNs now) const {
    for (const Workspace* w : ring_[0])
        if (now - w->entries[0].begin()->item.arrived_ns >= kMaxOvertake) return true;
    return false;
}

std::optional<FairQueue::Place> FairQueue::choose(MonoNs now) const {
    const bool yield = high_in_a_row_ >= kHighInARow && others_overdue(now);
    if (count_[1] > 0 && !yield) return choose_in(1, now, false);
    if (auto due = choose_in(0, now, true)) return due;
    if (auto any = choose_in(0, now, false)) return any;
    return choose_in(1, now, false);
}

const FairItem* FairQueue::peek(MonoNs now) const {
    const std::optional<Place> place = choose(now);
    return place ? &place->entry->item : nullptr;
}

FairItem FairQueue::take(const Place& place) {
    Workspace& w = *place.workspace;
    const int band = place.band;
    FairItem item = std::move(w.entries[band].extract(place.entry).value().item);
    by_handle_.erase(item.handle);
    w.tokens -= item.tokens;
    tokens_ -= item.tokens;
    --count_[band];
    if (band == 1) high_first_token_ns_ -= item.first_token_ns;
    if (w.entries[band].empty()) leave(w, band);
    if (w.requests() == 0) workspaces_.erase(item.workspace);
    return item;
}

std::optional<FairItem> FairQueue::pop(MonoNs now) {
    const std::optional<Place> place = choose(now);
    if (!place) return {};
    Workspace* w = place->workspace;
    const int band = place->band;
    level_[band] = std::max(level_[band], w->given[band]);
    w->given[band] += place->entry->item.tokens;
    ring_[band].remove(w);
    ring_[band].push_back(w);
    FairItem item = take(*place);

    high_in_a_row_ = band == 1 ? high_in_a_row_ + 1 : 0;
    if (last_pop_ns_ != 0 && now > last_pop_ns_) {
        const auto gap = static_cast<double>(now - last_pop_ns_);
        ns_per_pop_ = ns_per_pop_ == 0 ? gap : 0.9 * ns_per_pop_ + 0.1 * gap;
    }
    last_pop_ns_ = size() == 0 ? 0 : now;  // idle time says nothing of the queue's speed
    return item;
}

void FairQueue::note_end(const std::string& workspace, MonoNs now) {
    while (!ended_.empty() && now - ended_.front().first >= kReturn) ended_.pop_front();
    ended_.emplace_back(now, workspace);
}

std::size_t FairQueue::kept(MonoNs now) const {
    const std::optional<Place> next = choose(now);
    if (!next || next->band != 0) return 0;
    return static_cast<std::size_t>(std::ranges::count_if(ended_, [&](const auto& end) {
        return now - end.first < kReturn && !workspaces_.contains(end.second) &&
               given_to(end.second, 0) <= next->workspace->given[0];
    }));
}

bool FairQueue::remove(std::uint64_t handle) {
    const auto it = by_handle_.find(handle);
    if (it == by_handle_.end()) return false;
    take(Place(it->second));
    return true;
}

}  // namespace zerohop::sched
