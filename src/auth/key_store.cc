#include "auth/key_store.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <set>

#include "auth/key_file.h"
#include "base/log.h"

namespace zerohop::auth {

KeyStore::Stamps KeyStore::stamps() const {
    const auto stamp = [](const std::string& path) {
        struct stat info{};
        if (::stat(path.c_str(), &info) != 0) return Stamp{};
        return Stamp{.device = info.st_dev,
                     .inode = info.st_ino,
                     .size = static_cast<std::uint64_t>(info.st_size),
                     .modified_ns = info.st_mtim.tv_sec * kNsPerSec + info.st_mtim.tv_nsec};
    };
    return {.keys = stamp(path_), .secrets = stamp(path_ + ".secrets")};
}

Result<std::shared_ptr<const KeySnapshot>> KeyStore::load() const {
    Result<KeySnapshot::Content> content = read_key_file(path_);
    if (!content && content.error().code != Code::kNotFound)
        return std::unexpected(content.error());
    if (!content) {
        content = KeySnapshot::Content{};
        random_bytes(content->hash_key);
    }
    auto statics = make_static_keys(static_keys_, wall_now());
    if (!statics) return std::unexpected(statics.error());
    std::set<std::string, std::less<>> in_file;
    for (const KeyRecord& key : content->keys) in_file.insert(key.id);
    for (const KeyRecord& key : (*statics)->keys()) {
        if (in_file.contains(key.id))
            return fail(
                Code::kInvalidRequest, "auth",
                fmt::format("key \"{}\" is both in the configuration and in {}", key.id, path_));
        content->keys.push_back(key);
    }
    bool can_sign = false;
    for (const TokenSecret& secret : content->token_secrets) can_sign |= secret.retires_ns == 0;
    if (!can_sign) content->token_secrets.push_back(fallback_);
    return std::make_shared<const KeySnapshot>(std::move(*content));
}

Result<KeyStore> KeyStore::open(std::string path, std::vector<StaticKey> static_keys) {
    KeyStore store;
    store.path_ = std::move(path);
    store.static_keys_ = std::move(static_keys);
    store.fallback_.id = random_id(8);
    store.fallback_.created_ns = wall_now();
    random_bytes(store.fallback_.bytes);
    // Stamps before contents: a change in between is seen as one at the next reload.
    store.seen_ = store.stamps();
    auto snapshot = store.load();
    if (!snapshot) return std::unexpected(snapshot.error());
    store.snapshot_ = std::move(*snapshot);
    return store;
}

Result<std::shared_ptr<const KeySnapshot>> KeyStore::load_over_old() const {
    auto snapshot = load();
    // Without keys everybody is let in as the anonymous principal: a file that vanished must not do
    // that.
    if (snapshot && (*snapshot)->empty() && !snapshot_->empty())
        return fail(Code::kNotFound, "auth",
                    fmt::format("{} has no keys any more; restart to serve without keys", path_));
    return snapshot;
}

Result<bool> KeyStore::reload() {
    const Stamps now = stamps();
    if (now == seen_) {
        if (broken_) return std::unexpected(*broken_);
        return false;
    }
    seen_ = now;
    auto snapshot = load_over_old();
    if (!snapshot) {
        broken_ = snapshot.error();
        log_error("auth", "keys not re-read, the old ones stay in force: {}", broken_->detail);
        return std::unexpected(*broken_);
    }
    broken_.reset();
    snapshot_ = std::move(*snapshot);
    log_info("auth", "keys re-read: {}", snapshot_->keys().size());
    return true;
}

}  // namespace zerohop::auth
