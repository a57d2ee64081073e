// KeySnapshot: all keys and token secrets at one moment. Immutable, shared by every thread.
//
// Made by KeyStore from the key file, or by make_static_keys from the configuration; both may be
// merged. Frees itself (shared_ptr). A look-up hashes the presented secret, finds a candidate by
// the hash's first bytes and compares the whole hash in constant time: what the look-up's time
// could tell is a property of a hash that whoever asks cannot steer without knowing the secret.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "auth/key_record.h"
#include "base/error.h"

namespace zerohop::auth {

// One `[[auth.keys]]` of the configuration.
struct StaticKey {
    std::string id;
    std::string workspace = "default";
    std::string sha256;  // 64 hex digits of the secret's SHA-256
    Priority priority_max = Priority::kNormal;
    bool admin = false;
};

class KeySnapshot {
  public:
    struct Content {
        SecretBytes hash_key{};  // keys BLAKE2b, so that hashes of two files differ
        std::vector<KeyRecord> keys;
        std::vector<TokenSecret> token_secrets;  // exactly one current one, or none
    };
    // Records are taken as they are; KeyFile and make_static_keys check them.
    explicit KeySnapshot(Content content);

    // No keys at all: everybody is anonymous, and only loopback listeners may be opened.
    bool empty() const { return content_.keys.empty(); }
    const std::vector<KeyRecord>& keys() const { return content_.keys; }
    const Content& content() const { return content_; }
    // Different for each snapshot of this process, never 0: lets caches notice a newer one.
    std::uint64_t serial() const { return serial_; }

    // The key in force whose secret this is; nullptr when there is none.
    const KeyRecord* find_by_secret(std::string_view secret, WallNs now) const;
    const KeyRecord* find_by_id(std::string_view id) const;  // revoked ones too
    std::size_t index_of(const KeyRecord& key) const {
        return static_cast<std::size_t>(&key - content_.keys.data());
    }

    const TokenSecret* current_token_secret() const;  // nullptr: no tokens can be issued
    const TokenSecret* find_token_secret(std::string_view id, WallNs now) const;

  private:
    struct Slot {
        std::uint64_t prefix = 0;
        std::uint32_t key = 0;     // 1 + index; 0: free
        std::uint32_t secret = 0;  // index in that key
    };
    const KeyRecord* probe(const Digest& digest, HashKind kind, WallNs now) const;

    Content content_;
    const std::uint64_t serial_;
    std::vector<Slot> table_;  // open addressing, at most half full, a power of two
    bool has_kind_[2] = {false, false};
    struct ViewHash {
        using is_transparent = void;
        std::size_t operator()(std::string_view s) const {
            return std::hash<std::string_view>{}(s);
        }
    };
    std::unordered_map<std::string, std::uint32_t, ViewHash, std::equal_to<>> by_id_;
};

// Keys of the configuration, with a token secret made up for this process: tokens do not outlive a
// restart. Fails with kInvalidRequest naming the entry (bad hash, name used twice, …).
Result<std::shared_ptr<const KeySnapshot>> make_static_keys(const std::vector<StaticKey>& keys,
                                                            WallNs now);

}  // namespace zerohop::auth
