#include "net/listener.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include "base/log.h"
#include "net/server_state.h"
#include "net/worker.h"

namespace zerohop::net {
namespace {

constexpr int kBacklog = 4096;  // the kernel caps it at net.core.somaxconn
constexpr int kAcceptsPerTurn = 64;
constexpr std::int64_t kRestMs = 100;  // after running out of descriptors
constexpr int kFirstActivationFd = 3;  // sd_listen_fds(3)
constexpr const char* kUnixPeer = "unix";

struct SocketAddress {
    sockaddr_storage storage{};
    socklen_t size = 0;
    const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
    sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

std::optional<SocketAddress> parse_address(const std::string& text, std::uint16_t port) {
    SocketAddress address;
    auto* v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
    if (inet_pton(AF_INET, text.c_str(), &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(port);
        address.size = sizeof(sockaddr_in);
    } else if (inet_pton(AF_INET6, text.c_str(), &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(port);
        address.size = sizeof(sockaddr_in6);
    } else {
        return std::nullopt;
    }
    return address;
}

// Numeric, IPv4 that came through a dual-stack socket as IPv4.
std::pair<std::string, std::uint16_t> name_of(const SocketAddress& address) {
    char text[INET6_ADDRSTRLEN] = "";
    if (address.storage.ss_family == AF_INET) {
        const auto* v4 = reinterpret_cast<const sockaddr_in*>(&address.storage);
        inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text);
        return {text, ntohs(v4->sin_port)};
    }
    if (address.storage.ss_family != AF_INET6) return {kUnixPeer, 0};
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&address.storage);
    if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
        inet_ntop(AF_INET, &v6->sin6_addr.s6_addr[12], text, sizeof text);
    } else {
        inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text);
    }
    return {text, ntohs(v6->sin6_port)};
}

// Clients of a unix socket are counted by user.
std::string user_key(int fd) {
    ucred user{};
    socklen_t size = sizeof user;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &user, &size) != 0) return kUnixPeer;
    return fmt::format("{} {}", kUnixPeer, user.uid);
}

std::string why(int error) {
    switch (error) {
        case EADDRINUSE:
            return "the port is in use by another process";
        case EACCES:
            return "not permitted (ports below 1024 need privileges)";
        case EADDRNOTAVAIL:
            return "not an address of this machine";
        default:
            return std::strerror(error);
    }
}

Result<Listening> describe(int fd, bool tls) {
    SocketAddress bound;
    bound.size = sizeof bound.storage;
    if (getsockname(fd, bound.get(), &bound.size) != 0)
        return fail(Code::kUnavailable, "net",
                    fmt::format("descriptor {} is no socket: {}", fd, why(errno)));
    auto [address, port] = name_of(bound);
    return Listening{.fd = fd, .tls = tls, .address = std::move(address), .port = port};
}

std::unexpected<Error> cannot_listen(const std::string& path, std::string_view reason) {
    return fail(Code::kUnavailable, "net", fmt::format("cannot listen on {}: {}", path, reason));
}

// Why there may be no socket of ours at `path`; empty: there may.
std::string_view taken_by(const std::string& path, const sockaddr_un& address) {
    struct stat info{};
    if (::lstat(path.c_str(), &info) != 0) return {};
    if (!S_ISSOCK(info.st_mode)) return "there is a file of that name, which is no socket";
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    const int rv = ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address);
    const bool used = rv == 0 || errno != ECONNREFUSED;
    ::close(fd);
    return used ? "another process listens there" : std::string_view{};
}

