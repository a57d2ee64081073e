#include "net/dev_cert.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

namespace zerohop::net {
namespace {

constexpr long kDay = 24 * 3600;
constexpr long kValid = 397 * kDay;  // what browsers accept at most
constexpr long kRenewBefore = 7 * kDay;

template <auto Free>
struct Deleter {
    template <class T>
    void operator()(T* p) const {
        Free(p);
    }
};
using Key = std::unique_ptr<EVP_PKEY, Deleter<EVP_PKEY_free>>;
using Cert = std::unique_ptr<X509, Deleter<X509_free>>;
using Bio = std::unique_ptr<BIO, Deleter<BIO_free_all>>;

bool add_extension(X509* cert, X509* issuer, int nid, const char* value) {
    X509V3_CTX context;
    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, issuer, cert, nullptr, nullptr, 0);
    X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, nid, value);
    if (extension == nullptr) return false;
    const bool added = X509_add_ext(cert, extension, -1) == 1;
    X509_EXTENSION_free(extension);
    return added;
}

Cert new_certificate(EVP_PKEY* key, const char* name) {
    Cert cert(X509_new());
    unsigned char serial[16];
    if (!cert || RAND_bytes(serial, sizeof serial) != 1) return nullptr;
    serial[0] &= 0x7f;
    std::unique_ptr<BIGNUM, Deleter<BN_free>> number(BN_bin2bn(serial, sizeof serial, nullptr));
    BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(cert.get()));
    X509_set_version(cert.get(), X509_VERSION_3);
    X509_gmtime_adj(X509_getm_notBefore(cert.get()), -kDay);
    X509_gmtime_adj(X509_getm_notAfter(cert.get()), kValid);
    X509_set_pubkey(cert.get(), key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(cert.get()), "CN", MBSTRING_UTF8,
                               reinterpret_cast<const unsigned char*>(name), -1, -1, 0);
    return cert;
}

struct Made {
    Key key;
    Cert leaf;
    Cert ca;
};

Result<Made> make() {
    ERR_clear_error();
    Key ca_key(EVP_EC_gen("P-256"));
    Made made{.key = Key(EVP_EC_gen("P-256")), .leaf = nullptr, .ca = nullptr};
    bool good = ca_key && made.key;
    if (good) {
        made.ca = new_certificate(ca_key.get(), "zerohop development authority");
        made.leaf = new_certificate(made.key.get(), "localhost");
        good = made.ca && made.leaf;
    }
    if (good) {
        X509* ca = made.ca.get();
        X509* leaf = made.leaf.get();
        X509_set_issuer_name(ca, X509_get_subject_name(ca));
        X509_set_issuer_name(leaf, X509_get_subject_name(ca));
        good = add_extension(ca, ca, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
               add_extension(ca, ca, NID_key_usage, "critical,keyCertSign,cRLSign") &&
               add_extension(ca, ca, NID_subject_key_identifier, "hash") &&
               add_extension(ca, ca, NID_name_constraints,
                             "critical,permitted;DNS:localhost,"
                             "permitted;IP:127.0.0.0/255.0.0.0,"
                             "permitted;IP:::1/FFFF:FFFF:FFFF:FFFF:FFFF:FFFF:FFFF:FFFF") &&
               X509_sign(ca, ca_key.get(), EVP_sha256()) > 0 &&
               add_extension(leaf, ca, NID_basic_constraints, "critical,CA:FALSE") &&
               add_extension(leaf, ca, NID_key_usage, "critical,digitalSignature") &&
               add_extension(leaf, ca, NID_ext_key_usage, "serverAuth") &&
               add_extension(leaf, ca, NID_subject_key_identifier, "hash") &&
               add_extension(leaf, ca, NID_authority_key_identifier, "keyid:always") &&
               add_extension(leaf, ca, NID_subject_alt_name, "DNS:localhost,IP:127.0.0.1,IP:::1") &&
               X509_sign(leaf, ca_key.get(), EVP_sha256()) > 0;
    }
    if (!good) return fail(Code::kInternal, "net", "development certificate: " + tls_error_text());
    return made;
}

std::string pem(BIO* bio) {
    char* data = nullptr;
    const long size = BIO_get_mem_data(bio, &data);
    return {data, static_cast<std::size_t>(size)};
}

std::string to_pem(X509* cert) {
    Bio bio(BIO_new(BIO_s_mem()));
    PEM_write_bio_X509(bio.get(), cert);
    return pem(bio.get());
}

std::string to_pem(EVP_PKEY* key) {
    Bio bio(BIO_new(BIO_s_mem()));
    PEM_write_bio_PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr);
    return pem(bio.get());
}

Status write_file(const std::string& path, const std::string& text, mode_t mode) {
    const std::string beside = path + ".new";
    ::unlink(beside.c_str());
    const int fd = ::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    bool good =
        fd >= 0 && ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    good = good && ::fsync(fd) == 0;
    if (fd >= 0) good = ::close(fd) == 0 && good;
    if (good && ::rename(beside.c_str(), path.c_str()) == 0) return {};
    const std::string reason = std::strerror(errno);
    ::unlink(beside.c_str());
    return fail(Code::kInternal, "net", fmt::format("cannot write {}: {}", path, reason));
}

Cert read_certificate(const std::string& path) {
    Bio bio(BIO_new_file(path.c_str(), "r"));
    return Cert(bio ? PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr) : nullptr);
}

// The files belong together and stay valid for a while.
bool still_good(const DevCert& dev) {
    const Cert ca = read_certificate(dev.ca);
    const Cert leaf = read_certificate(dev.files.certificate);
    std::time_t soon = std::time(nullptr) + kRenewBefore;
    const bool good = ca && leaf && X509_check_issued(ca.get(), leaf.get()) == X509_V_OK &&
                      X509_verify(leaf.get(), X509_get0_pubkey(ca.get())) == 1 &&
                      X509_cmp_time(X509_get0_notAfter(leaf.get()), &soon) > 0 &&
                      TlsContext::load(dev.files).has_value();
    ERR_clear_error();
    return good;
}

}  // namespace

Result<DevCert> ensure_dev_cert(const std::string& folder) {
    std::error_code ec;
    if (!std::filesystem::exists(folder, ec)) {
        std::filesystem::create_directories(folder, ec);
        if (!ec) ::chmod(folder.c_str(), 0700);
    }
    if (ec)
        return fail(Code::kInternal, "net",
                    fmt::format("cannot make {}: {}", folder, ec.message()));
    DevCert dev{.files = {.certificate = folder + "/cert.pem", .key = folder + "/key.pem"},
                .ca = folder + "/ca.pem"};
    if (still_good(dev)) return dev;
    auto made = make();
    if (!made) return std::unexpected(std::move(made.error()));
    const std::string ca = to_pem(made->ca.get());
    if (Status s = write_file(dev.files.key, to_pem(made->key.get()), 0600); !s)
        return std::unexpected(std::move(s.error()));
    if (Status s = write_file(dev.ca, ca, 0644); !s) return std::unexpected(std::move(s.error()));
    if (Status s = write_file(dev.files.certificate, to_pem(made->leaf.get()) + ca, 0644); !s)
        return std::unexpected(std::move(s.error()));
    dev.created = true;
    return dev;
}

}  // namespace zerohop::net
