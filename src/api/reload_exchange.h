// ReloadExchange: one POST /v1/config/reload of an admin. Reads past its body, asks for the reload
// and answers with how it went.
//
// Owning thread: the connection's I/O thread; the reload itself runs elsewhere and its outcome is
// posted back. However long that takes the exchange may end before it: the outcome is then dropped.
// Nothing fails: every outcome is an answer.
#pragma once

#include <memory>
#include <string_view>

#include "api/answer.h"
#include "api/options.h"
#include "wire/http.h"

namespace zerohop::api {

class ReloadExchange final : public wire::Exchange {
  public:
    // options outlive the exchange; its reload is not empty.
    ReloadExchange(const ServiceOptions& options, wire::Responder& responder, AnswerContext answer);
    ~ReloadExchange() override;

    void on_body(std::string_view) override {}  // nothing it could say; the wire bounds it
    void on_body_end() override;
    void on_writable() override {}
    void on_disconnect() override;

  private:
    struct Link {
        ReloadExchange* owner = nullptr;  // null once it has ended; I/O thread only
    };
    void answer(const ReloadOutcome& outcome);

    const ServiceOptions& options_;
    wire::Responder& responder_;
    AnswerContext answer_;
    std::shared_ptr<Link> link_;
};

}  // namespace zerohop::api
