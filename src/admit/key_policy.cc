#include "admit/key_policy.h"

#include "auth/credential.h"

namespace zerohop::admit {

Result<api::HeadDecision> KeyPolicy::decide(const wire::RequestHead& head) {
    const auto& keys = reader_.get().get(keys_);
    api::HeadDecision decision;
    if (keys->empty()) return decision;
    const auto credential =
        auth::pick_credential(head.header("x-api-key"), head.header("authorization"));
    if (!credential) return std::unexpected(credential.error());
    const auth::KeyRecord* key = keys->find_by_secret(credential->text, wall_now());
    if (key == nullptr)
        return std::unexpected(credential->is_token ? auth::invalid_token() : auth::invalid_key());
    decision.principal.workspace = key->workspace;
    decision.principal.key_id = key->id;
    decision.principal.admin = key->admin;
    return decision;
}

}  // namespace zerohop::admit
