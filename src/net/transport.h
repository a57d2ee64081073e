// Transport: a nonblocking socket with or without TLS, as three calls.
//
// OpenSSL writes into `rest_` what the socket does not take at once, a record at most and answers
// to KeyUpdates: no record is ever half written for it, so that it may be asked to read at any time
// (a KeyUpdate that comes within a half-written record ends the connection, OpenSSL 3.0).
// Owning thread: the connection's I/O thread. Owns the descriptor and the SSL object; the
// destructor closes. Nothing throws; errors are values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
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
    Transport(int fd, ssl_st* ssl);
    ~Transport();
    Transport(const Transport&) = delete;
    Transport& operator=(const Transport&) = delete;

    int fd() const { return fd_; }
    bool tls() const { return ssl_ != nullptr; }
    Io handshake();
    bool alpn_h2() const;
    IoResult read(char* to, std::size_t most);
    IoResult write(std::string_view bytes);  // "": what has_unsent() tells of
    bool has_unsent() const { return !rest_.empty(); }
    bool has_pending() const;     // decrypted or buffered bytes that no readiness will announce
    void shutdown_write();        // close_notify and FIN, as far as they go at once
    std::uint64_t taken() const;  // bytes on the wire that the peer has acknowledged, ever
    bool peer_gone() const;       // FIN or reset has arrived, perhaps behind unread bytes
    void reset_on_close();        // close with RST

  private:
    friend struct SocketBio;
    Io tls_result(int rv, bool reading);
    IoResult send(std::string_view bytes);
    Io send_rest();
    int fd_;
    ssl_st* ssl_;
    std::string rest_;           // written by OpenSSL, not yet taken by the socket
    std::uint64_t written_ = 0;  // bytes the socket took
};

}  // namespace zerohop::net
