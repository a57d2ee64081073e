// HeadDecider: identity, routing, limits, lane and priority from the request head alone.
//
//     I/O thread   decide(head, asks)              401 400 403 421 404 413 529 429, in this order
//                    → HeadDecision.admission is a HeadAdmission (admission_of() gives it back)
//     I/O thread   admission.on_body_bytes(now)    each body chunk
//     I/O thread   admission.choose_model(name)    once the body is parsed: 400 404 403
//     I/O thread   admission.admit(in, max, …)     once the prompt is tokenized: 429, or a Price
//     engine       sched::FairQueue::push(item), pop()    item.tokens = price.tokens(): 529, or its
//     turn I/O thread   admission.settle(usage, …)      when the answer ended, however it ended I/O
//     thread   ~HeadAdmission                  gives back whatever is still held
//
//     control      install(keys, topology)         at start, when KeyStore::reload() says true, and
//     on
//                                                  config reload; streams in flight keep their
//                                                  table
//     control      sweep(now)                      once a second: soft reservations lapse
//
// What is asked for (api::Asks, by route) says what is charged: one request for work and tokens,
// one count, one look-up, one deletion. Each answers with its anthropic-ratelimit headers. Whom a
// token may ask, and where, holds for all of them.
//
// Without keys everybody is let in who calls this machine by a name of its own: with DNS rebinding
// a web page anywhere can ask under a name of its own choice.
//
// Threads: decide() on any I/O thread, concurrently, without blocking (short mutexes on quotas);
// the rest on the control thread. The decider outlives all admissions' exchanges only by
// convention: an admission holds what it needs itself.
#pragma once

#include <functional>
#include <memory>

#include "admit/admit_table.h"
#include "admit/head_admission.h"
#include "api/head_policy.h"
#include "auth/credential.h"
#include "base/per_thread.h"
#include "base/published.h"

namespace zerohop::admit {

class HeadDecider : public api::HeadPolicy {
  public:
    // Empty clocks are the real ones. decide() takes head.decoded_ns for now when it is set.
    struct Clocks {
        MonoClock mono;
        std::function<WallNs()> wall;
    };
    HeadDecider(std::shared_ptr<const auth::KeySnapshot> keys,
                std::shared_ptr<const Topology> topology, Clocks clocks = {});

    Result<api::HeadDecision> decide(const wire::RequestHead& head, api::Asks asks) override;
    // decide() without rendering response headers; what `head_decision_ns` measures.
    Result<std::unique_ptr<HeadAdmission>> decide_head(const wire::RequestHead& head,
                                                       api::Asks asks);

    void install(std::shared_ptr<const auth::KeySnapshot> keys,
                 std::shared_ptr<const Topology> topology);
    void sweep(MonoNs now) { book_.sweep(now); }
    // Tokens that heads have reserved on a model: what a KV planner keeps free if it can.
    std::int64_t soft_kv_tokens(const std::string& model_id) const {
        return book_.soft_kv_tokens(model_id);
    }
    // No keys: everybody is anonymous; `app` refuses listeners beyond loopback.
    bool anonymous() const { return table_.load()->keys->empty(); }

  private:
    using Table = Published<AdmitTable>;
    struct Mine {
        Table::Reader reader;
        auth::TokenVerifier verifier;
    };
    struct Now {
        MonoNs mono;
        WallNs wall;
    };
    Now now_of(const wire::RequestHead& head) const;
    Result<std::unique_ptr<HeadAdmission>> identify(Mine& mine, const wire::RequestHead& head,
                                                    const HeadFields& fields, WallNs wall);
    Result<std::unique_ptr<HeadAdmission>> whose(const std::shared_ptr<const AdmitTable>& table,
                                                 auth::TokenVerifier& verifier,
                                                 const auth::Credential& credential, WallNs wall);
    Status place(HeadAdmission& a, const Hints& hints, const wire::RequestHead& head) const;
    Status charge(HeadAdmission& a, const wire::RequestHead& head, Now now) const;
    // One request of its class; `probe` must be admissible too.
    Status charge_request(HeadAdmission& a, const Cost& probe, Now now) const;
    Status charge_lookup(HeadAdmission& a, bool deletes, Now now) const;
    void reserve(HeadAdmission& a, const wire::RequestHead& head, MonoNs now) const;

    const Clocks clocks_;
    StateBook book_;
    Table table_;
    PerThread<Mine> mine_;
};

// The HeadAdmission in a decision or exchange made by HeadDecider; null for null.
inline HeadAdmission* admission_of(api::Admission* admission) {
    return dynamic_cast<HeadAdmission*>(admission);
}

}  // namespace zerohop::admit
