#include "wire/h2_session.h"

#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <array>
#include <new>
#include <utility>

#include "wire/h2_callbacks.h"
#include "wire/head.h"

namespace zerohop::wire {
namespace {

// Frames rendered ahead of the socket; more stays in the streams' queues.
constexpr std::size_t kRenderAhead = 32 * 1024;
constexpr std::size_t kClosedIds = 1024;
constexpr std::size_t kFrameHeader = 9;  // RFC 9113 §4.1
// Between the first GOAWAY (last id 2^31-1) and the final one (RFC 9113 §6.8): a round trip.
constexpr MonoNs kGoawayGrace = 500 * kNsPerMs;

}  // namespace

H2Session::H2Session(SessionHost& host, Dispatcher& dispatcher, const Limits& limits, Peer peer)
    : host_(host),
      dispatcher_(dispatcher),
      limits_(limits),
      peer_(std::move(peer)),
      allowance_(limits.h2_control_burst) {
    opened_ns_ = active_ns_ = allowance_ns_ = host_.now();
    session_ = H2Callbacks::make_session(*this);
    if (session_ == nullptr) throw std::bad_alloc();
    const std::array<nghttp2_settings_entry, 4> settings = {{
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, limits_.h2_streams},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE,
         static_cast<std::uint32_t>(limits_.h2_stream_window)},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, static_cast<std::uint32_t>(limits_.head_bytes)},
        {NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1},
    }};
    nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, settings.data(), settings.size());
    nghttp2_session_set_local_window_size(session_, NGHTTP2_FLAG_NONE, 0,
                                          limits_.h2_connection_window);
}

H2Session::~H2Session() {
    on_disconnect();
    nghttp2_session_del(session_);
}

H2Stream* H2Session::find(std::int32_t id) {
    const auto it = streams_.find(id);
    return it == streams_.end() ? nullptr : it->second.get();
}

void H2Session::on_bytes(std::string_view bytes) {
    if (terminated_ || closing_ != Closing::kOpen) return;
    input_ns_ = host_.now();
    // nghttp2 drops DATA on closed streams without a word: such frames are looked for here.
    std::size_t given = 0;
    for (std::size_t at = 0; at < bytes.size();) {
        const std::size_t n =
            std::min(skip_ > 0 ? skip_ : kFrameHeader - header_.size(), bytes.size() - at);
        at += n;
        if (skip_ > 0) {
            skip_ -= n;
            continue;
        }
        header_ += bytes.substr(at - n, n);
        if (header_.size() < kFrameHeader) break;
        const auto byte = [&](std::size_t i) {
            return std::uint32_t{static_cast<std::uint8_t>(header_[i])};
        };
        skip_ = byte(0) << 16 | byte(1) << 8 | byte(2);
        if (byte(3) == NGHTTP2_DATA) {
            receive(bytes.substr(given, at - n - given));  // everything before it
            given = at - n;
            const std::uint32_t id =
                (byte(5) & 0x7f) << 24 | byte(6) << 16 | byte(7) << 8 | byte(8);
            if (const std::uint32_t error =
                    closed_stream_error(false, static_cast<std::int32_t>(id)))
                terminate(error);
        }
        header_.clear();
    }
    receive(bytes.substr(given));
    host_.wake();
}

void H2Session::receive(std::string_view bytes) {
    if (terminated_ || bytes.empty()) return;
    const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
    const ssize_t n = nghttp2_session_mem_recv(session_, data, bytes.size());
    if (n < 0) {
        const bool calm = n == NGHTTP2_ERR_FLOODED || n == NGHTTP2_ERR_CALLBACK_FAILURE;
        terminate(calm ? NGHTTP2_ENHANCE_YOUR_CALM : NGHTTP2_PROTOCOL_ERROR);
    }
}

void H2Session::terminate(std::uint32_t error_code) {
    if (std::exchange(terminated_, true)) return;
    for (auto& [id, stream] : streams_) drop_exchange(*stream, true);
    nghttp2_session_terminate_session(session_, error_code);
    host_.wake();
}

bool H2Session::charge(std::int64_t cost) {
    const MonoNs earned = (input_ns_ - allowance_ns_) * limits_.h2_control_per_s / kNsPerSec;
    if (earned > 0) {
        allowance_ns_ = input_ns_;
        credit(earned);
    }
    allowance_ -= cost;
    return allowance_ >= 0;
}

void H2Session::credit(std::int64_t n) {
    allowance_ = std::min(allowance_ + n, limits_.h2_control_burst);
}

