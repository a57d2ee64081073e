#include "net/tls_context.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <string>
#include <string_view>

#include "base/file.h"

namespace zerohop::net {
namespace {

constexpr long kTicketSeconds = 3600;

// ECDHE with AEAD only (RFC 9325 §4.2); TLS 1.3 suites are OpenSSL's own list, all of that kind.
constexpr const char* kTls12Ciphers =
    "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384:"
    "ECDHE-RSA-AES256-GCM-SHA384:ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305";

int select_alpn(SSL*, const unsigned char** out, unsigned char* out_size, const unsigned char* in,
                unsigned int in_size, void*) {
    static constexpr unsigned char kOurs[] = "\x02h2\x08http/1.1";
    unsigned char* chosen = nullptr;
    if (SSL_select_next_proto(&chosen, out_size, kOurs, sizeof kOurs - 1, in, in_size) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

bool configure(SSL_CTX* ctx) {
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                 SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA);
    SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                              SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    // One read handles what one read from the socket brought, whatever else keeps coming.
    SSL_CTX_clear_mode(ctx, SSL_MODE_AUTO_RETRY);
    SSL_CTX_set_read_ahead(ctx, 1);  // a record's head and body in one read
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_num_tickets(ctx, 1);
    SSL_CTX_set_timeout(ctx, kTicketSeconds);
    SSL_CTX_set_max_early_data(ctx, 0);
    SSL_CTX_set_alpn_select_cb(ctx, &select_alpn, nullptr);
    return SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) == 1 &&
           SSL_CTX_set_cipher_list(ctx, kTls12Ciphers) == 1 &&
           SSL_CTX_set1_groups_list(ctx, "X25519:P-256:P-384") == 1;
}

}  // namespace

std::string tls_error_text() {
    const unsigned long code = ERR_peek_last_error();
    ERR_clear_error();
    if (code == 0) return "unknown error";
    const char* reason = ERR_reason_error_string(code);
    return reason != nullptr ? reason : fmt::format("error {:x}", code);
}

Result<std::shared_ptr<TlsContext>> TlsContext::load(const TlsFiles& files) {
    for (const std::string& file : {files.certificate, files.key})
        if (Status s = check_file(file, "net"); !s)
            return fail(Code::kInvalidRequest, "net", "TLS: " + s.error().detail);
    ERR_clear_error();
    SSL_CTX* raw = SSL_CTX_new(TLS_server_method());
    if (raw == nullptr) return fail(Code::kInternal, "net", "out of memory for TLS");
    std::shared_ptr<TlsContext> context(new TlsContext(raw));
    if (!configure(raw))
        return fail(Code::kInternal, "net", "TLS settings refused: " + tls_error_text());
    if (SSL_CTX_use_certificate_chain_file(raw, files.certificate.c_str()) != 1)
        return fail(Code::kInvalidRequest, "net",
                    fmt::format("TLS certificate {}: {}", files.certificate, tls_error_text()));
    if (SSL_CTX_use_PrivateKey_file(raw, files.key.c_str(), SSL_FILETYPE_PEM) != 1)
        return fail(Code::kInvalidRequest, "net",
                    fmt::format("TLS key {}: {}", files.key, tls_error_text()));
    if (SSL_CTX_check_private_key(raw) != 1)
        return fail(Code::kInvalidRequest, "net",
                    fmt::format("TLS key {} does not belong to certificate {}", files.key,
                                files.certificate));
    if (X509_cmp_current_time(X509_get0_notAfter(SSL_CTX_get0_certificate(raw))) < 0)
        return fail(Code::kInvalidRequest, "net",
                    fmt::format("TLS certificate {} has expired", files.certificate));
    STACK_OF(X509)* chain = nullptr;
    SSL_CTX_get0_chain_certs(raw, static_cast<void*>(&chain));
    context->chain_length_ = 1 + (chain == nullptr ? 0 : sk_X509_num(chain));
    return context;
}

TlsContext::~TlsContext() { SSL_CTX_free(context_); }

ssl_st* TlsContext::make(int fd) const {
    SSL* ssl = SSL_new(context_);
    if (ssl == nullptr) return nullptr;
    if (SSL_set_fd(ssl, fd) != 1) {
        SSL_free(ssl);
        return nullptr;
    }
    SSL_set_accept_state(ssl);
    return ssl;
}

}  // namespace zerohop::net
