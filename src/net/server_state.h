// ServerState: what the server's threads share: limits, counters, the TLS context, address counts.
//
// Counters are relaxed atomics (readings are approximate); the rest is under its own mutex, taken
// only at accept and close. Lives as long as the Server.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "net/limits.h"
#include "net/tls_context.h"
#include "wire/http.h"

namespace zerohop::net {

// How many connections each peer address has.
class AddressCounts {
  public:
    // False, and nothing changed, when the address has `most` already.
    bool add(const std::string& address, std::size_t most);
    void remove(const std::string& address);

  private:
    std::mutex mutex_;
    std::unordered_map<std::string, std::size_t> counts_;
};

// The key an address is counted under: IPv4 whole, IPv6 by its /64 (one subscriber's network).
std::string address_key(const std::string& address);

struct ServerState {
    ServerState(const Limits& l, wire::Dispatcher& d) : limits(l), dispatcher(d) {}

    const Limits limits;
    wire::Dispatcher& dispatcher;
    AddressCounts addresses;

    std::shared_ptr<TlsContext> tls() const {
        std::lock_guard lock(tls_mutex_);
        return tls_context_;
    }
    void set_tls(std::shared_ptr<TlsContext> context) {
        std::lock_guard lock(tls_mutex_);
        tls_context_ = std::move(context);
    }

    std::atomic<bool> draining{false};
    std::atomic<std::int64_t> handing_over{0};  // listeners that still accept for a successor
    std::atomic<std::int64_t> connections{0};
    std::atomic<std::int64_t> exchanges{0};
    std::atomic<std::int64_t> buffered{0};  // bytes, all connections
    std::atomic<std::uint64_t> accepted{0};
    std::atomic<std::uint64_t> refused{0};  // over a connection limit or out of descriptors
    std::atomic<std::uint64_t> dropped{0};  // closed by us: time-outs, stalls, memory
    std::atomic<std::uint64_t> tls_failed{0};
    std::atomic<std::uint64_t> bytes_in{0};
    std::atomic<std::uint64_t> bytes_out{0};

  private:
    mutable std::mutex tls_mutex_;
    std::shared_ptr<TlsContext> tls_context_;
};

}  // namespace zerohop::net