std::uint32_t H2Session::closed_stream_error(bool headers, std::int32_t id) const {
    if (drained_ || terminated_ || id % 2 == 0 || id > last_id_ || streams_.contains(id)) return 0;
    for (const std::int32_t closed : closed_ids_) {
        if (closed == id) return NGHTTP2_STREAM_CLOSED;
        if (closed == -id) return 0;
    }
    // Never opened, or so long ago that DATA gets the benefit of the doubt.
    return headers ? NGHTTP2_PROTOCOL_ERROR : 0;
}

void H2Session::remember_closed(std::int32_t id, bool reset_by_us) {
    if (!closed_ids_.empty() && closed_ids_.back() == -id) return;
    closed_ids_.push_back(reset_by_us ? -id : id);
    if (closed_ids_.size() > kClosedIds) closed_ids_.pop_front();
}

// The head of `stream` is complete.
void H2Session::dispatch(H2Stream& stream) {
    RequestHead& head = stream.head_;
    stream.dispatched_ = true;
    stream.head_cost_ = 0;
    // Streams share the connection fairly whatever priorities the client signals.
    nghttp2_extpri even{.urgency = NGHTTP2_EXTPRI_DEFAULT_URGENCY, .inc = 1};
    nghttp2_session_change_extpri_stream_priority(session_, stream.id_, &even, 1);
    stream.body_clock_.start(input_ns_, limits_);
    if (stream.refused_ == 414) return answer(stream, {414, "The request target is too long."});
    if (stream.refused_ != 0) return answer(stream, {431, "The request head is too large."});
    stream.is_head_method_ = head.method == "HEAD";
    if (const auto bad = finish_head(head, limits_, false)) return answer(stream, *bad);
    head.has_body = !stream.request_done_ && head.content_length != 0;
    stream.owed_ = head.content_length;
    if (stream.request_done_) head.expects_continue = false;
    stream.continue_due_ = head.expects_continue;
    head.decoded_ns = host_.now();
    ++live_;
    host_.on_exchanges(1);
    const RequestHead taken = std::move(head);
    stream.exchange_ = dispatcher_.on_head(taken, stream);
    if (stream.request_done_ && !stream.dead()) stream.exchange_->on_body_end();
}

void H2Session::answer(H2Stream& stream, const WireError& error) {
    const WireAnswer answer = dispatcher_.refusal(error);
    stream.send_head(answer.head);
    stream.send_body(answer.body);
    stream.finish();
}

void H2Session::drop_exchange(H2Stream& stream, bool disconnected) {
    if (stream.exchange_ == nullptr) return;
    if (disconnected && !stream.dead()) {
        stream.state_ = H2Stream::State::kClosed;  // the Responder is dead from here
        stream.exchange_->on_disconnect();
    }
    stream.exchange_.reset();
    --live_;
    host_.on_exchanges(-1);
}

// nghttp2 has closed the stream: both sides ended, or a reset with any code.
void H2Session::close_stream(std::int32_t id) {
    remember_closed(id, false);
    const auto it = streams_.find(id);
    if (it == streams_.end()) return;
    H2Stream& stream = *it->second;
    drop_exchange(stream, true);
    stream.state_ = H2Stream::State::kClosed;
    stream_bytes_ -= stream.body_.size();
    stream.body_.clear();
    closed_.push_back(std::move(it->second));
    streams_.erase(it);
    active_ns_ = host_.now();
    host_.wake();
}

void H2Session::on_disconnect() {
    for (auto& [id, stream] : streams_) drop_exchange(*stream, true);
    closing_ = Closing::kReset;
    terminated_ = true;
    out_.clear();
}

void H2Session::settle() {
    for (const std::int32_t id : std::exchange(over_, {}))
        if (H2Stream* stream = find(id)) drop_exchange(*stream, false);
    closed_.clear();
}

std::string_view H2Session::output() {
    settle();
    if (closing_ == Closing::kReset) return {};
    while (out_.size() < kRenderAhead) {
        const std::uint8_t* data = nullptr;
        const ssize_t n = nghttp2_session_mem_send(session_, &data);
        if (n < 0) {
            on_disconnect();
            return {};
        }
        if (n == 0) break;
        out_.append({reinterpret_cast<const char*>(data), static_cast<std::size_t>(n)});
        rendered_ += static_cast<std::uint64_t>(n);
        if (!segments_.empty() && segments_.back().end == 0) segments_.back().end = rendered_;
    }
    settle();
    const bool in_grace = drain_ns_ != 0 && !drained_;  // requests may be on their way
    if (closing_ == Closing::kOpen && !in_grace && nghttp2_session_want_read(session_) == 0 &&
        nghttp2_session_want_write(session_) == 0)
        closing_ = Closing::kFlush;
    return out_.front();
}

