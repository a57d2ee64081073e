// H2Session: HTTP/2 on one connection, on nghttp2 (session.h says who calls what).
//
// Flow control is ours (no_auto_window_update): what arrives opens both windows again at
// once. Frames are rendered only when the output is
// empty, so what waits stays in its own stream's queue and is counted there. An answer that ends
// before its request: END_STREAM, then the rest of the request is dropped with both windows open,
// and after Limits::linger_… RST_STREAM(NO_ERROR). Abuse (floods of any frame that moves nothing)
// costs the connection: GOAWAY ENHANCE_YOUR_CALM. Owning thread: the connection's I/O thread.
// nghttp2's callbacks are in h2_callbacks.cc.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "wire/byte_queue.h"
#include "wire/h2_stream.h"
#include "wire/session.h"
#include "wire/wire_error.h"

struct nghttp2_session;

namespace zerohop::wire {

class H2Session final : public Session {
  public:
    H2Session(SessionHost& host, Dispatcher& dispatcher, const Limits& limits, Peer peer);
    ~H2Session() override;

    void on_bytes(std::string_view bytes) override;
    void on_eof() override { on_disconnect(); }
    void on_disconnect() override;
    std::string_view output() override;
    void consumed(std::size_t n) override;
    bool wants_read() const override { return true; }
    Closing closing() const override { return closing_; }
    void tick() override;
    void drain() override;
    std::size_t buffered() const override;
    std::size_t exchanges() const override { return live_; }
    std::size_t answers_waiting() const override;

  private:
    friend class H2Stream;
    friend struct H2Callbacks;

    H2Stream* find(std::int32_t id);
    void dispatch(H2Stream& stream);
    void answer(H2Stream& stream, const WireError& error);
    void drop_exchange(H2Stream& stream, bool disconnected);
    void close_stream(std::int32_t id);
    void settle();
    void tick_stream(H2Stream& stream, MonoNs now);
    bool is_taken_too_slowly(H2Stream& stream, MonoNs now);
    void cancel_stream(H2Stream& stream);
    // False: the peer used up its allowance; the caller ends the connection.
    bool charge(std::int64_t cost);
    void credit(std::int64_t n);
    void terminate(std::uint32_t error_code);
    void receive(std::string_view bytes);  // to nghttp2
    // The error of a HEADERS or DATA frame on a stream that is over (RFC 9113 §5.1), 0 when it is
    // fine. nghttp2 forgets closed streams when RFC 7540's priorities are off.
    std::uint32_t closed_stream_error(bool headers, std::int32_t id) const;
    void remember_closed(std::int32_t id, bool reset_by_us);

    SessionHost& host_;
    Dispatcher& dispatcher_;
    const Limits& limits_;
    Peer peer_;
    nghttp2_session* session_ = nullptr;
    Closing closing_ = Closing::kOpen;
    bool terminated_ = false;

    std::unordered_map<std::int32_t, std::unique_ptr<H2Stream>> streams_;
    std::vector<std::unique_ptr<H2Stream>> closed_;  // destroyed in settle()
    std::vector<std::int32_t> over_;  // finished or aborted: exchange goes in settle()
    std::deque<std::int32_t>
        closed_ids_;                // the last ones; negative: reset by us, frames may follow
    std::int32_t last_id_ = 0;      // of any HEADERS received
    std::size_t live_ = 0;          // exchanges
    std::size_t stream_bytes_ = 0;  // in all streams' queues

    // Rendered frames, and which of their bytes are whose DATA.
    struct Segment {
        std::int32_t stream;
        std::size_t bytes;
        std::uint64_t end;  // position in the output since the connection began
    };
    ByteQueue out_;
    std::deque<Segment> segments_;
    std::uint64_t rendered_ = 0;
    std::uint64_t sent_ = 0;

    std::size_t skip_ = kH2Preface.size();  // input up to the next frame header
    std::string header_;                    // as much of it as has come
    MonoNs input_ns_ = 0;
    MonoNs active_ns_ = 0;  // last time a stream existed
    MonoNs opened_ns_ = 0;
    MonoNs header_block_ns_ = 0;  // a header block is open since, 0: none
    bool settings_seen_ = false;
    MonoNs drain_ns_ = 0;  // the final GOAWAY is due, 0: not draining
    bool drained_ = false;
    std::int64_t allowance_;  // h2_control_burst
    MonoNs allowance_ns_ = 0;
};

}  // namespace zerohop::wire