// Made beside its place and renamed into it, so that nobody meets it before it listens with its
// mode, and a predecessor's is replaced in one step.
Result<Listening> listen_on_path(const ListenerOptions& options) {
    const std::string beside = options.path + ".new";
    sockaddr_un at{}, now{};
    at.sun_family = now.sun_family = AF_UNIX;
    if (beside.size() >= sizeof at.sun_path)
        return fail(Code::kInvalidRequest, "net",
                    fmt::format("{}: a socket's path may have {} bytes at most", options.path,
                                sizeof at.sun_path - 5));
    options.path.copy(at.sun_path, options.path.size());
    beside.copy(now.sun_path, beside.size());
    const std::string_view taken = taken_by(options.path, at);
    if (!taken.empty() && !(options.reuse_port && taken.starts_with("another")))
        return cannot_listen(options.path, taken);
    ::unlink(beside.c_str());
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct stat info{};
    if (fd >= 0 && ::bind(fd, reinterpret_cast<const sockaddr*>(&now), sizeof now) == 0 &&
        ::chmod(beside.c_str(), options.mode) == 0 && ::listen(fd, kBacklog) == 0 &&
        ::stat(beside.c_str(), &info) == 0 && ::rename(beside.c_str(), options.path.c_str()) == 0)
        return Listening{.fd = fd,
                         .tls = options.tls,
                         .reuse_port = options.reuse_port,
                         .address = "unix:" + options.path,
                         .path = options.path,
                         .inode = info.st_ino};
    const int error = errno;
    if (fd >= 0) ::close(fd);
    ::unlink(beside.c_str());
    return cannot_listen(options.path, std::strerror(error));
}

}  // namespace

Result<Listening> open_listener(const ListenerOptions& options) {
    if (options.inherited_fd >= 0) {
        const int flags = fcntl(options.inherited_fd, F_GETFL);
        if (flags < 0 || fcntl(options.inherited_fd, F_SETFL, flags | O_NONBLOCK) < 0)
            return fail(
                Code::kUnavailable, "net",
                fmt::format("inherited descriptor {}: {}", options.inherited_fd, why(errno)));
        return describe(options.inherited_fd, options.tls);
    }
    if (!options.path.empty()) return listen_on_path(options);
    const auto address = parse_address(options.address, options.port);
    if (!address)
        return fail(Code::kInvalidRequest, "net",
                    fmt::format("{} is no IPv4 or IPv6 address", options.address));
    const int fd =
        ::socket(address->storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    const int on = 1;
    const bool good =
        fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        (!options.reuse_port || setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) == 0) &&
        ::bind(fd, address->get(), address->size) == 0 && ::listen(fd, kBacklog) == 0;
    if (good) {
        Result<Listening> listening = describe(fd, options.tls);
        if (listening) listening->reuse_port = options.reuse_port;
        return listening;
    }
    const int error = errno;
    if (fd >= 0) ::close(fd);
    return fail(
        Code::kUnavailable, "net",
        fmt::format("cannot listen on {} port {}: {}", options.address, options.port, why(error)));
}

void close_listener(Listening& listening) {
    if (listening.fd < 0) return;
    struct stat info{};
    if (!listening.path.empty() && ::stat(listening.path.c_str(), &info) == 0 &&
        info.st_ino == listening.inode)
        ::unlink(listening.path.c_str());
    ::close(std::exchange(listening.fd, -1));
}

std::vector<int> activation_fds() {
    const auto number = [](const char* name) {
        const char* text = std::getenv(name);
        long value = -1;
        if (text == nullptr) return value;
        const char* const end = text + std::strlen(text);
        const auto [at, ec] = std::from_chars(text, end, value);
        return ec == std::errc() && at == end ? value : -1;
    };
    std::vector<int> fds;
    if (number("LISTEN_PID") != static_cast<long>(getpid())) return fds;
    for (long i = 0; i < number("LISTEN_FDS"); ++i) {
        const int fd = kFirstActivationFd + static_cast<int>(i);
        if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) break;  // whatever the variable says, it ends here
        fds.push_back(fd);
    }
    return fds;
}

Acceptor::Acceptor(ServerState& state, std::vector<std::unique_ptr<Worker>>& workers,
                   Listening listening)
    : state_(state),
      workers_(workers),
      listening_(std::move(listening)),
      watch_(workers_.front()->loop(), listening_.fd, *this),
      reserve_fd_(::open("/dev/null", O_RDONLY | O_CLOEXEC)) {}

