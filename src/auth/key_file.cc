#include "auth/key_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "auth/key_json.h"
#include "base/log.h"

namespace zerohop::auth {
namespace {

constexpr off_t kMaxFileBytes = 256 << 20;

class Fd {
  public:
    explicit Fd(int fd) : fd_(fd) {}
    Fd(const Fd&) = delete;
    Fd& operator=(const Fd&) = delete;
    ~Fd() {
        if (fd_ >= 0) ::close(fd_);
    }
    int get() const { return fd_; }
    bool ok() const { return fd_ >= 0; }

  private:
    int fd_;
};

std::string secrets_path(const std::string& path) { return path + ".secrets"; }

std::unexpected<Error> io_error(std::string_view what, const std::string& path) {
    const int error = errno;
    return fail(error == ENOENT ? Code::kNotFound : Code::kInternal, "auth",
                fmt::format("cannot {} {}: {}", what, path, std::strerror(error)));
}

Result<std::string> read_whole(const std::string& path) {
    const Fd fd(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    if (!fd.ok()) return io_error("open", path);
    struct stat info{};
    if (::fstat(fd.get(), &info) != 0) return io_error("read", path);
    if (!S_ISREG(info.st_mode))
        return fail(Code::kInvalidRequest, "auth", path + ": must be a regular file");
    if (info.st_size > kMaxFileBytes)
        return fail(Code::kInvalidRequest, "auth", path + ": is absurdly large");
    if ((info.st_mode & 077) != 0)
        log_warn("auth", "{} can be read by others than its owner (mode {:o}): chmod 600 it", path,
                 info.st_mode & 0777);
    std::string text(static_cast<std::size_t>(info.st_size), '\0');
    std::size_t at = 0;
    while (at < text.size()) {
        const ssize_t n = ::read(fd.get(), text.data() + at, text.size() - at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return io_error("read", path);
        if (n == 0) break;
        at += static_cast<std::size_t>(n);
    }
    text.resize(at);
    return text;
}

Status write_all(int fd, std::string_view text, const std::string& path) {
    while (!text.empty()) {
        const ssize_t n = ::write(fd, text.data(), text.size());
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return io_error("write", path);
        text.remove_prefix(static_cast<std::size_t>(n));
    }
    return {};
}

// New contents under a temporary name, synced, renamed over the old, folder synced. The temporary
// name is fixed: the caller holds the lock, and what a killed writer left is overwritten.
Status replace_file(const std::string& path, std::string_view text) {
    const std::string temporary = path + ".tmp";
    {
        const Fd fd(
            ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
        if (!fd.ok()) return io_error("create", temporary);
        if (::fchmod(fd.get(), 0600) != 0) return io_error("set the mode of", temporary);
        // Root may manage the keys of a server that runs as somebody else: keep its access.
        struct stat old{};
        if (::geteuid() == 0 && ::stat(path.c_str(), &old) == 0 &&
            ::fchown(fd.get(), old.st_uid, old.st_gid) != 0)
            return io_error("set the owner of", temporary);
        if (Status s = write_all(fd.get(), text, temporary); !s) return s;
        if (::fsync(fd.get()) != 0) return io_error("sync", temporary);
    }
    if (::rename(temporary.c_str(), path.c_str()) != 0) return io_error("replace", path);
    std::string folder = std::filesystem::path(path).parent_path().string();
    if (folder.empty()) folder = ".";
    const Fd dir(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!dir.ok() || ::fsync(dir.get()) != 0) return io_error("sync", folder);
    return {};
}

std::unexpected<Error> in_file(const std::string& path, Error error) {
    error.detail = fmt::format("{}: {}", path, error.detail);
    return std::unexpected(std::move(error));
}

}  // namespace

std::string default_keys_path() {
    const auto variable = [](const char* name) -> std::string {
        const char* value = std::getenv(name);
        return value == nullptr ? "" : value;
    };
    if (const std::string path = variable("ZEROHOP_KEYS"); !path.empty()) return path;
    if (const std::string state = variable("XDG_STATE_HOME"); !state.empty())
        return state + "/zerohop/keys.json";
    return variable("HOME") + "/.local/state/zerohop/keys.json";
}

Result<KeySnapshot::Content> read_key_file(const std::string& path) {
    KeySnapshot::Content content;
    Result<std::string> keys = read_whole(path);
    if (!keys) return std::unexpected(keys.error());
    if (Status s = read_keys_json(*keys, content); !s) return in_file(path, s.error());
    Result<std::string> secrets = read_whole(secrets_path(path));
    if (!secrets) {
        // Keys without a token secret still serve; only tokens cannot be issued.
        if (secrets.error().code == Code::kNotFound) return content;
        return std::unexpected(secrets.error());
    }
    if (Status s = read_secrets_json(*secrets, content); !s)
        return in_file(secrets_path(path), s.error());
    return content;
}

Result<KeyFile> KeyFile::open_for_change(const std::string& path) {
    std::error_code ignored;
    const auto folder = std::filesystem::path(path).parent_path();
    if (!folder.empty() && !std::filesystem::exists(folder, ignored)) {
        std::error_code error;
        std::filesystem::create_directories(folder, error);
        if (error)
            return fail(Code::kInternal, "auth",
                        fmt::format("cannot make {}: {}", folder.string(), error.message()));
        ::chmod(folder.c_str(), 0700);
    }
    const std::string lock_path = path + ".lock";
    const int fd = ::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return io_error("open", lock_path);
    KeyFile file(path, fd);
    while (::flock(fd, LOCK_EX) != 0)
        if (errno != EINTR) return io_error("lock", lock_path);
    Result<KeySnapshot::Content> content = read_key_file(path);
    if (content) {
        file.content_ = std::move(*content);
    } else if (content.error().code == Code::kNotFound) {
        random_bytes(file.content_.hash_key);
    } else {
        return std::unexpected(content.error());
    }
    return file;
}

KeyFile::KeyFile(KeyFile&& other) noexcept
    : path_(std::move(other.path_)), lock_fd_(other.lock_fd_), content_(std::move(other.content_)) {
    other.lock_fd_ = -1;
}

KeyFile::~KeyFile() {
    if (lock_fd_ >= 0) ::close(lock_fd_);  // releases the lock; the file stays, it has no contents
}

Status KeyFile::commit() {
    // Secrets first: a key whose tokens cannot be signed yet would be the worse half.
    if (Status s = replace_file(secrets_path(path_), write_secrets_json(content_)); !s) return s;
    return replace_file(path_, write_keys_json(content_));
}

}  // namespace zerohop::auth
