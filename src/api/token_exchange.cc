#include "api/token_exchange.h"

#include <utility>

#include "api/error_table.h"

namespace zerohop::api {

TokenExchange::TokenExchange(const ServiceOptions& options, wire::Responder& responder,
                             AnswerContext answer, std::unique_ptr<Admission> admission,
                             std::string_view content_encoding, std::int64_t content_length)
    : options_(options),
      responder_(responder),
      answer_(std::move(answer)),
      admission_(std::move(admission)),
      body_(kMaxBody, content_length) {
    if (content_length > kMaxBody)
        fail_with(body_too_large(kMaxBody));
    else if (auto ok = body_.set_encoding(content_encoding); !ok)
        fail_with(ok.error());
    else
        responder_.send_continue();
}

void TokenExchange::on_body(std::string_view bytes) {
    if (ended_) return;
    if (auto ok = body_.append(bytes); !ok) fail_with(ok.error());
}

void TokenExchange::on_body_end() {
    if (ended_) return;
    if (auto ok = body_.finish(); !ok) return fail_with(ok.error());
    Result<std::string> json = options_.answer_token(*admission_, body_.bytes());
    if (!json) return fail_with(json.error());
    ended_ = true;
    // A secret: nobody on the way may keep it.
    answer_json(responder_, answer_, 200, std::move(*json), {{"cache-control", "no-store"}});
}

void TokenExchange::fail_with(const Error& error) {
    ended_ = true;
    if (blames_the_request(error.code)) admission_->refund_request(options_.now());
    answer_error(responder_, answer_, error);
}

}  // namespace zerohop::api
