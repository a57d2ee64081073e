#include "net/transport.h"

#include <linux/sockios.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>

namespace zerohop::net {

namespace {
// Beyond it nothing is read: who asks for KeyUpdates and takes none of their answers.
constexpr std::size_t kMostRest = 64 * 1024;
}  // namespace

struct SocketBio {
    static int write(BIO* bio, const char* bytes, std::size_t n, std::size_t* written) {
        Transport& self = *static_cast<Transport*>(BIO_get_data(bio));
        IoResult r{.io = Io::kWantWrite, .n = 0};
        if (self.rest_.empty()) r = self.send({bytes, n});
        if (r.io == Io::kError) return 0;
        self.rest_.append(bytes + r.n, n - r.n);
        *written = n;
        return 1;
    }
    static long control(BIO*, int what, long, void*) { return what == BIO_CTRL_FLUSH ? 1 : 0; }
    static BIO_METHOD* method() {
        static BIO_METHOD* const made = [] {
            BIO_METHOD* m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket");
            BIO_meth_set_write_ex(m, &write);
            BIO_meth_set_ctrl(m, &control);
            return m;
        }();
        return made;
    }
};

Transport::Transport(int fd, ssl_st* ssl) : fd_(fd), ssl_(ssl) {
    if (ssl_ == nullptr) return;
    BIO* const out = BIO_new(SocketBio::method());
    BIO_set_data(out, this);
    BIO_set_init(out, 1);
    SSL_set0_wbio(ssl_, out);
}

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
    const Io io = rv == 1 ? Io::kDone : tls_result(rv, true);
    if (io != Io::kDone && io != Io::kWantRead) return io;
    const Io rest = send_rest();
    return rest == Io::kDone ? io : rest;
}

bool Transport::alpn_h2() const {
    const unsigned char* name = nullptr;
    unsigned int size = 0;
    if (ssl_ != nullptr) SSL_get0_alpn_selected(ssl_, &name, &size);
    return size == 2 && name[0] == 'h' && name[1] == '2';
}

IoResult Transport::read(char* to, std::size_t most) {
    if (ssl_ != nullptr) {
        if (rest_.size() > kMostRest) return {Io::kWantWrite, 0};
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
        if (const Io rest = send_rest(); rest != Io::kDone || bytes.empty()) return {rest, 0};
        ERR_clear_error();
        std::size_t n = 0;
        const int rv = SSL_write_ex(ssl_, bytes.data(), bytes.size(), &n);
        if (rv == 1) return {Io::kDone, n};
        return {tls_result(rv, false), 0};
    }
    return send(bytes);
}

IoResult Transport::send(std::string_view bytes) {
    while (true) {
        const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (n >= 0) {
            written_ += static_cast<std::uint64_t>(n);
            return {Io::kDone, static_cast<std::size_t>(n)};
        }
        if (errno == EINTR) continue;
        return {errno == EAGAIN || errno == EWOULDBLOCK ? Io::kWantWrite : Io::kError, 0};
    }
}

Io Transport::send_rest() {
    if (rest_.empty()) return Io::kDone;
    const IoResult r = send(rest_);
    rest_.erase(0, r.n);
    if (rest_.empty()) std::string().swap(rest_);
    return r.io != Io::kDone ? r.io : rest_.empty() ? Io::kDone : Io::kWantWrite;
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

std::uint64_t Transport::taken() const {
    int queued = 0;  // by the kernel, not yet acknowledged
    if (::ioctl(fd_, SIOCOUTQ, &queued) != 0) return written_;
    return written_ - std::min(written_, static_cast<std::uint64_t>(queued));
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
