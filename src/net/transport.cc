#include "net/transport.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>

namespace zerohop::net {

Transport::~Transport() {
    if (ssl_ != nullptr) SSL_free(ssl_);
    ::close(fd_);
}

Io Transport::tls_result(int rv, bool reading) {
    switch (SSL_get_error(ssl_, rv)) {
        case SSL_ERROR_WANT_READ:
            return Io::kWantRead;
        case SSL_ERROR_WANT_WRITE:
            return Io::kWantWrite;
        case SSL_ERROR_ZERO_RETURN:
            return reading ? Io::kEof : Io::kError;
        case SSL_ERROR_SSL:
            // A FIN without close_notify: common, and a request's own framing shows truncation.
            if (reading && ERR_GET_REASON(ERR_peek_error()) == SSL_R_UNEXPECTED_EOF_WHILE_READING)
                return Io::kEof;
            return Io::kError;
        default:
            return Io::kError;
    }
}

Io Transport::handshake() {
    if (ssl_ == nullptr) return Io::kDone;
    ERR_clear_error();
    const int rv = SSL_do_handshake(ssl_);
    return rv == 1 ? Io::kDone : tls_result(rv, true);
}

bool Transport::alpn_h2() const {
    const unsigned char* name = nullptr;
    unsigned int size = 0;
    if (ssl_ != nullptr) SSL_get0_alpn_selected(ssl_, &name, &size);
    return size == 2 && name[0] == 'h' && name[1] == '2';
}

IoResult Transport::read(char* to, std::size_t most) {
    if (ssl_ != nullptr) {
        ERR_clear_error();
        std::size_t n = 0;
        const int rv = SSL_read_ex(ssl_, to, most, &n);
        if (rv == 1) return {Io::kDone, n};
        return {tls_result(rv, true), 0};
    }
    while (true) {
        const ssize_t n = ::recv(fd_, to, most, 0);
        if (n > 0) return {Io::kDone, static_cast<std::size_t>(n)};
        if (n == 0) return {Io::kEof, 0};
        if (errno == EINTR) continue;
        return {errno == EAGAIN || errno == EWOULDBLOCK ? Io::kWantRead : Io::kError, 0};
    }
}

IoResult Transport::write(std::string_view bytes) {
    if (ssl_ != nullptr) {
        ERR_clear_error();
        std::size_t n = 0;
        const int rv = SSL_write_ex(ssl_, bytes.data(), bytes.size(), &n);
        if (rv == 1) return {Io::kDone, n};
        return {tls_result(rv, false), 0};
    }
    while (true) {
        const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (n >= 0) return {Io::kDone, static_cast<std::size_t>(n)};
        if (errno == EINTR) continue;
        return {errno == EAGAIN || errno == EWOULDBLOCK ? Io::kWantWrite : Io::kError, 0};
    }
}

bool Transport::has_pending() const { return ssl_ != nullptr && SSL_has_pending(ssl_) == 1; }

void Transport::shutdown_write() {
    if (ssl_ != nullptr && SSL_is_init_finished(ssl_) == 1) {
        ERR_clear_error();
        SSL_shutdown(ssl_);
        ERR_clear_error();
    }
    ::shutdown(fd_, SHUT_WR);
}

bool Transport::peer_gone() const {
    pollfd p{.fd = fd_, .events = POLLRDHUP, .revents = 0};
    return ::poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

void Transport::reset_on_close() {
    const linger abort_it{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &abort_it, sizeof abort_it);
}

}  // namespace zerohop::net
