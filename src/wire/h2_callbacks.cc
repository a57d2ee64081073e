#include "wire/h2_callbacks.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "wire/h2_session.h"
#include "wire/head.h"

namespace zerohop::wire {
namespace {

H2Session& session_of(void* user) { return *static_cast<H2Session*>(user); }

std::string_view view(const std::uint8_t* data, std::size_t size) {
    return {reinterpret_cast<const char*>(data), size};
}

// A head this far beyond its limits is not even counted on: the stream is reset.
constexpr std::size_t kHopeless = 4;
constexpr unsigned kFirstExtension = NGHTTP2_CONTINUATION + 1;

int unpack_extension(nghttp2_session*, void**, const nghttp2_frame_hd*, void*) {
    return NGHTTP2_ERR_CANCEL;  // nothing to unpack
}

}  // namespace

nghttp2_session* H2Callbacks::make_session(H2Session& self) {
    nghttp2_session_callbacks* callbacks = nullptr;
    nghttp2_option* option = nullptr;
    if (nghttp2_session_callbacks_new(&callbacks) != 0) return nullptr;
    if (nghttp2_option_new(&option) != 0) {
        nghttp2_session_callbacks_del(callbacks);
        return nullptr;
    }
    nghttp2_session_callbacks_set_on_begin_frame_callback(callbacks, &on_begin_frame);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, &on_frame_send);
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, &on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, &on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, &on_frame_recv);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, &on_data_chunk);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, &on_stream_close);
    nghttp2_option_set_no_auto_window_update(option, 1);
    // Extension frames are ignored, but only registered ones are announced and thus priced.
    nghttp2_session_callbacks_set_unpack_extension_callback(callbacks, &unpack_extension);
    for (unsigned type = kFirstExtension; type <= 0xff; ++type)
        nghttp2_option_set_user_recv_extension_type(option, static_cast<std::uint8_t>(type));
    nghttp2_option_set_stream_reset_rate_limit(option, self.limits_.h2_reset_burst,
                                               self.limits_.h2_reset_per_s);
    nghttp2_session* session = nullptr;
    const int rv = nghttp2_session_server_new2(&session, callbacks, &self, option);
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(callbacks);
    return rv == 0 ? session : nullptr;
}

nghttp2_data_provider H2Callbacks::body_provider() {
    nghttp2_data_provider provider{};
    provider.read_callback = &read_body;
    return provider;
}

// Every frame is priced before it is worked on. What carries a request forward is free and refills.
int H2Callbacks::on_begin_frame(nghttp2_session*, const nghttp2_frame_hd* hd, void* user) {
    H2Session& self = session_of(user);
    bool fine = true;
    if (hd->type == NGHTTP2_HEADERS) {
        if (const std::uint32_t error = self.closed_stream_error(true, hd->stream_id)) {
            self.terminate(error);
            return NGHTTP2_ERR_CALLBACK_FAILURE;
        }
        self.last_id_ = std::max(self.last_id_, hd->stream_id);
    }
    switch (hd->type) {
        case NGHTTP2_HEADERS:
            self.header_block_ns_ = self.input_ns_;
            fine = self.charge(4);  // paid back when its answer ends well
            break;
        case NGHTTP2_DATA:
            if (hd->length == 0 && (hd->flags & NGHTTP2_FLAG_END_STREAM) == 0)
                fine = self.charge(4);
            if (hd->length >= 1024) self.credit(1);
            break;
        case NGHTTP2_PRIORITY:
            // nghttp2 skips these frames (SETTINGS_NO_RFC7540_PRIORITIES), this check with them.
            if (hd->stream_id == 0) {
                self.terminate(NGHTTP2_PROTOCOL_ERROR);
                return NGHTTP2_ERR_CALLBACK_FAILURE;
            }
            fine = self.charge(1);
            break;
        default:
            fine = self.charge(1);
            break;
    }
    return fine ? 0 : NGHTTP2_ERR_CALLBACK_FAILURE;
}

int H2Callbacks::on_frame_send(nghttp2_session*, const nghttp2_frame* frame, void* user) {
    if (frame->hd.type == NGHTTP2_RST_STREAM)
        session_of(user).remember_closed(frame->hd.stream_id, true);
    return 0;
}

int H2Callbacks::on_begin_headers(nghttp2_session* session, const nghttp2_frame* frame,
                                  void* user) {
    if (frame->headers.cat != NGHTTP2_HCAT_REQUEST) return 0;
    H2Session& self = session_of(user);
    const std::int32_t id = frame->hd.stream_id;
    auto stream = std::make_unique<H2Stream>(self, id);
    stream->head_.protocol = Protocol::kHttp2;
    stream->head_.tls = self.peer_.tls;
    stream->head_.peer = self.peer_.address;
    stream->head_.first_byte_ns = self.input_ns_;
    nghttp2_session_set_stream_user_data(session, id, stream.get());
    self.streams_[id] = std::move(stream);
    return 0;
}

