// TokenExchange: one POST /v1/auth/token, whose head was let in. Collects its small body and
// answers.
//
// Owning thread: the connection's I/O thread. Nothing fails: every outcome is an answer.
#pragma once

#include <memory>
#include <string_view>

#include "api/answer.h"
#include "api/body.h"
#include "api/head_policy.h"
#include "api/options.h"
#include "wire/http.h"

namespace zerohop::api {

class TokenExchange final : public wire::Exchange {
  public:
    static constexpr std::int64_t kMaxBody = 64 * 1024;

    // options outlive the exchange; its answer_token and `admission` are not empty.
    TokenExchange(const ServiceOptions& options, wire::Responder& responder, AnswerContext answer,
                  std::unique_ptr<Admission> admission, std::string_view content_encoding,
                  std::int64_t content_length);

    void on_body(std::string_view bytes) override;
    void on_body_end() override;
    void on_writable() override {}
    void on_disconnect() override { ended_ = true; }

  private:
    void fail_with(const Error& error);

    const ServiceOptions& options_;
    wire::Responder& responder_;
    AnswerContext answer_;
    std::unique_ptr<Admission> admission_;
    Body body_;
    bool ended_ = false;
};

}  // namespace zerohop::api
