// H1Session: HTTP/1.0 and 1.1 on one connection (session.h says who calls what).
//
// One request at a time; further ones wait unparsed in `in_` (bounded: wants_read() goes false).
//
//     kHead --head--> kBody --last byte--> kComplete --response over--> kHead …
//                       \--response over, connection kept--> kDiscard --last byte--> kHead
//     any --response over with `connection: close`, or an error--> kClosed (input is dropped)
//
// A response's head is held back while input is being parsed: if the request turns out to be
// complete in the same read, the connection can be kept; else the answer says `connection: close`.
// Owning thread: the connection's I/O thread. Nothing fails outward.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "wire/byte_queue.h"
#include "wire/h1_parser.h"
#include "wire/pace.h"
#include "wire/session.h"

namespace zerohop::wire {

class H1Session final : public Session, private Responder {
  public:
    H1Session(SessionHost& host, Dispatcher& dispatcher, const Limits& limits, Peer peer);
    ~H1Session() override;

    void on_bytes(std::string_view bytes) override;
    void on_eof() override;
    void on_disconnect() override;
    std::string_view output() override;
    void consumed(std::size_t n) override;
    bool wants_read() const override;
    Closing closing() const override { return closing_; }
    void tick() override;
    void drain() override;
    std::size_t buffered() const override;
    std::size_t exchanges() const override { return exchange_ ? 1 : 0; }
    std::size_t answers_waiting() const override { return out_.empty() ? 0 : 1; }

  private:
    enum class In { kHead, kBody, kDiscard, kComplete, kClosed };
    struct Response {
        bool head_given = false;
        bool head_written = false;
        bool finished = false;
        bool aborted = false;
        bool chunked = false;
        bool has_body = true;
        bool close = false;
        bool writable_due = false;    // on_writable() once the output is empty
        std::int64_t remaining = -1;  // of a declared length
        ResponseHead head;
        ByteQueue held;  // body given before the head could be written
    };

    // Responder
    Loop& loop() override { return host_.loop(); }
    void send_continue() override;
    void send_head(const ResponseHead& head) override;
    void send_body(std::string_view bytes) override;
    void finish() override;
    void abort() override;
    std::size_t buffered_bytes() const override { return out_.size() + response_.held.size(); }

    // Input (h1_session.cc)
    void parse();
    std::size_t parse_head(std::string_view in);
    void begin_request(RequestHead head);
    std::size_t parse_body(std::string_view in);
    void request_complete();
    void refuse(const WireError& error);  // answers by itself if nothing was answered yet; closes
    void drop_exchange(bool disconnected);

    // Output (h1_response.cc)
    void settle();
    bool end_response();  // true when a next request may begin
    void write_head();
    void write_body(std::string_view bytes);
    bool must_close() const;

    SessionHost& host_;
    Dispatcher& dispatcher_;
    const Limits& limits_;
    Peer peer_;

    In in_state_ = In::kHead;
    Closing closing_ = Closing::kOpen;
    bool parsing_ = false;
    bool draining_ = false;
    bool asked_ = false;  // a request has come on this connection
    std::string in_;      // not yet parsed
    HeadScan scan_;
    std::unique_ptr<H1Parser> parser_;  // of the request in progress
    BodyClock body_clock_;
    MonoNs input_ns_ = 0;  // last bytes came
    MonoNs idle_since_ = 0;
    MonoNs head_since_ = 0;  // first byte of a partial head, 0: none

    std::string method_;
    bool http10_ = false;
    bool close_asked_ = false;   // by the client
    bool continue_due_ = false;  // 100 expected and not sent
    std::unique_ptr<Exchange> exchange_;
    Response response_;
    ByteQueue out_;
};

}  // namespace zerohop::wire
