#include "net/worker.h"

#include <fmt/format.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <unistd.h>

#include <vector>

namespace zerohop::net {

void Worker::start(int number) {
    thread_ = std::thread([this, number] {
        pthread_setname_np(pthread_self(), fmt::format("io{}", number).c_str());
        loop_.turn([this] { loop_.after(state_.limits.tick_ms, [this] { tick(); }); });
        loop_.run();
    });
}

void Worker::adopt(int fd, bool tls, std::string address, std::string address_key) {
    ssl_st* ssl = nullptr;
    if (tls) {
        const auto context = state_.tls();
        ssl = context ? context->make(fd) : nullptr;
    }
    if (stopping_ || (tls && ssl == nullptr)) {
        ::close(fd);
        state_.addresses.remove(address_key);
        return;
    }
    auto connection = std::make_shared<Connection>(
        *this, state_, fd, ssl, wire::Peer{std::move(address), tls}, std::move(address_key));
    connections_.emplace(connection.get(), connection);
    connection->start();
}

void Worker::remove(Connection& connection) {
    const auto it = connections_.find(&connection);
    if (it == connections_.end()) return;
    // Kept until the turn is over: the caller is one of its own functions.
    loop_.post([keep = std::move(it->second)] {});
    connections_.erase(it);
}

void Worker::tick() {
    if (stopping_) return;
    const MonoNs now = mono_now();
    std::vector<std::shared_ptr<Connection>> all;  // tick() may close, which changes the map
    all.reserve(connections_.size());
    for (const auto& [raw, connection] : connections_) all.push_back(connection);
    for (const auto& connection : all) connection->tick(now);
    if (static_cast<std::size_t>(state_.buffered.load(std::memory_order_relaxed)) >
        state_.limits.total_bytes)
        shed();
    loop_.after(state_.limits.tick_ms, [this] { tick(); });
}

void Worker::shed() {
    std::shared_ptr<Connection> greatest;
    for (const auto& [raw, connection] : connections_)
        if (connection->buffered() > 0 &&
            (greatest == nullptr || connection->buffered() > greatest->buffered()))
            greatest = connection;
    if (greatest) greatest->drop("memory for all connections is used up");
}

void Worker::post_drain() {
    loop_.post([this] {
        std::vector<std::shared_ptr<Connection>> all;
        for (const auto& [raw, connection] : connections_) all.push_back(connection);
        for (const auto& connection : all) connection->drain();
    });
}

void Worker::post_stop() {
    loop_.post([this] {
        stopping_ = true;
        std::vector<std::shared_ptr<Connection>> all;
        for (const auto& [raw, connection] : connections_) all.push_back(connection);
        for (const auto& connection : all) connection->close();
        loop_.post([this] { loop_.stop(); });  // after the posts that closing made
    });
}

void Worker::join() {
    if (thread_.joinable()) thread_.join();
}

}  // namespace zerohop::net
