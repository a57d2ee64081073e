#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace zerohop {
namespace {

class Fd {
  public:
    explicit Fd(int fd) : fd_(fd) {}
    ~Fd() {
        if (fd_ >= 0) ::close(fd_);
    }
    Fd(const Fd&) = delete;
    Fd& operator=(const Fd&) = delete;
    int get() const { return fd_; }

  private:
    int fd_;
};

std::unexpected<Error> cannot_read(const std::string& path, std::string_view origin) {
    const int error = errno;
    return fail(error == ENOENT ? Code::kNotFound : Code::kInvalidRequest, origin,
                path + ": cannot be read (" + std::strerror(error) + ")");
}

// Its size, once it is known to be a regular file.
Result<std::size_t> size_of(int fd, const std::string& path, std::string_view origin) {
    struct stat info{};
    if (fd < 0 || ::fstat(fd, &info) != 0) return cannot_read(path, origin);
    if (S_ISREG(info.st_mode)) return static_cast<std::size_t>(info.st_size);
    const char* const what = S_ISDIR(info.st_mode)    ? "a folder"
                             : S_ISFIFO(info.st_mode) ? "a pipe"
                                                      : "a device or socket";
    return fail(Code::kInvalidRequest, origin,
                path + ": is " + what + ", but must be a regular file");
}

int open_to_read(const std::string& path) {
    return ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
}

}  // namespace

Result<std::string> read_file(const std::string& path, std::string_view origin) {
    const Fd fd(open_to_read(path));
    const Result<std::size_t> size = size_of(fd.get(), path, origin);
    if (!size) return std::unexpected(size.error());
    std::string text(*size, '\0');
    std::size_t at = 0;
    while (at < text.size()) {
        const ssize_t n = ::read(fd.get(), text.data() + at, text.size() - at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return cannot_read(path, origin);
        if (n == 0) break;  // cut meanwhile
        at += static_cast<std::size_t>(n);
    }
    text.resize(at);
    return text;
}

Status check_file(const std::string& path, std::string_view origin) {
    const Fd fd(open_to_read(path));
    if (const Result<std::size_t> size = size_of(fd.get(), path, origin); !size)
        return std::unexpected(size.error());
    return {};
}

}  // namespace zerohop
