// nghttp2's callbacks for H2Session, and the session's construction. Only h2_*.cc include this.
#pragma once

#include <nghttp2/nghttp2.h>

#include <cstdint>

namespace zerohop::wire {

class H2Session;

struct H2Callbacks {
    // A server session with our options; null when out of memory. user_data is `self`.
    static nghttp2_session* make_session(H2Session& self);
    static nghttp2_data_provider body_provider();

  private:
    static int on_begin_frame(nghttp2_session*, const nghttp2_frame_hd*, void*);
    static int on_frame_send(nghttp2_session*, const nghttp2_frame*, void*);
    static int on_begin_headers(nghttp2_session*, const nghttp2_frame*, void*);
    static int on_header(nghttp2_session*, const nghttp2_frame*, const std::uint8_t*, std::size_t,
                         const std::uint8_t*, std::size_t, std::uint8_t, void*);
    static int on_frame_recv(nghttp2_session*, const nghttp2_frame*, void*);
    static int on_data_chunk(nghttp2_session*, std::uint8_t, std::int32_t, const std::uint8_t*,
                             std::size_t, void*);
    static int on_stream_close(nghttp2_session*, std::int32_t, std::uint32_t, void*);
    static ssize_t read_body(nghttp2_session*, std::int32_t, std::uint8_t*, std::size_t,
                             std::uint32_t*, nghttp2_data_source*, void*);
};

}  // namespace zerohop::wire
