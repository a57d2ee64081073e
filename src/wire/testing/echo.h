// What tests and fuzzers of wire and net share: a dispatcher with simple exchanges, a loop without
// a thread, and a driver that plays the connection for one session.
//
// Routes of EchoDispatcher (by path):
//     /collect    answers 200 with the whole body once it is complete (content-length)
//     /echo       answers at the head, sends each body piece back as it comes (streamed)
//     /hello      answers "hello" at the head          /early  413 at the head
//     /never      never answers                        /abort  begins an answer, then aborts
//     /flood      streams without end, 64 KiB at a time while less than that waits
//     others      404 once the request is complete
// Single thread per exchange; the dispatcher's records are under a mutex, for use by net tests.
#pragma once

#include <algorithm>
#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "wire/session.h"
#include "wire/wire_error.h"

namespace zerohop::wire::testing {

class EchoDispatcher final : public Dispatcher {
  public:
    std::unique_ptr<Exchange> on_head(const RequestHead& head, Responder& responder) override;
    WireAnswer refusal(const WireError& error) override {
        WireAnswer answer{
            .head = {.status = error.status, .headers = {{"x-refused", "by the wire"}}},
            .body = error.message};
        answer.head.content_length = static_cast<std::int64_t>(answer.body.size());
        return answer;
    }

    std::vector<RequestHead> heads() const {
        std::lock_guard lock(mutex_);
        return heads_;
    }
    std::vector<std::string> bodies() const {
        std::lock_guard lock(mutex_);
        return bodies_;
    }
    std::atomic<bool> record{true};
    std::atomic<int> live{0};
    std::atomic<int> disconnects{0};
    std::atomic<int> completed{0};        // requests read to their end
    std::atomic<std::size_t> flooded{0};  // bytes given by /flood
    std::atomic<std::size_t> most_buffered{0};
    std::atomic<std::size_t> received{0};  // body bytes

  private:
    friend class EchoExchange;
    mutable std::mutex mutex_;
    std::vector<RequestHead> heads_;
    std::vector<std::string> bodies_;
};

class EchoExchange final : public Exchange {
  public:
    EchoExchange(EchoDispatcher& owner, const RequestHead& head, Responder& responder)
        : owner_(owner), responder_(responder), path_(head.path()) {
        ++owner_.live;
    }
    ~EchoExchange() override { --owner_.live; }

    void begin() {
        if (path_ == "/hello") return answer(200, "hello");
        if (path_ == "/early") return answer(413, "{\"type\":\"error\"}");
        if (path_ == "/echo") responder_.send_head({.status = 200, .headers = {}});
        if (path_ == "/abort") {
            responder_.send_head({.status = 200, .headers = {}});
            responder_.send_body("partial");
            responder_.abort();
            done_ = true;
        }
        if (path_ == "/flood") {
            responder_.send_head({.status = 200, .headers = {}});
            flood();
        }
        if (path_ == "/collect") responder_.send_continue();
    }
    void on_body(std::string_view bytes) override {
        owner_.received += bytes.size();
        if (path_ == "/echo") return responder_.send_body(bytes);
        body_ += bytes;
    }
    void on_body_end() override {
        ++owner_.completed;
        if (owner_.record) {
            std::lock_guard lock(owner_.mutex_);
            owner_.bodies_.push_back(body_);
        }
        if (path_ == "/echo") return responder_.finish();
        if (path_ == "/collect") return answer(200, body_);
        if (path_ != "/never" && path_ != "/flood" && !done_) answer(404, "{}");
    }
    void on_writable() override {
        if (path_ == "/flood") flood();
    }
    void on_disconnect() override { ++owner_.disconnects; }

  private:
    void answer(int status, std::string_view body) {
        done_ = true;
        responder_.send_head({.status = status,
                              .headers = {{"content-type", "text/plain"}},
                              .content_length = static_cast<std::int64_t>(body.size())});
        responder_.send_body(body);
        responder_.finish();
    }
    void flood() {
        static const std::string piece(16 * 1024, 'x');
        while (responder_.buffered_bytes() < 64 * 1024) {
            responder_.send_body(piece);
            owner_.flooded += piece.size();
            if (responder_.buffered_bytes() == 0) return;  // dead
        }
        const std::size_t now = responder_.buffered_bytes();
        std::size_t most = owner_.most_buffered;
        while (now > most && !owner_.most_buffered.compare_exchange_weak(most, now)) {
        }
    }

    EchoDispatcher& owner_;
    Responder& responder_;
    std::string path_;
    std::string body_;
    bool done_ = false;
};

inline std::unique_ptr<Exchange> EchoDispatcher::on_head(const RequestHead& head,
                                                         Responder& responder) {
    if (record) {
        std::lock_guard lock(mutex_);
        heads_.push_back(head);
    }
    auto exchange = std::make_unique<EchoExchange>(*this, head, responder);
    exchange->begin();
    return exchange;
}

class FakeLoop final : public Loop {
  public:
    void post(std::function<void()> fn) override { fn(); }
    void signal(Ready& ready) noexcept override { ready.on_ready(); }
    TimerId after(std::int64_t, std::function<void()>) override { return 0; }
    void cancel(TimerId) override {}
};

// Plays the connection: gives bytes, takes all output, steps the clock.
class Driver final : public SessionHost {
  public:
    explicit Driver(bool h2, Limits l = {}) : limits(l) {
        session = h2 ? make_h2_session(*this, echo, limits, {"192.0.2.1", false})
                     : make_h1_session(*this, echo, limits, {"192.0.2.1", false});
        pump();
    }
    Loop& loop() override { return loop_; }
    MonoNs now() override { return clock; }
    void wake() override { woken = true; }
    void on_exchanges(int delta) override { exchanges += delta; }

    void feed(std::string_view bytes) {
        session->on_bytes(bytes);
        pump();
    }
    void feed_slowly(std::string_view bytes, std::size_t step = 1) {
        for (std::size_t at = 0; at < bytes.size(); at += step) feed(bytes.substr(at, step));
    }
    void eof() {
        session->on_eof();
        pump();
    }
    void pass_ms(std::int64_t ms) {
        clock += ms * kNsPerMs;
        session->tick();
        pump();
    }
    void pump() {
        woken = false;
        while (!blocked) {
            const std::string_view bytes = session->output();
            if (bytes.empty()) return;
            const std::size_t n = std::min(bytes.size(), write_step);
            if (keep_output) sent += bytes.substr(0, n);
            session->consumed(n);
            written += n;
            if (stop_after != 0 && written >= stop_after) blocked = true;
        }
    }
    Closing closing() const { return session->closing(); }

    Limits limits;
    EchoDispatcher echo;
    FakeLoop loop_;
    MonoNs clock = 1'000'000 * kNsPerMs;
    bool woken = false;
    bool blocked = false;  // the socket takes nothing
    bool keep_output = true;
    std::size_t write_step = static_cast<std::size_t>(-1);
    std::size_t stop_after = 0;  // blocks after this much output
    std::size_t written = 0;
    int exchanges = 0;
    std::string sent;
    std::unique_ptr<Session> session;
};

}  // namespace zerohop::wire::testing
