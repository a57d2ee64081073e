// Access records: what one line of the access log says of a request, gathered where it happens.
//
//     Service::on_head -> LoggedExchange (status, bytes, times) -> MessagesExchange (model, tokens)
//                                      destroyed -> AccessSink::record
//
// Owning thread: the exchange's I/O thread; an AccessSink is called from all of them at once, must
// not block and must not fail. The LoggedExchange owns the inner exchange, the record and the
// responder that the inner one writes to. A record never holds a byte of a body.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "wire/http.h"

namespace zerohop::api {

struct AccessRecord {
    std::string request_id;
    std::string trace_id;
    std::string peer;
    std::string method;
    std::string path;  // without the query
    std::string model;
    std::string workspace;
    std::string key_id;
    wire::Protocol protocol = wire::Protocol::kHttp11;
    bool tls = false;
    int status = 0;                  // 0: no answer was begun
    bool complete = false;           // the whole answer was given to the connection
    std::int32_t input_tokens = -1;  // -1: not known
    std::int32_t output_tokens = -1;
    std::uint64_t bytes_out = 0;  // of bodies
    MonoNs received_ns = 0;
    MonoNs first_token_ns = 0;  // 0: none
    MonoNs end_ns = 0;
};

class AccessSink {
  public:
    virtual ~AccessSink() = default;
    virtual void record(const AccessRecord& record) noexcept = 0;
};

class LoggedExchange final : public wire::Exchange {
  public:
    // Makes the inner exchange, which writes to the responder it is given and may fill in the
    // record for as long as it lives.
    using Make = std::function<std::unique_ptr<wire::Exchange>(wire::Responder&, AccessRecord&)>;

    LoggedExchange(AccessSink& sink, const MonoClock& clock, const wire::RequestHead& head,
                   wire::Responder& responder, const Make& make);
    ~LoggedExchange() override;

    void on_body(std::string_view bytes) override { inner_->on_body(bytes); }
    void on_body_end() override { inner_->on_body_end(); }
    void on_writable() override { inner_->on_writable(); }
    void on_disconnect() override { inner_->on_disconnect(); }

  private:
    class Watch;  // the responder between

    AccessSink& sink_;
    MonoClock clock_;
    AccessRecord record_;
    std::unique_ptr<Watch> watch_;
    std::unique_ptr<wire::Exchange> inner_;  // last: its end still writes to the others
};

}  // namespace zerohop::api
