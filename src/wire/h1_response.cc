// The answering half of H1Session.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <utility>

#include "wire/h1_session.h"
#include "wire/head.h"

namespace zerohop::wire {

void H1Session::send_continue() {
    if (!continue_due_ || response_.head_given || response_.aborted) return;
    continue_due_ = false;
    body_clock_.start(host_.now(), limits_);
    out_.append("HTTP/1.1 100 Continue\r\n\r\n");
    host_.wake();
}

void H1Session::send_head(const ResponseHead& head) {
    if (response_.aborted || response_.head_given) return;
    response_.head_given = true;
    response_.head = head;
    response_.remaining = head.content_length;
    response_.has_body = has_response_body(head.status, method_);
    if (!parsing_) write_head();
    host_.wake();
}

void H1Session::send_body(std::string_view bytes) {
    if (response_.aborted || response_.finished || !response_.head_given || bytes.empty()) return;
    if (response_.remaining >= 0) {
        // More than the declared content-length is our bug; it must not reach the next answer.
        if (bytes.size() > static_cast<std::size_t>(response_.remaining)) return abort();
        response_.remaining -= static_cast<std::int64_t>(bytes.size());
    }
    if (!response_.has_body) return;
    response_.writable_due = true;
    if (response_.head_written) {
        write_body(bytes);
    } else {
        response_.held.append(bytes);
    }
    host_.wake();
}

void H1Session::finish() {
    if (response_.aborted || response_.finished) return;
    if (!response_.head_given || (response_.remaining > 0 && response_.has_body)) return abort();
    response_.finished = true;
    if (response_.head_written && response_.chunked) out_.append("0\r\n\r\n");
    host_.wake();
}

void H1Session::abort() {
    if (response_.aborted || response_.finished) return;
    response_.aborted = true;
    closing_ = Closing::kReset;
    out_.clear();
    host_.wake();
}

// Whether this answer has to end the connection, as far as is known when its head is written.
bool H1Session::must_close() const {
    if (close_asked_ || draining_ || in_state_ == In::kClosed) return true;
    if (in_state_ == In::kComplete) return false;
    if (continue_due_) return true;  // will the body come or not? (RFC 9110 §10.1.1)
    const auto left = parser_->length_left();
    return !left || *left > limits_.keep_discard;
}

void H1Session::write_head() {
    Response& r = response_;
    r.head_written = true;
    r.close = must_close();
    if (r.head.content_length < 0 && r.finished && r.has_body)
        r.head.content_length = static_cast<std::int64_t>(r.held.size());  // known by now
    std::string text;
    text.reserve(512);
    const auto to = std::back_inserter(text);
    fmt::format_to(to, "HTTP/1.1 {} {}\r\ndate: {}\r\n", r.head.status,
                   reason_phrase(r.head.status), http_date());
    for (const Header& h : r.head.headers)
        if (!skip_response_header(h)) fmt::format_to(to, "{}: {}\r\n", h.name, h.value);
    if (r.head.content_length >= 0) {
        if (r.head.status != 204 && r.head.status >= 200)
            fmt::format_to(to, "content-length: {}\r\n", r.head.content_length);
    } else if (r.has_body && !http10_) {
        r.chunked = true;
        text += "transfer-encoding: chunked\r\n";
    } else if (r.has_body) {
        r.close = true;  // HTTP/1.0: the end of the connection ends the body
    }
    text += r.close ? "connection: close\r\n\r\n" : "\r\n";
    out_.append(text);
    if (r.held.empty()) return;
    if (!r.chunked) return out_.splice(std::exchange(r.held, {}));
    ByteQueue held = std::exchange(r.held, {});
    while (!held.empty()) {
        const std::string_view part = held.front();
        write_body(part);
        held.consume(part.size());
    }
}

void H1Session::write_body(std::string_view bytes) {
    if (!response_.chunked) return out_.append(bytes);
    char size[20];
    const auto end = std::to_chars(size, size + 16, bytes.size(), 16).ptr;
    end[0] = '\r';
    end[1] = '\n';
    out_.append({size, static_cast<std::size_t>(end + 2 - size)});
    out_.append(bytes);
    out_.append("\r\n");
}

std::string_view H1Session::output() {
    settle();
    return out_.front();
}

void H1Session::consumed(std::size_t n) {
    out_.consume(n);
    if (!out_.empty()) return;
    idle_since_ = host_.now();
    if (exchange_ != nullptr && std::exchange(response_.writable_due, false) &&
        !response_.finished && !response_.aborted)
        exchange_->on_writable();
}

// End of a turn: writes what was held back, ends what is over, starts what waits behind it.
void H1Session::settle() {
    while (true) {
        if (response_.aborted) {
            drop_exchange(false);
            return;
        }
        if (response_.head_given && !response_.head_written) write_head();
        if (!response_.finished) break;
        if (!end_response()) break;
    }
    // A pipelined head that waited for room.
    if (in_state_ == In::kHead && !in_.empty() && closing_ == Closing::kOpen) {
        parsing_ = true;
        parse();
        parsing_ = false;
        if (response_.head_given && !response_.head_written) settle();
    }
}

bool H1Session::end_response() {
    drop_exchange(false);
    if (response_.close || in_state_ == In::kClosed) {
        in_state_ = In::kClosed;
        std::string().swap(in_);
        if (closing_ == Closing::kOpen) closing_ = Closing::kFlush;
        return false;
    }
    if (in_state_ == In::kBody) in_state_ = In::kDiscard;  // small, or it would have been `close`
    if (in_state_ != In::kComplete) return false;
    response_ = {};
    parser_.reset();
    method_.clear();
    in_state_ = In::kHead;
    idle_since_ = host_.now();
    if (draining_ && in_.empty()) {
        in_state_ = In::kClosed;
        closing_ = Closing::kFlush;
        return false;
    }
    parsing_ = true;
    parse();
    parsing_ = false;
    return true;
}

}  // namespace zerohop::wire
