// Session: one connection's protocol, without its socket. Bytes in, bytes out, requests between.
//
//     Connection (net) --on_bytes--> Session --on_head--> Dispatcher, --on_body--> Exchange
//     Connection <--output/consumed-- Session <--send_body-- Exchange
//
// Owning thread: the connection's I/O thread, for everything.
// Lifetime: the host outlives the session. The session owns its exchanges; destroying it without
// on_disconnect() first disconnects them.
// Re-entrancy: an Exchange may call its Responder from within any of its callbacks. Sessions change
// what they own (destroying exchanges, starting the next pipelined request) only in output(), which
// the host calls at the end of each turn after wake(), on_bytes() or tick().
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/loop.h"
#include "wire/http.h"
#include "wire/limits.h"

namespace zerohop::wire {

class SessionHost {
  public:
    virtual ~SessionHost() = default;
    virtual Loop& loop() = 0;
    virtual MonoNs now() = 0;
    // Call output() before this turn of the loop ends. Cheap, may be repeated.
    virtual void wake() = 0;
    // Live exchanges of this session changed by `delta`.
    virtual void on_exchanges(int delta) = 0;
};

struct Peer {
    std::string address;  // no port
    bool tls = false;
};

enum class Closing {
    kOpen,
    kFlush,  // send all output, then half-close, drop what still comes, close
    kReset,  // close at once with a reset
};

class Session {
  public:
    virtual ~Session() = default;

    // Input. Never fails: a protocol error becomes output and closing().
    virtual void on_bytes(std::string_view bytes) = 0;
    // The peer sent FIN (or close_notify): unfinished requests count as cancelled.
    virtual void on_eof() = 0;
    // The connection is lost, or given up. Nothing is sent any more.
    virtual void on_disconnect() = 0;

    // The next bytes to send, contiguous; "" when there are none now. The same bytes are given
    // again (perhaps with more behind them) until consumed() took them.
    virtual std::string_view output() = 0;
    virtual void consumed(std::size_t n) = 0;

    // False while the peer has to wait: too much is pipelined.
    virtual bool wants_read() const = 0;
    virtual Closing closing() const = 0;

    // Looks at the clock; called a few times per second. The only source of time-outs.
    virtual void tick() = 0;
    // No new requests beyond those begun: h1 `connection: close`, h2 GOAWAY; idle ones close.
    virtual void drain() = 0;
    // Bytes held in memory for this connection (both directions).
    virtual std::size_t buffered() const = 0;
    virtual std::size_t exchanges() const = 0;
    // Answers of which bytes wait for the peer: each has to be taken at Limits::min_rate.
    virtual std::size_t answers_waiting() const = 0;
};

// HTTP/2's client preface (RFC 9113 §3.4).
inline constexpr std::string_view kH2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

std::unique_ptr<Session> make_h1_session(SessionHost& host, Dispatcher& dispatcher,
                                         const Limits& limits, Peer peer);
// Expects the client's preface first. The limits are kept by reference in both.
std::unique_ptr<Session> make_h2_session(SessionHost& host, Dispatcher& dispatcher,
                                         const Limits& limits, Peer peer);

}  // namespace zerohop::wire
