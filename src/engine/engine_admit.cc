// Who gets a place in the batch, and who gives one up. Policy: sched::FairQueue among those that
// are new, sched/occupancy.h among those that want KV.
#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/log.h"
#include "engine/llama_engine_impl.h"
#include "sched/occupancy.h"

namespace zerohop::engine {
namespace {

constexpr std::size_t kMostTries = 8;  // to find KV, in one turn: each looks at all that is cached

}  // namespace

// High priority first, then those that wait for KV, then the rest in the queue's order. Who may
// pass whom: sched/occupancy.h.
void LlamaEngine::admit(MonoNs now) {
    count_running();
    inherit();
    admit_sharing(now);
    admit_waiting(now, true);
    admit_resuming(now);
    if (may_pass(now)) admit_waiting(now, false);
    reclaim(now);
}

// Those whose shared beginning is there now, or will not come.
void LlamaEngine::admit_sharing(MonoNs now) {
    for (SequencePtr& sequence : sharing_) {
        if (!kv_.wait_is_over(*sequence)) continue;
        const KvStore::Admitted admitted = start(*sequence, now);
        if (admitted != KvStore::Admitted::kWait) place(std::move(sequence), admitted, now);
    }
    std::erase(sharing_, nullptr);
}

void LlamaEngine::admit_resuming(MonoNs now) {
    std::size_t tries = kMostTries;
    for (std::size_t i = 0; i < resuming_.size() && tries > 0; --tries) {
        Sequence& sequence = *resuming_[i];
        KvStore::Admitted admitted = KvStore::Admitted::kFull;
        if (waiting_.has_room(sequence.request->lane, now)) admitted = start(sequence, now);
        if (admitted == KvStore::Admitted::kFull && may_claim(sequence, now)) {
            admitted = claim(sequence, now);
            while (resuming_[i].get() != &sequence) ++i;  // those that gave way may stand before it
        }
        if (admitted == KvStore::Admitted::kFull) {
            ++i;
            continue;
        }
        SequencePtr started = std::move(resuming_[i]);
        resuming_.erase(resuming_.begin() + static_cast<std::ptrdiff_t>(i));
        place(std::move(started), admitted, now);
        count_running();
    }
}

void LlamaEngine::admit_waiting(MonoNs now, bool high_only) {
    for (std::size_t tries = 0; tries < kMostTries || high_only;) {
        SequencePtr next;
        hold_back();
        if (waiting_.next(now, high_only) != nullptr)
            next = waiting_.take(now);
        else if (!(high_only && waiting_.high_waits()))
            return;
        if (next != nullptr) {
            KvStore::Admitted admitted = start(*next, now);
            // A high-priority request that finds no KV takes that of a low one.
            while (admitted == KvStore::Admitted::kFull && high_only && preempt_low())
                admitted = start(*next, now);
            place(std::move(next), admitted, now);
            count_running();
            if (admitted != KvStore::Admitted::kFull) continue;
            ++tries;
            if (high_only || !may_pass(now)) return;
        } else {
            if (!preempt_low()) return;  // or its slot
            count_running();
        }
    }
}

void LlamaEngine::place(SequencePtr&& sequence, KvStore::Admitted admitted, MonoNs now) {
    switch (admitted) {
        case KvStore::Admitted::kGo:
            running_.push_back(std::move(sequence));
            return;
        case KvStore::Admitted::kWait:
            sharing_.push_back(std::move(sequence));
            return;
        case KvStore::Admitted::kFull:
            sequence->since = now;
            wait_for_room(std::move(sequence));
    }
}

// High priority before the rest, then as they came.
void LlamaEngine::wait_for_room(SequencePtr&& sequence) {
    const auto rank = [](const Sequence& s) {
        return std::pair(s.request->priority != Priority::kHigh, s.order);
    };
    const auto at = std::ranges::find_if(
        resuming_, [&](const SequencePtr& other) { return rank(*other) > rank(*sequence); });
    resuming_.insert(at, std::move(sequence));
}

// Whether new ones may take what those that wait for KV cannot use.
bool LlamaEngine::may_pass(MonoNs now) const {
    if (resuming_.empty() || now - resuming_.front()->since >= options_.occupancy.head_of_line_ns)
        return true;
    return std::ranges::none_of(running_, [](const SequencePtr& s) { return !s->starved(); });
}

// The workspaces of which enough wait for KV already.
void LlamaEngine::hold_back() {
    held_back_.clear();
    std::unordered_map<std::string_view, std::size_t> aside;
    for (const SequencePtr& sequence : resuming_) {
        const std::string& workspace = sequence->request->principal.workspace;
        if (++aside[workspace] == sched::kMostForRoom) held_back_.push_back(workspace);
    }
    waiting_.hold_back(held_back_);
}

// Those that came after it, and those of the crowd it waits for; none that are more urgent.
bool LlamaEngine::gives_way(const Sequence& running, const Sequence& to,
                            std::string_view crowd) const {
    const bool of_crowd = !crowd.empty() && running.request->principal.workspace == crowd;
    return (running.order > to.order || of_crowd) && running.priority <= to.request->priority &&
           !(running.beside && in_side_) && !running.last;
}

// It was passed for long, and what those that would give way hold is likely to be enough.
bool LlamaEngine::may_claim(const Sequence& sequence, MonoNs now) const {
    const sched::OccupancyLimits& limits = options_.occupancy;
    const MonoNs waited = now - sequence.since;
    if (waited < std::min(limits.passed_ns, limits.crowded_out_ns)) return false;
    const std::string_view crowd = crowd_before(*sequence.request);
    if (waited < (crowd.empty() ? limits.passed_ns : limits.crowded_out_ns)) return false;
    std::int64_t stays = std::ssize(sequence.tokens) + 1;
    bool any = false;
    for (const SequencePtr& other : running_) {
        if (gives_way(*other, sequence, crowd))
            any = true;
        else
            stays += std::ssize(other->tokens) + expected_output(*other);
    }
    return any && stays <= pool_tokens_;
}

KvStore::Admitted LlamaEngine::claim(Sequence& sequence, MonoNs now) {
    KvStore::Admitted admitted = KvStore::Admitted::kFull;
    while (admitted == KvStore::Admitted::kFull) {
        const std::string_view crowd = crowd_before(*sequence.request);
        const std::size_t victim =
            youngest([&](const Sequence& s) { return gives_way(s, sequence, crowd); });
        if (victim == running_.size()) break;
        pause(victim, "one that came before it, or that has less, needs its place");
        count_running();
        if (waiting_.has_room(sequence.request->lane, now)) admitted = start(sequence, now);
    }
    sequence.since = now;  // not again at once
    return admitted;
}

// Who computes what others wait for is served as the most urgent of them.
void LlamaEngine::inherit() {
    for (const SequencePtr& sequence : running_) {
        sequence->priority = sequence->request->priority;
        sequence->lane = sequence->request->lane;
    }
    for (const SequencePtr& waiter : sharing_) {
        for (const SequencePtr& sequence : running_) {
            if (!waiter->waits_for(*sequence)) continue;
            sequence->priority = std::max(sequence->priority, waiter->request->priority);
            if (lane_cap(waiter->request->lane) != 0) sequence->lane = waiter->request->lane;
        }
    }
}

// Tells the wait queue how many run on which lane.
void LlamaEngine::count_running() {
    for (const std::uint8_t lane : counted_lanes_) waiting_.note_running(lane, -1);
    counted_lanes_.clear();
    for (const auto* list : {&running_, &sharing_})
        for (const SequencePtr& sequence : *list)
            if (sequence != nullptr) counted_lanes_.push_back(sequence->request->lane);
    for (const std::uint8_t lane : counted_lanes_) waiting_.note_running(lane, 1);
}

// Of running_; its size: none.
std::size_t LlamaEngine::youngest(const std::function<bool(const Sequence&)>& among) const {
    std::size_t found = running_.size();
    for (std::size_t i = 0; i < running_.size(); ++i)
        if (among(*running_[i]) &&
            (found == running_.size() || running_[i]->order > running_[found]->order))
            found = i;
    return found;
}

// Pauses the youngest low-priority sequence that was not paused for this before.
bool LlamaEngine::preempt_low() {
    const std::size_t victim = youngest([](const Sequence& s) {
        return s.priority == Priority::kLow && !s.preempted && !s.beside && !s.last;
    });
    if (victim == running_.size()) return false;
    running_[victim]->preempted = true;
    pause(victim, "a high-priority request needs its place");
    return true;
}

// The workspace that holds most of the slots `waiting` could have, if that is at least two more
// than its own; else empty. The name lives as long as that workspace's requests.
std::string_view LlamaEngine::crowd_before(const Request& waiting) const {
    std::unordered_map<std::string_view, std::size_t> held;
    for (const auto* list : {&running_, &sharing_})
        for (const SequencePtr& sequence : *list)
            if (sequence != nullptr && waiting_.same_slots(sequence->request->lane, waiting.lane))
                ++held[sequence->request->principal.workspace];
    const std::size_t own = held[waiting.principal.workspace];
    const auto most = std::ranges::max_element(held, {}, &decltype(held)::value_type::second);
    return most->second < own + 2 ? std::string_view() : most->first;
}

// A crowd's slots are taken back one by one while others wait for theirs (sched/occupancy.h).
void LlamaEngine::reclaim(MonoNs now) {
    if (waiting_.empty()) return;
    hold_back();
    const SequencePtr* waiting = waiting_.next_without_room(now);
    if (waiting == nullptr || now - (*waiting)->since < options_.occupancy.crowded_out_ns) return;
    const Request& request = *(*waiting)->request;
    const std::string_view crowd = crowd_before(request);
    const std::size_t victim = youngest([&](const Sequence& s) {
        return s.request->principal.workspace == crowd && !s.beside && !s.last &&
               s.priority <= request.priority && waiting_.same_slots(s.request->lane, request.lane);
    });
    if (crowd.empty() || victim == running_.size()) return;
    pause(victim, "another workspace has waited for its share of the slots");
    count_running();
    if (waiting_.next(now, false) == nullptr) return;
    SequencePtr next = waiting_.take(now);
    const KvStore::Admitted admitted = start(*next, now);
    place(std::move(next), admitted, now);
    count_running();
}

std::int64_t LlamaEngine::expected_output(const Sequence& sequence) const {
    return std::clamp<std::int64_t>(sequence.output_limit() - sequence.sampled(), 0,
                                    std::max<std::int64_t>(sequence.expected.reserve_tokens, 1));
}

KvStore::Admitted LlamaEngine::start(Sequence& sequence, MonoNs now) {
    const auto size = static_cast<std::int64_t>(sequence.tokens.size());
    const std::int64_t reserve = std::min(expected_output(sequence), info_.context_tokens - size);
    const KvStore::Admitted admitted = kv_.admit(sequence, reserve, now);
    if (admitted != KvStore::Admitted::kGo) return admitted;
    kv_.make_way();
    sequence.held = sequence.computed;
    if (sequence.read < 0) sequence.read = sequence.computed;
    if (sequence.admitted_ns == 0) sequence.admitted_ns = now;
    sequence.since = now;
    if (drafts_ != nullptr) drafts_->open(sequence);
    return admitted;
}

// Who waits for its reader waits aside: it takes a place again once that has read.
void LlamaEngine::pause(std::size_t index, std::string_view why) {
    SequencePtr sequence = std::move(running_[index]);
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(index));
    log_debug(kOrigin, "{} is paused: {}", sequence->request->id, why);
    free_kv(*sequence, true);
    sequence->since = mono_now();
    if (sequence->starved())
        lagging_.push_back(std::move(sequence));
    else
        wait_for_room(std::move(sequence));
}

}  // namespace zerohop::engine
