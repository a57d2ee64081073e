#include "wire/h1_session.h"

#include <fmt/format.h>

#include <utility>

#include "wire/head.h"

namespace zerohop::wire {
namespace {

// A next pipelined request waits until the answers before it left this much.
constexpr std::size_t kPipelineOutput = 64 * 1024;
constexpr std::size_t kLeadingEmptyLines = 4;  // bytes of CRLF tolerated before a request line

}  // namespace

H1Session::H1Session(SessionHost& host, Dispatcher& dispatcher, const Limits& limits, Peer peer)
    : host_(host), dispatcher_(dispatcher), limits_(limits), peer_(std::move(peer)) {
    idle_since_ = host_.now();
}

H1Session::~H1Session() { drop_exchange(true); }

void H1Session::on_bytes(std::string_view bytes) {
    if (in_state_ == In::kClosed || closing_ != Closing::kOpen) return;
    input_ns_ = host_.now();
    parsing_ = true;
    if (in_.empty() && (in_state_ == In::kBody || in_state_ == In::kDiscard)) {
        bytes.remove_prefix(parse_body(bytes));  // the common case: no copy
    }
    if (in_state_ != In::kClosed) {
        in_.append(bytes);
        parse();
    }
    parsing_ = false;
    host_.wake();
}

// Parses as much of in_ as the state allows.
void H1Session::parse() {
    std::size_t used = 0;
    while (in_state_ != In::kClosed && in_state_ != In::kComplete) {
        const std::string_view rest = std::string_view(in_).substr(used);
        if (rest.empty()) break;
        const In before = in_state_;
        const std::size_t n = in_state_ == In::kHead ? parse_head(rest) : parse_body(rest);
        used += n;
        if (n == 0 && in_state_ == before) break;
    }
    if (in_state_ == In::kClosed || used == in_.size()) {
        std::string().swap(in_);  // an idle connection holds no buffer
    } else {
        in_.erase(0, used);
    }
}

// Returns the bytes used: a whole head, or leading empty lines, or 0.
std::size_t H1Session::parse_head(std::string_view in) {
    if (exchange_ != nullptr || out_.size() > kPipelineOutput) return 0;
    std::size_t skip = 0;
    while (skip < kLeadingEmptyLines && in.substr(skip, 2) == "\r\n") skip += 2;
    if (skip > 0) return skip;  // RFC 9112 §2.2
    if (in == "\r") return 0;
    if (head_since_ == 0) head_since_ = input_ns_;
    const std::size_t size = find_head_end(in, scan_, limits_);
    if (scan_.error) {
        refuse(*std::exchange(scan_.error, std::nullopt));
        return 0;
    }
    if (size == 0) return 0;
    scan_ = {};
    RequestHead head;
    head.protocol = Protocol::kHttp11;
    head.tls = peer_.tls;
    head.peer = peer_.address;
    head.first_byte_ns = std::exchange(head_since_, 0);
    parser_ = std::make_unique<H1Parser>();
    response_ = {};
    continue_due_ = false;
    if (const auto bad = parser_->parse_head(in.substr(0, size), limits_, head)) {
        refuse(*bad);
        return size;
    }
    begin_request(std::move(head));
    return size;
}

void H1Session::begin_request(RequestHead head) {
    asked_ = true;
    method_ = head.method;
    http10_ = parser_->http10();
    close_asked_ = parser_->wants_close();
    if (http10_ || !head.has_body) head.expects_continue = false;
    continue_due_ = head.expects_continue;
    in_state_ = In::kBody;
    head.decoded_ns = host_.now();
    body_clock_.start(head.decoded_ns, limits_);
    host_.on_exchanges(1);
    exchange_ = dispatcher_.on_head(head, *this);
    if (!head.has_body) request_complete();
}

std::size_t H1Session::parse_body(std::string_view in) {
    const H1Parser::Sink sink = [this](std::string_view body) {
        body_clock_.add(body.size(), input_ns_, limits_);
        if (in_state_ == In::kBody && !response_.finished) exchange_->on_body(body);
    };
    H1Parser::Fed fed = parser_->feed(in, sink);
    if (!fed.error && in.size() - fed.consumed > limits_.chunk_overhead && !parser_->done())
        fed.error = WireError{400, "A chunk's extension or the trailers are too large."};
    if (fed.error) {
        refuse(*fed.error);
        return fed.consumed;
    }
    if (parser_->done()) request_complete();
    return fed.consumed;
}

void H1Session::request_complete() {
    const In before = std::exchange(in_state_, In::kComplete);
    if (before == In::kBody && !response_.finished) exchange_->on_body_end();
}

// The request cannot go on. Its exchange, if any, hears of a disconnect; the client gets `error`
// unless an answer was begun, which is then cut off by a reset.
void H1Session::refuse(const WireError& error) {
    const bool answered = response_.finished;
    const bool cut = response_.head_written && !answered;
    if (!answered) drop_exchange(true);
    in_state_ = In::kClosed;
    if (cut) {
        closing_ = Closing::kReset;
        out_.clear();
        return;
    }
    if (!answered) {
        WireAnswer answer = dispatcher_.refusal(error);
        if (method_.empty()) method_ = "GET";
        response_ = {};
        close_asked_ = true;
        response_.head = std::move(answer.head);
        response_.head_given = true;
        response_.held.append(answer.body);
        response_.remaining = 0;
        response_.finished = true;
    }
    host_.wake();
}

void H1Session::drop_exchange(bool disconnected) {
    if (exchange_ == nullptr) return;
    if (disconnected && !response_.finished && !response_.aborted) {
        response_.aborted = true;  // the Responder is dead from here
        exchange_->on_disconnect();
    }
    exchange_.reset();
    host_.on_exchanges(-1);
}

void H1Session::on_eof() {
    if (exchange_ != nullptr && !response_.finished) {
        on_disconnect();  // a cut answer must not look complete: reset
    }
    in_state_ = In::kClosed;
    std::string().swap(in_);
    if (closing_ == Closing::kOpen) closing_ = Closing::kFlush;
    host_.wake();
}

void H1Session::on_disconnect() {
    drop_exchange(true);
    in_state_ = In::kClosed;
    closing_ = Closing::kReset;
    out_.clear();
}

bool H1Session::wants_read() const {
    if (in_state_ == In::kClosed) return true;  // dropped, so that the client can finish writing
    return in_.size() < limits_.pipeline_bytes;
}

std::size_t H1Session::buffered() const { return out_.size() + response_.held.size() + in_.size(); }

void H1Session::drain() {
    draining_ = true;
    // Who has just connected came to ask something: one answer, which closes.
    if (asked_ && in_state_ == In::kHead && in_.empty() && exchange_ == nullptr) {
        in_state_ = In::kClosed;
        closing_ = Closing::kFlush;
    }
    host_.wake();
}

void H1Session::tick() {
    if (closing_ != Closing::kOpen) return;
    const MonoNs now = host_.now();
    if (in_state_ == In::kHead && head_since_ == 0) {
        if (out_.empty() && now - idle_since_ > limits_.idle_ms * kNsPerMs) {
            in_state_ = In::kClosed;
            closing_ = Closing::kFlush;
            host_.wake();
        }
    } else if (in_state_ == In::kHead) {
        if (now - head_since_ > limits_.head_ms * kNsPerMs)
            refuse({408, "The request head took too long."});
    } else if (in_state_ == In::kBody || in_state_ == In::kDiscard) {
        if (body_clock_.too_slow(now, limits_))
            refuse({408, "The request body arrived too slowly."});
    }
}

std::unique_ptr<Session> make_h1_session(SessionHost& host, Dispatcher& dispatcher,
                                         const Limits& limits, Peer peer) {
    return std::make_unique<H1Session>(host, dispatcher, limits, std::move(peer));
}

}  // namespace zerohop::wire
