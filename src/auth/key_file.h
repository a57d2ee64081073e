// The key file: all keys, hashed, and beside it the token secrets. Format: docs/formats/keys.md.
//
//     keys.json           what `zerohop key` writes: records and hashes
//     keys.json.secrets   token secrets: who reads these can make tokens
//     keys.json.lock      flock(2), held by a writer from its read to its last rename
//
// Writers (the command line) take the lock, read, change, and replace each file by rename: a reader
// sees the old file or the new one, never a part, and a writer killed at any point leaves a whole
// file behind. Readers (the server) take no lock. All files have mode 0600.
// Threads: any; blocking file I/O, never on an I/O thread.
#pragma once

#include <string>
#include <string_view>

#include "auth/key_snapshot.h"
#include "base/error.h"

namespace zerohop::auth {

// $ZEROHOP_KEYS, else zerohop/keys.json under $XDG_STATE_HOME or ~/.local/state.
std::string default_keys_path();

// Both files. Fails with kNotFound when there is no key file, kInvalidRequest when one is broken
// (the text names file and field), kInternal when it cannot be read.
Result<KeySnapshot::Content> read_key_file(const std::string& path);

// A writer's hold on the files: made with the lock taken, released by the destructor.
class KeyFile {
  public:
    // Waits for other writers. A missing file is an empty one; folders are made (0700).
    static Result<KeyFile> open_for_change(const std::string& path);
    KeyFile(KeyFile&& other) noexcept;
    KeyFile& operator=(KeyFile&&) = delete;
    ~KeyFile();

    KeySnapshot::Content& content() { return content_; }
    // Writes both files and syncs them. On failure what was there before is still there.
    Status commit();

  private:
    KeyFile(std::string path, int lock_fd) : path_(std::move(path)), lock_fd_(lock_fd) {}
    std::string path_;
    int lock_fd_;
    KeySnapshot::Content content_;
};

// --- changes to a content; pure but for randomness
// ------------------------------------------------

struct NewKey {
    std::string name;
    std::string workspace = "default";
    Limits limits;
    Limits burst;
    Priority priority_max = Priority::kNormal;
    std::vector<std::string> models = {"*"};
    std::vector<std::string> lanes = {"default", "batch"};
    bool admin = false;
};

// A key and its secret, which exists nowhere else.
struct KeyWithSecret {
    KeyRecord record;
    std::string secret;  // "zh_", the ten characters of the id, "_", 256 random bits
};

// Fails with kInvalidRequest naming the field. Makes the first token secret as well.
Result<KeyWithSecret> create_key(KeySnapshot::Content& content, const NewKey& wanted, WallNs now);

// Ends a key and all its tokens at their next request. Fails with kNotFound (with the nearest id),
// and kConflict when it is revoked already.
Result<KeyRecord> revoke_key(KeySnapshot::Content& content, std::string_view id, WallNs now);

// A new secret for a key. overlap_s > 0: the old secret and its tokens stay good for that long or
// longer; 0: the old secret and all tokens of the key end now (it leaked).
Result<KeyWithSecret> rotate_key_secret(KeySnapshot::Content& content, std::string_view id,
                                        std::int64_t overlap_s, WallNs now);

// A new secret for signing tokens. Tokens of the previous one stay good until they expire, or, with
// overlap_s = 0, end now. Drops secrets that have retired.
TokenSecret rotate_token_secret(KeySnapshot::Content& content, std::int64_t overlap_s, WallNs now);
inline constexpr std::int64_t kTokenOverlapS =
    360;  // a token's life and the clock leeway, rounded up

}  // namespace zerohop::auth