Acceptor::~Acceptor() {
    close_listener(listening_);
    if (reserve_fd_ >= 0) ::close(reserve_fd_);
}

void Acceptor::start() { wait(); }

// Closing a socket of a SO_REUSEPORT group resets what waits in its queue, and the kernel goes on
// dealing newcomers to it until the close. So the group gets a program first that chooses its
// second member: the successor, as members stand in the order in which they began to listen.
// Without one that choice is out of range and the kernel falls back to its own: us.
void Acceptor::hand_over() {
    if (!listening_.reuse_port || listening_.fd < 0) return close();
    sock_filter second[] = {BPF_STMT(BPF_RET | BPF_K, 1)};
    const sock_fprog program = {.len = 1, .filter = second};
    // A successor's unix socket is in the place of ours already.
    const bool shared = listening_.path.empty();
    if (shared && setsockopt(listening_.fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program,
                             sizeof program) != 0)
        log_warn("net", "cannot steer connections to a successor: {}", why(errno));
    state_.handing_over.fetch_add(1, std::memory_order_relaxed);
    workers_.front()->loop().after(kHandoverMs, [self = shared_from_this()] {
        self->close();
        self->state_.handing_over.fetch_sub(1, std::memory_order_relaxed);
    });
}

void Acceptor::close() {
    if (listening_.fd < 0) return;
    watch_.forget();
    close_listener(listening_);
}

void Acceptor::wait() {
    if (listening_.fd >= 0) watch_.wait_for(EPOLLIN);
}

void Acceptor::on_ready(std::uint32_t) {
    for (int i = 0; i < kAcceptsPerTurn; ++i) {
        SocketAddress peer;
        peer.size = sizeof peer.storage;
        const int fd =
            ::accept4(listening_.fd, peer.get(), &peer.size, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            deal(fd, name_of(peer).first);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            return out_of_descriptors();
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            break;
        }  // anything else concerns that one connection (ECONNABORTED, EPERM …)
    }
    wait();
}

void Acceptor::deal(int fd, const std::string& address) {
    const Limits& limits = state_.limits;
    std::string key = address == kUnixPeer ? user_key(fd) : address_key(address);
    const bool room = state_.connections.load(std::memory_order_relaxed) <
                          static_cast<std::int64_t>(limits.connections) &&
                      state_.buffered.load(std::memory_order_relaxed) <
                          static_cast<std::int64_t>(limits.total_bytes);
    if (!room || !state_.addresses.add(key, limits.connections_per_address)) {
        state_.refused.fetch_add(1, std::memory_order_relaxed);
        ::close(fd);
        return;
    }
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &limits.unsent_bytes,
               sizeof limits.unsent_bytes);
    state_.accepted.fetch_add(1, std::memory_order_relaxed);
    Worker& worker = *workers_[next_++ % workers_.size()];
    if (&worker == workers_.front().get()) {
        worker.adopt(fd, listening_.tls, address, std::move(key));
    } else {
        worker.loop().post([&worker, fd, tls = listening_.tls, address, key = std::move(key)] {
            worker.adopt(fd, tls, address, key);
        });
    }
}

void Acceptor::out_of_descriptors() {
    if (reserve_fd_ >= 0) {
        ::close(std::exchange(reserve_fd_, -1));
        const int fd = ::accept4(listening_.fd, nullptr, nullptr, SOCK_CLOEXEC);
        if (fd >= 0) ::close(fd);
        reserve_fd_ = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    } else {
        reserve_fd_ = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    }
    if (state_.refused.fetch_add(1, std::memory_order_relaxed) % 1024 == 0)
        log_warn("net", "out of file descriptors: connections are turned away");
    workers_.front()->loop().after(kRestMs, [self = shared_from_this()] { self->wait(); });
}

}  // namespace zerohop::net
