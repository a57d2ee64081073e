// The Responder of one HTTP/2 stream. Nothing here renders frames: nghttp2 is told,
// H2Session::output renders.
#include "wire/h2_stream.h"

#include <nghttp2/nghttp2.h>

#include <string>
#include <vector>

#include "wire/h2_callbacks.h"
#include "wire/h2_session.h"
#include "wire/head.h"

namespace zerohop::wire {
namespace {

nghttp2_nv field(std::string_view name, std::string_view value) {
    const auto bytes = [](std::string_view v) {
        return const_cast<std::uint8_t*>(reinterpret_cast<const std::uint8_t*>(v.data()));
    };
    return {bytes(name), bytes(value), name.size(), value.size(), NGHTTP2_NV_FLAG_NONE};
}

}  // namespace

Loop& H2Stream::loop() { return session_.host_.loop(); }

void H2Stream::send_continue() {
    if (!continue_due_ || head_sent_ || dead()) return;
    continue_due_ = false;
    body_clock_.start(session_.host_.now(), session_.limits_);
    const nghttp2_nv status = field(":status", "100");
    nghttp2_submit_headers(session_.session_, NGHTTP2_FLAG_NONE, id_, nullptr, &status, 1, nullptr);
    session_.host_.wake();
}

void H2Stream::send_head(const ResponseHead& head) {
    if (head_sent_ || dead()) return;
    head_sent_ = true;
    remaining_ = head.content_length;
    has_body_ = has_response_body(head.status, is_head_method_ ? "HEAD" : "GET");
    if (head.content_length == 0) has_body_ = false;
    if (!request_done_ && owed_ > kHoldAbove && !continue_due_) {
        held_head_ = std::make_unique<ResponseHead>(head);
    } else {
        submit_head(head);
    }
}

void H2Stream::on_body_progress() {
    if (held_head_ == nullptr || (!request_done_ && owed_ > kHoldAbove)) return;
    release_held();
}

void H2Stream::release_held() {
    if (held_head_ == nullptr || is_gone()) return;
    const std::unique_ptr<ResponseHead> head = std::move(held_head_);
    submit_head(*head);
}

void H2Stream::submit_head(const ResponseHead& head) {
    const std::string status = std::to_string(head.status);
    const std::string length = std::to_string(head.content_length);
    std::vector<nghttp2_nv> fields;
    fields.reserve(head.headers.size() + 3);
    fields.push_back(field(":status", status));
    fields.push_back(field("date", http_date()));
    for (const Header& h : head.headers)
        if (!skip_response_header(h)) fields.push_back(field(h.name, h.value));
    if (head.content_length >= 0 && head.status != 204)
        fields.push_back(field("content-length", length));
    nghttp2_data_provider provider = H2Callbacks::body_provider();
    if (nghttp2_submit_response(session_.session_, id_, fields.data(), fields.size(),
                                has_body_ ? &provider : nullptr) != 0)
        return abort();
    session_.host_.wake();
}

void H2Stream::send_body(std::string_view bytes) {
    if (!head_sent_ || dead() || bytes.empty()) return;
    if (remaining_ >= 0) {
        if (bytes.size() > static_cast<std::size_t>(remaining_)) return abort();  // our bug
        remaining_ -= static_cast<std::int64_t>(bytes.size());
    }
    if (!has_body_) return;
    body_.append(bytes);
    session_.stream_bytes_ += bytes.size();
    writable_due_ = true;
    if (deferred_) {
        deferred_ = false;
        nghttp2_session_resume_data(session_.session_, id_);
    }
    session_.host_.wake();
}

void H2Stream::finish() {
    if (dead()) return;
    if (!head_sent_ || (remaining_ > 0 && has_body_)) return abort();
    state_ = State::kFinished;
    finished_ns_ = discard_ns_ = session_.host_.now();
    if (deferred_) {
        deferred_ = false;
        nghttp2_session_resume_data(session_.session_, id_);
    }
    session_.over_.push_back(id_);
    session_.host_.wake();
}

void H2Stream::abort() {
    if (dead()) return;
    state_ = State::kAborted;
    session_.stream_bytes_ -= body_.size();
    body_.clear();
    nghttp2_submit_rst_stream(session_.session_, NGHTTP2_FLAG_NONE, id_, NGHTTP2_INTERNAL_ERROR);
    session_.over_.push_back(id_);
    session_.host_.wake();
}

}  // namespace zerohop::wire
