// H2Stream: one request and its answer on an HTTP/2 connection. Part of H2Session; see there.
#pragma once

#include <cstdint>
#include <memory>

#include "wire/byte_queue.h"
#include "wire/http.h"
#include "wire/pace.h"

namespace zerohop::wire {

class H2Session;

class H2Stream final : public Responder {
  public:
    H2Stream(H2Session& session, std::int32_t id) : session_(session), id_(id) {}

    Loop& loop() override;
    void send_continue() override;
    void send_head(const ResponseHead& head) override;
    void send_body(std::string_view bytes) override;
    void finish() override;
    void abort() override;
    std::size_t buffered_bytes() const override { return body_.size() + in_flight_; }

  private:
    friend class H2Session;
    friend struct H2Callbacks;

    // An answer that comes before the body did is held until the client has at most this much left
    // to send. Node counts what it has queued against a 10 MB session limit and, beyond it, resets
    // the stream when response headers arrive (seen with Node 26, undici 8: a 413 to 33 MB was
    // lost).
    static constexpr std::int64_t kHoldAbove = 4 * 1024 * 1024;  // bytes

    enum class State {
        kOpen,      // the answer goes on
        kFinished,  // it is complete; its bytes may still wait
        kAborted,   // given up: RST_STREAM is on its way
        kClosed,    // the client is gone, or nghttp2 has forgotten the stream
    };
    bool dead() const { return state_ != State::kOpen; }  // for its exchange
    bool is_gone() const { return state_ == State::kAborted || state_ == State::kClosed; }
    void submit_head(const ResponseHead& head);
    void on_body_progress();  // body bytes came, or its end
    void release_held();

    H2Session& session_;
    std::int32_t id_;
    RequestHead head_;  // until it is handed on
    std::size_t head_cost_ = 0;
    int refused_ = 0;  // status for a head beyond the limits
    bool is_head_method_ = false;
    std::unique_ptr<Exchange> exchange_;

    ByteQueue body_;               // of the response, not yet in a frame
    std::size_t in_flight_ = 0;    // in frames, not yet with the kernel
    std::int64_t remaining_ = -1;  // of a declared content-length
    bool dispatched_ = false;
    bool continue_due_ = false;
    bool head_sent_ = false;
    bool has_body_ = true;
    bool deferred_ = false;  // nghttp2 waits for nghttp2_session_resume_data
    State state_ = State::kOpen;
    bool writable_due_ = false;
    bool paced_ = false;  // body_ waits since an earlier tick
    Pace pace_;
    std::size_t taken_ = 0;  // bytes with the kernel that pace_ does not know of

    std::int64_t owed_ = -1;                   // declared body bytes still to come
    std::unique_ptr<ResponseHead> held_head_;  // see kHoldAbove
    bool request_done_ = false;
    BodyClock body_clock_;
    std::size_t discarded_ = 0;
    MonoNs finished_ns_ = 0;
    MonoNs discard_ns_ = 0;
};

}  // namespace zerohop::wire
