#include "net/connection.h"

#include <sys/epoll.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "net/worker.h"

namespace zerohop::net {

namespace {

// One connection's share of a turn; then others get theirs.
constexpr std::size_t kReadPerTurn = 256 * 1024;
constexpr std::size_t kWritePerTurn = 1024 * 1024;

}  // namespace

Connection::Connection(Worker& worker, ServerState& state, int fd, ssl_st* ssl, wire::Peer peer,
                       std::string key)
    : worker_(worker),
      state_(state),
      transport_(fd, ssl),
      watch_(worker.loop(), fd, *this),
      peer_(std::move(peer)),
      address_key_(std::move(key)) {
    state_.connections.fetch_add(1, std::memory_order_relaxed);
}

Connection::~Connection() {
    watch_.forget();  // the transport closes
    state_.addresses.remove(address_key_);
    state_.connections.fetch_sub(1, std::memory_order_relaxed);
}

Loop& Connection::loop() { return worker_.loop(); }

void Connection::wake() {
    if (at_ == State::kClosed || std::exchange(dirty_, true)) return;
    worker_.loop().at_turn_end(shared_from_this());
}

void Connection::on_exchanges(int delta) {
    state_.exchanges.fetch_add(delta, std::memory_order_relaxed);
}

void Connection::start() {
    since_ = mono_now();
    at_ = transport_.tls() ? State::kHandshake : State::kSniff;
    arm_read();
}

void Connection::arm_read() {
    if (at_ != State::kClosed) watch_.wait_for(EPOLLIN);
}

void Connection::arm_write() {
    if (at_ != State::kClosed) watch_.wait_for(EPOLLOUT);
}

void Connection::on_ready(std::uint32_t events) {
    if (at_ == State::kHandshake) return continue_handshake();
    if ((events & EPOLLIN) != 0) read_some();
    if ((events & EPOLLOUT) != 0) wake();
}

void Connection::continue_handshake() {
    switch (transport_.handshake()) {
        case Io::kWantRead:
            return arm_read();
        case Io::kWantWrite:
            return arm_write();
        case Io::kDone:
            break;
        default:
            state_.tls_failed.fetch_add(1, std::memory_order_relaxed);
            log_debug("net", "TLS handshake with {} failed: {}", peer_.address, tls_error_text());
            return close();
    }
    open(transport_.alpn_h2());
    read_some();
}

void Connection::open(bool h2) {
    at_ = State::kOpen;
    since_ = mono_now();
    session_ = h2 ? wire::make_h2_session(*this, state_.dispatcher, state_.limits.wire, peer_)
                  : wire::make_h1_session(*this, state_.dispatcher, state_.limits.wire, peer_);
    if (state_.draining.load(std::memory_order_relaxed)) session_->drain();
    wake();
}

// Reads until there is no more, the session has enough, or others are due.
void Connection::read_some() {
    read_again_ = false;
    std::size_t total = 0;
    while (at_ != State::kClosed) {
        if (session_ && at_ == State::kOpen && !session_->wants_read()) {
            read_again_ = true;  // flush() goes on when the session wants more
            return;
        }
        if (total >= kReadPerTurn) {
            worker_.loop().post([self = shared_from_this()] {
                if (self->at_ != State::kClosed && !self->watch_.waits_for(EPOLLIN))
                    self->read_some();
            });
            return;
        }
        char* buffer = worker_.loop().read_buffer();
        const IoResult r = transport_.read(buffer, IoLoop::kReadBufferBytes);
        if (transport_.has_unsent()) wake();
        if (r.io == Io::kWantRead) return arm_read();
        if (r.io == Io::kWantWrite) {
            read_again_ = true;  // once what waits is written
            return arm_write();
        }
        if (r.io != Io::kDone) return on_input_end(r.io);
        total += r.n;
        on_input({buffer, r.n});
        // It may have been all: the loop tells at once if not, for less than a read in vain.
        const bool maybe_all =
            transport_.tls() ? !transport_.has_pending() : r.n < IoLoop::kReadBufferBytes;
        if (maybe_all && at_ != State::kClosed) {
            read_again_ = session_ && at_ == State::kOpen && !session_->wants_read();
            return read_again_ ? static_cast<void>(0) : arm_read();
        }
    }
}

void Connection::on_input(std::string_view bytes) {
    state_.bytes_in.fetch_add(bytes.size(), std::memory_order_relaxed);
    switch (at_) {
        case State::kSniff:
            return sniff(bytes);
        case State::kOpen:
            return session_->on_bytes(bytes);
        case State::kLinger:
            lingered_ += bytes.size();
            linger_last_ = mono_now();
            if (lingered_ > state_.limits.wire.linger_bytes) close();
            return;
        default:
            return;
    }
}

// Plain text: HTTP/2 begins with its preface, anything else is HTTP/1.
void Connection::sniff(std::string_view bytes) {
    sniffed_ += bytes;
    const std::size_t n = std::min(sniffed_.size(), wire::kH2Preface.size());
    const bool same = std::string_view(sniffed_).substr(0, n) == wire::kH2Preface.substr(0, n);
    if (same && n < wire::kH2Preface.size()) return;
    open(same);
    const std::string first = std::exchange(sniffed_, {});
    session_->on_bytes(first);
}

void Connection::on_input_end(Io why) {
    if (session_ == nullptr || at_ == State::kLinger) return close();
    if (why == Io::kEof) {
        session_->on_eof();
        wake();
    } else {
        session_->on_disconnect();
        close();
    }
}

void Connection::end_of_turn() {
    dirty_ = false;
    if (at_ == State::kOpen) flush();
}

void Connection::flush() {
    std::size_t total = 0;
    bool blocked = false;
    bool all_sent = false;
    while (!blocked) {
        const std::string_view bytes = session_->output();
        if (session_->closing() == wire::Closing::kReset) {
            transport_.reset_on_close();
            return close();
        }
        all_sent = bytes.empty() && !transport_.has_unsent();
        if (all_sent) break;
        if (total >= kWritePerTurn) {
            worker_.loop().post([self = shared_from_this()] {
                if (self->at_ == State::kOpen) self->wake();
            });
            break;
        }
        const IoResult r = transport_.write(bytes);
        if (r.io == Io::kDone) {
            total += r.n;
            session_->consumed(r.n);
        } else if (r.io == Io::kWantWrite) {
            arm_write();
            blocked = true;
        } else if (r.io == Io::kWantRead) {
            arm_read();
            blocked = true;
        } else {
            session_->on_disconnect();
            return close();
        }
    }
    state_.bytes_out.fetch_add(total, std::memory_order_relaxed);
    blocked_ = blocked;
    recount();
    if (all_sent && session_->closing() == wire::Closing::kFlush) return begin_linger();
    if (read_again_ && session_->wants_read()) {
        read_again_ = false;
        worker_.loop().post([self = shared_from_this()] {
            if (self->at_ != State::kClosed && !self->watch_.waits_for(EPOLLIN)) self->read_some();
        });
    }
}

void Connection::begin_linger() {
    transport_.shutdown_write();
    at_ = State::kLinger;
    since_ = linger_last_ = mono_now();
    session_.reset();
    recount();
    if (!watch_.waits_for(EPOLLIN))
        worker_.loop().post([self = shared_from_this()] {
            if (self->at_ == State::kLinger && !self->watch_.waits_for(EPOLLIN)) self->read_some();
        });
}

void Connection::recount() {
    const std::size_t now = session_ ? session_->buffered() : 0;
    if (now == counted_) return;
    state_.buffered.fetch_add(static_cast<std::int64_t>(now) - static_cast<std::int64_t>(counted_),
                              std::memory_order_relaxed);
    counted_ = now;
}

void Connection::tick(MonoNs now) {
    const Limits& limits = state_.limits;
    const auto older = [now](MonoNs since, std::int64_t ms) { return now - since > ms * kNsPerMs; };
    switch (at_) {
        case State::kHandshake:
            if (older(since_, limits.handshake_ms)) drop("TLS handshake too slow");
            return;
        case State::kSniff:
            if (older(since_, sniffed_.empty() ? limits.wire.idle_ms : limits.wire.head_ms))
                drop("nothing sent");
            return;
        case State::kLinger:
            if (older(since_, limits.wire.linger_ms) ||
                older(linger_last_, limits.wire.linger_idle_ms))
                close();
            return;
        case State::kClosed:
            return;
        case State::kOpen:
            break;
    }
    if (!watch_.waits_for(EPOLLIN) &&
        transport_.peer_gone()) {  // not reading: nothing else would tell
        session_->on_eof();
        wake();
    }
    session_->tick();
    recount();
    if (counted_ > limits.connection_bytes) return drop("too much waits for it");
    if (is_taken_too_slowly(now)) return drop("takes its answer too slowly");
}

// What counts is what the peer acknowledged, not what its kernel let ours accept: that comes in
// steps of 32 KiB, two minutes apart at 256 bytes per second.
bool Connection::is_taken_too_slowly(MonoNs now) {
    if (!blocked_) {
        paced_ = false;
        return false;
    }
    wire::PaceRule rule = wire::take_pace(state_.limits.wire);
    rule.rate *= static_cast<std::int64_t>(std::max<std::size_t>(1, session_->answers_waiting()));
    const std::uint64_t taken = transport_.taken();
    if (!std::exchange(paced_, true))
        pace_.start(now, taken, rule);
    else
        pace_.moved(taken - std::min(taken, taken_), now, rule);
    taken_ = taken;
    return pace_.is_over(now);
}

void Connection::drain() {
    if (at_ == State::kOpen) session_->drain();  // earlier states: open() will tell the session
}

void Connection::drop(const char* why) {
    state_.dropped.fetch_add(1, std::memory_order_relaxed);
    log_debug("net", "closing connection of {}: {}", peer_.address, why);
    if (session_) session_->on_disconnect();
    transport_.reset_on_close();
    close();
}

void Connection::close() {
    if (std::exchange(at_, State::kClosed) == State::kClosed) return;
    if (session_) session_->on_disconnect();
    watch_.forget();
    // The session may be on the stack (a callback that led here): destroyed with the connection.
    const std::size_t counted = std::exchange(counted_, 0);
    state_.buffered.fetch_sub(static_cast<std::int64_t>(counted), std::memory_order_relaxed);
    worker_.remove(*this);
}

}  // namespace zerohop::net
