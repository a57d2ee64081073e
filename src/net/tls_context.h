// TlsContext: certificate, key and protocol settings that new TLS connections start from.
//
// Immutable after load(); shared by all I/O threads through shared_ptr. A reload makes a new one,
// connections keep the one they began with (OpenSSL counts references).
// TLS 1.2 and 1.3, forward secrecy and AEAD only; ALPN h2 and http/1.1 (RFC 7301: no common
// protocol is a fatal no_application_protocol alert); no renegotiation, no compression, no
// server-side session cache, one ticket per connection.
#pragma once

#include <memory>
#include <string>

#include "base/error.h"

struct ssl_ctx_st;
struct ssl_st;

namespace zerohop::net {

struct TlsFiles {
    std::string certificate;  // PEM: leaf first, then the intermediate certificates
    std::string key;          // PEM
};

class TlsContext {
  public:
    // Errors: kInvalidRequest naming the file and what is wrong with it (unreadable, not PEM, key
    // of another certificate, expired).
    static Result<std::shared_ptr<TlsContext>> load(const TlsFiles& files);
    ~TlsContext();
    TlsContext(const TlsContext&) = delete;
    TlsContext& operator=(const TlsContext&) = delete;

    // A server-side connection on fd, which the caller keeps; null when out of memory. The caller
    // frees it with SSL_free.
    ssl_st* make(int fd) const;
    // Number of certificates served, the leaf included.
    int chain_length() const { return chain_length_; }

  private:
    explicit TlsContext(ssl_ctx_st* context) : context_(context) {}
    ssl_ctx_st* context_;
    int chain_length_ = 1;
};

// Last OpenSSL error of this thread in words; clears its queue.
std::string tls_error_text();

}  // namespace zerohop::net
