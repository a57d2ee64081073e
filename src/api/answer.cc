#include "api/answer.h"

#include "api/error_table.h"
#include "api/gzip.h"

namespace zerohop::api {
namespace {

constexpr std::size_t kGzipFrom = 1024;  // bytes; below, the header costs more than it saves

void send_whole(wire::Responder& responder, const AnswerContext& context, wire::ResponseHead head,
                std::string_view body) {
    head.content_length = static_cast<std::int64_t>(body.size());
    responder.send_head(head);
    if (!context.head_only && !body.empty()) responder.send_body(body);
    responder.finish();
}

}  // namespace

wire::ResponseHead make_head(const AnswerContext& context, int status,
                             std::string_view content_type) {
    wire::ResponseHead head;
    head.status = status;
    head.headers.reserve(context.headers.size() + 8);
    if (!content_type.empty()) head.headers.push_back({"content-type", std::string(content_type)});
    head.headers.push_back({"request-id", context.request_id});
    if (context.openai_request_id) head.headers.push_back({"x-request-id", context.request_id});
    head.headers.push_back({"x-anthropic-trace-id", context.trace_id});
    head.headers.insert(head.headers.end(), context.headers.begin(), context.headers.end());
    return head;
}

void answer_json(wire::Responder& responder, const AnswerContext& context, int status,
                 std::string body, const std::vector<wire::Header>& extra) {
    wire::ResponseHead head = make_head(context, status, "application/json");
    head.headers.insert(head.headers.end(), extra.begin(), extra.end());
    if (body.size() > kGzipFrom) {
        head.headers.push_back({"vary", "accept-encoding"});
        if (context.accept_gzip) {
            if (auto packed = gzip_compress(body)) {
                head.headers.push_back({"content-encoding", "gzip"});
                body = std::move(*packed);
            }
        }
    }
    send_whole(responder, context, std::move(head), body);
}

void answer_error(wire::Responder& responder, const AnswerContext& context, const Error& error,
                  const std::vector<wire::Header>& extra) {
    wire::ResponseHead head = make_head(context, error_row(error.code).status, "application/json");
    append_error_headers(error, head.headers);
    head.headers.insert(head.headers.end(), extra.begin(), extra.end());
    send_whole(responder, context, std::move(head), error_body(error, context.request_id));
}

}  // namespace zerohop::api
