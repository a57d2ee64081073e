// The two key files as text. Format: docs/formats/keys.md. Threads: any; pure functions.
#pragma once

#include <string>
#include <string_view>

#include "auth/key_snapshot.h"
#include "base/error.h"

namespace zerohop::auth {

std::string write_keys_json(const KeySnapshot::Content& content);
std::string write_secrets_json(const KeySnapshot::Content& content);

// Fill the members they own. Fail with kInvalidRequest: "keys[3].workspace must be …".
Status read_keys_json(std::string_view text, KeySnapshot::Content& content);
Status read_secrets_json(std::string_view text, KeySnapshot::Content& content);

}  // namespace zerohop::auth
