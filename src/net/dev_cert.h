// Development certificate: a certificate for localhost, 127.0.0.1 and ::1 that a first start makes.
//
// ECDSA P-256. A small authority signs one server certificate and its key is thrown away unsaved,
// so trusting ca.pem trusts nothing else, ever. Files in `folder` (made with mode 0700 when
// absent):
//     ca.pem    what clients are told to trust      cert.pem  leaf, then the authority
//     key.pem   the leaf's key, mode 0600
// Each is written beside its place and renamed, cert.pem last. Threads: one at a time per folder.
#pragma once

#include <string>

#include "base/error.h"
#include "net/tls_context.h"

namespace zerohop::net {

struct DevCert {
    TlsFiles files;
    std::string ca;        // path of ca.pem
    bool created = false;  // false: the files there were still good
};

// Uses what is in `folder` when it fits together and is valid for another week, else makes it anew.
// Errors: kInternal naming the path that cannot be written.
Result<DevCert> ensure_dev_cert(const std::string& folder);

}  // namespace zerohop::net
