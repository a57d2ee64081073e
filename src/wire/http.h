// The HTTP vocabulary that h1 and h2 share: a request head, a response head, and the two interfaces
// a request lives between.
//
//     net (bytes) -> wire session -> Dispatcher::on_head -> Exchange   (client's side, api)
//     Exchange -> Responder (server's side, implemented by the wire session) -> net (bytes)
//
// Owning thread: the connection's I/O thread, for everything here.
// Lifetime: the session owns the Exchange and destroys it after the response ended and the request
// is over, or after on_disconnect(). A Responder is valid from on_head until its Exchange's
// destructor returns, but after on_disconnect() no method but buffered_bytes() does anything.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/loop.h"

namespace zerohop::wire {

struct Header {
    std::string name;   // lower case
    std::string value;  // no surrounding white space
};

enum class Protocol : std::uint8_t { kHttp11, kHttp2 };

struct RequestHead {
    std::string method;     // as sent, upper case by convention
    std::string target;     // origin form: raw path and query
    std::string authority;  // Host or :authority; of an absolute target its own
    std::vector<Header> headers;
    Protocol protocol = Protocol::kHttp11;
    bool tls = false;
    std::string peer;                  // "127.0.0.1" or "::1", no port
    std::int64_t content_length = -1;  // -1: unknown (chunked, or h2 without the header)
    bool has_body = false;
    bool expects_continue = false;
    MonoNs first_byte_ns = 0;  // first byte of this head seen
    MonoNs decoded_ns = 0;     // head complete

    // First value of a header (lower-case name), "" when absent.
    std::string_view header(std::string_view name) const {
        for (const Header& h : headers)
            if (h.name == name) return h.value;
        return {};
    }
    bool has(std::string_view name) const {
        for (const Header& h : headers)
            if (h.name == name) return true;
        return false;
    }
    // Whether a header came more than once and with different values, so that header() tells only a
    // part of what was said.
    bool differs(std::string_view name) const {
        const Header* first = nullptr;
        for (const Header& h : headers) {
            if (h.name != name) continue;
            if (first == nullptr)
                first = &h;
            else if (h.value != first->value)
                return true;
        }
        return false;
    }
    std::string_view path() const { return std::string_view(target).substr(0, target.find('?')); }
    std::string_view query() const {
        const auto at = target.find('?');
        return at == std::string::npos ? std::string_view{}
                                       : std::string_view(target).substr(at + 1);
    }
};

struct ResponseHead {
    int status = 200;
    std::vector<Header> headers;  // names in lower case; no connection-level headers: the session's
    // Body size when known (the session sets content-length), -1: streamed (chunked / DATA frames).
    std::int64_t content_length = -1;
};

class Responder {
  public:
    virtual ~Responder() = default;
    virtual Loop& loop() = 0;

    // 100 Continue, when the head expects it; otherwise nothing. At most once, before send_head.
    virtual void send_continue() = 0;
    // Exactly once. A response that ends before the request's body was read is delivered in full:
    // the session drains or half-closes as its protocol needs (wire-contract §6.4).
    virtual void send_head(const ResponseHead& head) = 0;
    // Queues and flushes as the peer takes it; never blocks, never refuses. Callers watch
    // buffered_bytes() and stop above Exchange's own bound until on_writable().
    virtual void send_body(std::string_view bytes) = 0;
    // The response is complete.
    virtual void finish() = 0;
    // Gives up a response that cannot be completed: h1 resets the connection, h2 the stream
    // (INTERNAL_ERROR). The Exchange is destroyed later, not within the call.
    virtual void abort() = 0;
    // Bytes accepted and not yet handed to the kernel, of this response.
    virtual std::size_t buffered_bytes() const = 0;
};

class Exchange {
  public:
    virtual ~Exchange() = default;
    virtual void on_body(std::string_view bytes) = 0;  // valid during the call
    virtual void on_body_end() = 0;                    // the request is complete
    virtual void on_writable() = 0;                    // buffered_bytes() fell to 0
    // The client is gone (FIN, RST, RST_STREAM with any code, time-out) before the response ended.
    virtual void on_disconnect() = 0;
};

struct WireError;
struct WireAnswer;

class Dispatcher {
  public:
    virtual ~Dispatcher() = default;
    // What the client is told when the wire refuses by itself (wire_error.h). Whole.
    virtual WireAnswer refusal(const WireError& error) = 0;
    // Called as soon as the head is decoded, before any body byte is handed on. May answer at once.
    // Never returns null.
    virtual std::unique_ptr<Exchange> on_head(const RequestHead& head, Responder& responder) = 0;
};

}  // namespace zerohop::wire
