// A token is bytes from strangers: whatever they are, the verifier says no without crashing, and
// says yes only to what was minted. Half of the inputs are sealed with the real secret, so that the
// claims behind the seal are fuzzed too.
#include <cstdint>
#include <string_view>

#include "auth/credential.h"
#include "auth/key_file.h"
#include "auth/paseto.h"
#include "auth/token.h"
#include "base/check.h"

using namespace zerohop;
using namespace zerohop::auth;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const KeySnapshot keys = [] {
        KeySnapshot::Content content;
        KeyRecord key;
        key.id = "key_fuzz";
        content.keys = {key};
        content.token_secrets = {{.id = "fuzz", .created_ns = 1}};
        return KeySnapshot(std::move(content));
    }();
    static TokenVerifier verifier;
    constexpr WallNs kNow = 1'800'000'000 * kNsPerSec;
    if (size == 0) return 0;
    const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);

    if (const auto presented = read_credentials(text, text)) {
        ZH_CHECK(!presented->first.text.empty());
        ZH_CHECK(!presented->second || !presented->second->text.empty());
    }
    std::uint8_t decoded[4096];
    if (const auto n = decode_base64url(text, decoded)) ZH_CHECK(base64url({decoded, *n}) == text);
    if (data[0] % 2 == 0) {
        ZH_CHECK(!verifier.check(keys, text, kNow));
    } else if (text.size() < 1400) {
        const Digest nonce{};
        const std::string token = seal_paseto(keys.current_token_secret()->bytes, text,
                                              R"({"kid":"fuzz"})", "zerohop/auth/v1", nonce);
        const auto got = verifier.check(keys, token, kNow);
        if (got) {
            ZH_CHECK(got->claims->key_id == "key_fuzz" && got->key->id == "key_fuzz");
            ZH_CHECK(got->claims->expires_ns > kNow);
        }
    }
    return 0;
}
