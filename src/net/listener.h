// Listener: a listening socket, and the accepting of its connections on one worker's loop, dealt
// out to all workers in turn.
//
// open_listener() is for any thread; the Acceptor's owning thread is its worker's, for all but its
// construction. When descriptors run out it turns connections away with one kept in reserve and
// rests a little, instead of spinning on a readiness it cannot serve.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "net/io_loop.h"

namespace zerohop::net {

struct ListenerOptions {
    std::string address = "127.0.0.1";  // numeric, IPv4 or IPv6
    std::uint16_t port = 0;             // 0: any free one
    bool tls = false;
    bool reuse_port = false;  // SO_REUSEPORT: a successor may listen beside us
    int inherited_fd = -1;    // already listening (socket activation); address is ignored
    std::string path;         // of a unix socket, when not empty; address and port are ignored
    unsigned mode = 0600;     // of that path
};

struct Listening {
    int fd = -1;
    bool tls = false;
    bool reuse_port = false;
    std::string address;  // as bound, without port
    std::uint16_t port = 0;
    std::string path;         // of a unix socket that we made: removed at the end,
    std::uint64_t inode = 0;  // if it is still this one
};

// Errors: kInvalidRequest for what is no address, kUnavailable with the reason in words (in use,
// not permitted, not an address of this machine). A unix socket that nobody listens on any more is
// replaced; one that is in use only with reuse_port: newcomers are ours then.
Result<Listening> open_listener(const ListenerOptions& options);
void close_listener(Listening& listening);  // idempotent

// The descriptors systemd passed (LISTEN_PID, LISTEN_FDS), empty when none are for this process.
std::vector<int> activation_fds();

struct ServerState;
class Worker;

class Acceptor : public std::enable_shared_from_this<Acceptor>, private Watcher {
  public:
    Acceptor(ServerState& state, std::vector<std::unique_ptr<Worker>>& workers,
             Listening listening);
    ~Acceptor() override;  // closes the socket

    // On the first worker's loop.
    void start();
    // A shared port: sends newcomers to the successor, if one listens by now, takes what already
    // waits in our queue, and closes after kHandoverMs. Others close at once.
    void hand_over();
    void close();
    static constexpr std::int64_t kHandoverMs = 1'000;

  private:
    void on_ready(std::uint32_t events) override;  // Watcher: accepts some
    void wait();
    void deal(int fd, const std::string& address);
    void out_of_descriptors();

    ServerState& state_;
    std::vector<std::unique_ptr<Worker>>& workers_;
    Listening listening_;
    Watch watch_;
    int reserve_fd_;
    std::size_t next_ = 0;
};

}  // namespace zerohop::net
