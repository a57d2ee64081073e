// KeyPolicy: the smallest HeadPolicy. Who asks, and nothing else: no quotas, lanes or hints.
//
// For a server whose keys are a list in its configuration. Without keys everybody is the anonymous
// Principal; `app` then refuses listeners beyond loopback.
// Threads: decide() on any I/O thread, concurrently; replace() on the control thread.
#pragma once

#include <memory>

#include "api/head_policy.h"
#include "auth/key_snapshot.h"
#include "base/per_thread.h"
#include "base/published.h"

namespace zerohop::admit {

class KeyPolicy : public api::HeadPolicy {
  public:
    explicit KeyPolicy(std::shared_ptr<const auth::KeySnapshot> keys) : keys_(std::move(keys)) {}
    // Fails with kAuthentication only.
    Result<api::HeadDecision> decide(const wire::RequestHead& head) override;
    void replace(std::shared_ptr<const auth::KeySnapshot> keys) { keys_.store(std::move(keys)); }

  private:
    using Keys = Published<auth::KeySnapshot>;
    Keys keys_;
    PerThread<Keys::Reader> reader_;
};

}  // namespace zerohop::admit
