#include "api/access.h"

namespace zerohop::api {
namespace {

MonoNs now_of(const MonoClock& clock) { return clock ? clock() : mono_now(); }

}  // namespace

class LoggedExchange::Watch final : public wire::Responder {
  public:
    Watch(wire::Responder& to, AccessRecord& record, const MonoClock& clock)
        : to_(to), record_(record), clock_(clock) {}

    Loop& loop() override { return to_.loop(); }
    void send_continue() override { to_.send_continue(); }
    void send_head(const wire::ResponseHead& head) override {
        record_.status = head.status;
        for (const wire::Header& h : head.headers) {
            if (h.name == "request-id") record_.request_id = h.value;
            if (h.name == "x-anthropic-trace-id") record_.trace_id = h.value;
        }
        to_.send_head(head);
    }
    void send_body(std::string_view bytes) override {
        record_.bytes_out += bytes.size();
        to_.send_body(bytes);
    }
    void finish() override {
        record_.complete = true;
        record_.end_ns = now_of(clock_);
        to_.finish();
    }
    void abort() override { to_.abort(); }
    std::size_t buffered_bytes() const override { return to_.buffered_bytes(); }

  private:
    wire::Responder& to_;
    AccessRecord& record_;
    const MonoClock& clock_;
};

LoggedExchange::LoggedExchange(AccessSink& sink, const MonoClock& clock,
                               const wire::RequestHead& head, wire::Responder& responder,
                               const Make& make)
    : sink_(sink), clock_(clock) {
    record_.peer = head.peer;
    record_.method = head.method;
    record_.path = head.path();
    record_.protocol = head.protocol;
    record_.tls = head.tls;
    record_.received_ns = head.first_byte_ns != 0 ? head.first_byte_ns : now_of(clock_);
    watch_ = std::make_unique<Watch>(responder, record_, clock_);
    inner_ = make(*watch_, record_);
}

LoggedExchange::~LoggedExchange() {
    inner_.reset();
    if (record_.end_ns == 0) record_.end_ns = now_of(clock_);
    sink_.record(record_);
}

}  // namespace zerohop::api
