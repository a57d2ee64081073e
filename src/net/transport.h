// Transport: a nonblocking socket with or without TLS, as three calls.
//
// Owning thread: the connection's I/O thread. Owns the descriptor and the SSL object; the
// destructor closes. Nothing throws; errors are values. SIGPIPE must be ignored in the process
// (Server does).
#pragma once

#include <cstddef>
#include <string_view>

struct ssl_st;

namespace zerohop::net {

enum class Io {
    kDone,       // n bytes, or the handshake is complete
    kWantRead,   // wait until readable
    kWantWrite,  // wait until writable
    kEof,        // the peer ended its side in order
    kError,      // the connection is of no more use
};

struct IoResult {
    Io io = Io::kError;
    std::size_t n = 0;
};

class Transport {
  public:
    Transport(int fd, ssl_st* ssl) : fd_(fd), ssl_(ssl) {}
    ~Transport();
    Transport(const Transport&) = delete;
    Transport& operator=(const Transport&) = delete;

    int fd() const { return fd_; }
    bool tls() const { return ssl_ != nullptr; }
    Io handshake();
    bool alpn_h2() const;
    IoResult read(char* to, std::size_t most);
    IoResult write(std::string_view bytes);
    bool has_pending() const;  // decrypted or buffered bytes that no readiness will announce
    void shutdown_write();     // close_notify and FIN, as far as they go at once
    bool peer_gone() const;    // FIN or reset has arrived, perhaps behind unread bytes
    void reset_on_close();     // close with RST

  private:
    Io tls_result(int rv, bool reading);
    int fd_;
    ssl_st* ssl_;
};

}  // namespace zerohop::net