int H2Callbacks::on_header(nghttp2_session* session, const nghttp2_frame* frame,
                           const std::uint8_t* name_data, std::size_t name_size,
                           const std::uint8_t* value_data, std::size_t value_size, std::uint8_t,
                           void* user) {
    H2Session& self = session_of(user);
    auto* stream =
        static_cast<H2Stream*>(nghttp2_session_get_stream_user_data(session, frame->hd.stream_id));
    if (stream == nullptr) return 0;
    const std::string_view name = view(name_data, name_size);
    const std::string_view value = view(value_data, value_size);
    stream->head_cost_ += field_cost(name, value);
    if (stream->head_cost_ > kHopeless * self.limits_.head_bytes)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    if (stream->dispatched_) return 0;  // trailers: counted, not used
    RequestHead& head = stream->head_;
    if (name == ":path" && value.size() > self.limits_.target_bytes) {
        stream->refused_ = 414;
    } else if (stream->head_cost_ > self.limits_.head_bytes ||
               head.headers.size() >= self.limits_.header_count) {
        if (stream->refused_ == 0 && !name.starts_with(':')) stream->refused_ = 431;
    }
    if (stream->refused_ != 0) {
        if (name == ":method") stream->is_head_method_ = value == "HEAD";
    } else if (name == ":method") {
        head.method = value;
    } else if (name == ":path") {
        head.target = value;
    } else if (name == ":authority") {
        head.authority = value;
    } else if (!name.starts_with(':')) {
        head.headers.push_back({std::string(name), std::string(value)});
    }
    return 0;
}

int H2Callbacks::on_frame_recv(nghttp2_session* session, const nghttp2_frame* frame, void* user) {
    H2Session& self = session_of(user);
    if (frame->hd.type == NGHTTP2_SETTINGS) self.settings_seen_ = true;
    if (frame->hd.type == NGHTTP2_HEADERS) self.header_block_ns_ = 0;
    if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA) return 0;
    auto* stream =
        static_cast<H2Stream*>(nghttp2_session_get_stream_user_data(session, frame->hd.stream_id));
    if (stream == nullptr) return 0;
    const bool end = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
        stream->request_done_ = end;
        self.dispatch(*stream);
    } else if (end && !stream->request_done_) {
        stream->request_done_ = true;
        stream->on_body_progress();
        if (stream->exchange_ != nullptr && !stream->dead()) stream->exchange_->on_body_end();
    }
    return 0;
}

int H2Callbacks::on_data_chunk(nghttp2_session* session, std::uint8_t, std::int32_t id,
                               const std::uint8_t* data, std::size_t size, void* user) {
    H2Session& self = session_of(user);
    auto* stream = static_cast<H2Stream*>(nghttp2_session_get_stream_user_data(session, id));
    nghttp2_session_consume_connection(session, size);
    if (stream == nullptr) return 0;
    stream->body_clock_.add(size, self.input_ns_, self.limits_);
    stream->owed_ -= static_cast<std::int64_t>(size);
    stream->on_body_progress();
    nghttp2_session_consume_stream(session, id, size);
    if (stream->exchange_ != nullptr && !stream->dead()) {
        stream->exchange_->on_body(view(data, size));
    } else {
        stream->discarded_ += size;
        stream->discard_ns_ = self.input_ns_;
    }
    return 0;
}

int H2Callbacks::on_stream_close(nghttp2_session*, std::int32_t id, std::uint32_t error_code,
                                 void* user) {
    H2Session& self = session_of(user);
    if (error_code == NGHTTP2_NO_ERROR) self.credit(4);
    self.close_stream(id);
    return 0;
}

ssize_t H2Callbacks::read_body(nghttp2_session* session, std::int32_t id, std::uint8_t* to,
                               std::size_t most, std::uint32_t* flags, nghttp2_data_source*,
                               void* user) {
    H2Session& self = session_of(user);
    auto* stream = static_cast<H2Stream*>(nghttp2_session_get_stream_user_data(session, id));
    if (stream == nullptr) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    const std::size_t n = stream->body_.read(reinterpret_cast<char*>(to), most);
    const bool finished = stream->state_ == H2Stream::State::kFinished;
    if (n == 0 && !finished) {
        stream->deferred_ = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    if (finished && stream->body_.empty()) *flags |= NGHTTP2_DATA_FLAG_EOF;
    if (n > 0) {
        stream->in_flight_ += n;
        self.stream_bytes_ -= n;
        self.segments_.push_back({id, n, 0});
        if (n >= 32) self.credit(1);  // the WINDOW_UPDATEs for it are earned
    }
    return static_cast<ssize_t>(n);
}

}  // namespace zerohop::wire
