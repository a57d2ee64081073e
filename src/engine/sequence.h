// Sequence: one request inside the engine, from the wait queue to its last event.
//
//     tokens:   [ prompt … | sampled … ]
//     computed:  how many of them are in the KV cache; the rest is pending
//
// Decoding is the case of one pending token. A paused sequence gives up its slot (computed = 0);
// its KV stays cached while there is room, else it is computed again like a longer prompt. Owned
// and touched by the engine thread only; compute threads read `request` and `stream`.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "draft/suffix_store.h"
#include "engine/sampler.h"
#include "kv/namespace.h"
#include "kv/plans.h"
#include "request/output_text.h"
#include "request/request.h"
#include "request/stream.h"
#include "sched/occupancy.h"

namespace zerohop::engine {

// A breakpoint of the request, found in its tokens.
struct CacheMark {
    std::int32_t tokens = 0;
    MonoNs ttl_ns = 0;
};

struct Sequence {
    Sequence(RequestPtr r, StreamPtr s, std::vector<std::int32_t> t, const SamplerParams& params,
             OutputText&& o)
        : request(std::move(r)),
          stream(std::move(s)),
          tokens(std::move(t)),
          prompt(static_cast<std::int32_t>(tokens.size())),
          priority(request->priority),
          lane(request->lane),
          sampler(params),
          output(std::move(o)) {}

    RequestPtr request;
    StreamPtr stream;
    std::vector<std::int32_t> tokens;
    std::int32_t prompt;        // of them from the request
    std::int32_t computed = 0;  // of them in the KV cache
    std::int32_t held = 0;      // cells in the KV cache; more than computed: not yet accepted
    std::int32_t id = -1;       // in the KV cache; -1: holds none
    bool beside = false;        // its prompt is computed in the side context
    bool never_beside = false;  // that failed once
    std::uint64_t order = 0;    // of arrival: the largest is the youngest
    MonoNs since = 0;           // it has its place, or waits for one, since then
    kv::Namespace ns;           // whose cache entries it may use
    kv::Expectation expected;   // of its output
    std::vector<CacheMark> marks;
    std::int32_t read = -1;  // prompt tokens found cached at its first start; -1: not started
    MonoNs pinned_until = 0;
    // While it waits for another one to compute its beginning (KvStore::wait_is_over).
    std::int32_t wait_for = -1, wait_until = 0;
    std::uint64_t wait_order = 0;
    std::unique_ptr<draft::DraftSession> drafts;  // null: none wanted
    draft::Draft draft;                           // proposed for the current step
    bool preempted = false;  // gave way to a high-priority request; once is enough
    bool paid = false;       // pay()
    bool forget = false;     // its workspace was erased meanwhile: nothing of it is kept
    // What its prompt is served as: its own, or those of one that waits for it, if that is more.
    Priority priority = Priority::kNormal;
    std::uint8_t lane = 0;
    Sampler sampler;
    OutputText output;
    std::string unsent;         // text the ring had no room for
    sched::ReaderLag lag;       // starved() by the clock
    std::optional<Event> last;  // Done, waiting behind unsent

    MonoNs admitted_ns = 0, prefill_done_ns = 0, first_token_ns = 0;

    // Its structure keys, whole first, as a kv::PlanKey or a draft::DraftKey.
    template <class Key>
    std::vector<Key> structure_keys() const {
        std::vector<Key> keys;
        for (const StructureKey& key : request->structure)
            if (!key.empty()) keys.push_back({.ns = ns, .lo = key.lo, .hi = key.hi});
        return keys;
    }

    std::int32_t pending() const { return static_cast<std::int32_t>(tokens.size()) - computed; }
    std::int32_t output_limit() const { return output_cap(*request, prompt); }
    std::int32_t sampled() const { return static_cast<std::int32_t>(tokens.size()) - prompt; }
    bool starved() const { return !unsent.empty(); }  // its ring is full
    // Something is computed for it: from now on its client pays.
    void pay() {
        if (!std::exchange(paid, true)) stream->set_queued(false);
    }
    // Whether that one computes what it waits for (KvStore::admit).
    bool waits_for(const Sequence& other) const {
        return other.id == wait_for && other.order + 1 == wait_order;
    }
};

}  // namespace zerohop::engine