void H2Session::consumed(std::size_t n) {
    out_.consume(n);
    sent_ += n;
    while (!segments_.empty() && segments_.front().end <= sent_) {
        const Segment done = segments_.front();
        segments_.pop_front();
        H2Stream* stream = find(done.stream);
        if (stream == nullptr) continue;
        stream->in_flight_ -= done.bytes;
        stream->taken_ += done.bytes;
        if (stream->buffered_bytes() == 0 && stream->writable_due_ && !stream->dead() &&
            stream->exchange_ != nullptr) {
            stream->writable_due_ = false;
            stream->exchange_->on_writable();
        }
    }
}

std::size_t H2Session::buffered() const { return out_.size() + stream_bytes_; }

std::size_t H2Session::answers_waiting() const {
    return static_cast<std::size_t>(std::ranges::count_if(
        streams_, [](const auto& entry) { return entry.second->buffered_bytes() > 0; }));
}

void H2Session::drain() {
    if (drain_ns_ != 0 || drained_) return;
    nghttp2_submit_shutdown_notice(session_);
    drain_ns_ = host_.now() + kGoawayGrace;
    host_.wake();
}

void H2Session::tick() {
    if (closing_ != Closing::kOpen || terminated_) return;
    const MonoNs now = host_.now();
    if (drain_ns_ != 0 && now >= drain_ns_ && !std::exchange(drained_, true)) {
        // Streams up to the last one seen go on; nghttp2 ends the session when they are done.
        nghttp2_submit_goaway(session_, NGHTTP2_FLAG_NONE,
                              nghttp2_session_get_last_proc_stream_id(session_), NGHTTP2_NO_ERROR,
                              nullptr, 0);
        host_.wake();
    }
    if (drained_ && streams_.empty()) return terminate(NGHTTP2_NO_ERROR);
    const std::int64_t head_ns = limits_.head_ms * kNsPerMs;
    if (!settings_seen_ && now - opened_ns_ > head_ns) return terminate(NGHTTP2_SETTINGS_TIMEOUT);
    if (header_block_ns_ != 0 && now - header_block_ns_ > head_ns)
        return terminate(NGHTTP2_ENHANCE_YOUR_CALM);
    if (streams_.empty()) {
        if (now - active_ns_ > limits_.idle_ms * kNsPerMs) terminate(NGHTTP2_NO_ERROR);
        return;
    }
    for (auto& [id, stream] : streams_) tick_stream(*stream, now);
}

void H2Session::tick_stream(H2Stream& stream, MonoNs now) {
    if (!stream.dispatched_ || stream.is_gone()) return;
    const bool finished = stream.state_ == H2Stream::State::kFinished;
    if (finished && !stream.request_done_ &&
        (stream.body_.empty() || stream.held_head_ != nullptr)) {
        const bool over = now - stream.finished_ns_ > limits_.linger_ms * kNsPerMs ||
                          now - stream.discard_ns_ > limits_.linger_idle_ms * kNsPerMs ||
                          stream.discarded_ > limits_.linger_bytes;
        if (over && stream.held_head_ != nullptr) {
            stream.release_held();
        } else if (over) {
            nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, stream.id_, NGHTTP2_NO_ERROR);
            host_.wake();
        }
    } else if (!finished && !stream.request_done_ && stream.body_clock_.too_slow(now, limits_)) {
        if (stream.head_sent_) return cancel_stream(stream);
        drop_exchange(stream, true);
        stream.state_ = H2Stream::State::kOpen;  // nothing was answered: the session does
        answer(stream, {408, "The request body arrived too slowly."});
    } else if (is_taken_too_slowly(stream, now)) {
        cancel_stream(stream);
    }
}

// While frames wait for the socket they hold up those of all streams, and the connection's own pace
// counts (net::Connection); otherwise it is the peer's window for this stream that is shut.
bool H2Session::is_taken_too_slowly(H2Stream& stream, MonoNs now) {
    if (stream.body_.empty()) {
        stream.paced_ = false;
        return false;
    }
    const std::size_t taken = std::exchange(stream.taken_, 0);
    const PaceRule rule = take_pace(limits_);
    if (!std::exchange(stream.paced_, true)) {
        stream.pace_.start(now, taken, rule);
    } else {
        if (!out_.empty()) stream.pace_.skip(now);
        stream.pace_.moved(taken, now, rule);
    }
    return stream.pace_.is_over(now);
}

void H2Session::cancel_stream(H2Stream& stream) {
    drop_exchange(stream, true);
    stream.state_ = H2Stream::State::kAborted;
    nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, stream.id_, NGHTTP2_CANCEL);
    host_.wake();
}

std::unique_ptr<Session> make_h2_session(SessionHost& host, Dispatcher& dispatcher,
                                         const Limits& limits, Peer peer) {
    return std::make_unique<H2Session>(host, dispatcher, limits, std::move(peer));
}

}  // namespace zerohop::wire
