// Answers: what every response of an exchange carries, and how JSON and errors are sent.
//
// Owning thread: the exchange's I/O thread. An AnswerContext is made from the request head, belongs
// to the exchange and dies with it. Nothing fails: a Responder takes everything.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "wire/http.h"

namespace zerohop::api {

struct AnswerContext {
    std::string request_id;             // "req_…"
    std::string trace_id;               // 32 hex digits
    std::string trace_parent;           // the caller's "<trace id>-<span id>", or ""
    std::vector<wire::Header> headers;  // traceparent, policy's and CORS, on every answer
    bool accept_gzip = false;
    bool head_only = false;          // the method is HEAD: no body bytes
    bool openai_request_id = false;  // also `x-request-id`, which that SDK reads
};

// Status, content-type, ids and the context's headers; content_length still unknown.
wire::ResponseHead make_head(const AnswerContext& context, int status,
                             std::string_view content_type);

// A whole JSON answer, gzip'd when the client takes it and it is worth it (> 1 KiB).
void answer_json(wire::Responder& responder, const AnswerContext& context, int status,
                 std::string body, const std::vector<wire::Header>& extra = {});

void answer_error(wire::Responder& responder, const AnswerContext& context, const Error& error,
                  const std::vector<wire::Header>& extra = {});

}  // namespace zerohop::api
