// KeyStore: the server's view of the key file, re-read while it runs.
//
// Owning thread: control. reload() once a second or on SIGHUP: one stat of each file unless they
// changed. A broken file changes nothing: the snapshot in force stays, the error is returned as
// long as the file is as it is, and logged once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "auth/key_snapshot.h"
#include "base/error.h"

namespace zerohop::auth {

class KeyStore {
  public:
    // Keys of the configuration join those of the file. A missing file holds no keys, and may
    // appear later. Fails as read_key_file does, or when a static key's id is in the file as well.
    static Result<KeyStore> open(std::string path, std::vector<StaticKey> static_keys);

    const std::shared_ptr<const KeySnapshot>& snapshot() const { return snapshot_; }

    // True when there is a new snapshot; the caller hands it to the deciders.
    Result<bool> reload();

  private:
    // What tells one state of a file from another. Renaming gives a new inode each time.
    struct Stamp {
        std::uint64_t device = 0, inode = 0, size = 0;
        std::int64_t modified_ns = 0;
        bool operator==(const Stamp&) const = default;
    };
    struct Stamps {
        Stamp keys, secrets;
        bool operator==(const Stamps&) const = default;
    };
    KeyStore() = default;
    Stamps stamps() const;
    Result<std::shared_ptr<const KeySnapshot>> load() const;
    // The same, but never fewer than one key where there were some.
    Result<std::shared_ptr<const KeySnapshot>> load_over_old() const;

    std::string path_;
    std::vector<StaticKey> static_keys_;
    TokenSecret fallback_;  // signs when the file has no secret
    Stamps seen_;
    std::optional<Error> broken_;  // why what was seen is not in force
    std::shared_ptr<const KeySnapshot> snapshot_;
};

}  // namespace zerohop::auth
