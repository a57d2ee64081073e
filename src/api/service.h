// Service: the HTTP API. Every request head of every connection comes here first.
//
// on_head decides what the head alone can decide, in this order: route and method (404, 405), the
// page that asks (403), draining (503), who asks (the HeadPolicy: 401, 403, 429, …), size (413),
// version, content type and encoding (400, 415). What passes becomes a MessagesExchange or is
// answered at once.
//
// Threads: any number of I/O threads at once; immutable after construction but for the names that
// its catalog knows. Outlives its exchanges.
// Nothing fails: every outcome is an answer.
#pragma once

#include <memory>
#include <string_view>

#include "api/answer.h"
#include "api/catalog.h"
#include "api/error_table.h"
#include "api/messages_exchange.h"
#include "api/options.h"
#include "api/routes.h"
#include "api/skeleton_step.h"
#include "wire/http.h"

namespace zerohop::api {

class Service final : public wire::Dispatcher {
  public:
    explicit Service(ServiceOptions options);

    std::unique_ptr<wire::Exchange> on_head(const wire::RequestHead& head,
                                            wire::Responder& responder) override;
    wire::WireAnswer refusal(const wire::WireError& error) override { return wire_refusal(error); }

    const Catalog& catalog() const { return catalog_; }
    Catalog& catalog() { return catalog_; }

    // No large body is read any more. Blocks; after the last exchange and before the loops end.
    void stop() { workers_.stop(); }

  private:
    std::unique_ptr<wire::Exchange> answer(const wire::RequestHead& head,
                                           wire::Responder& responder, AccessRecord* record);
    AnswerContext make_context(const wire::RequestHead& head) const;
    std::string_view allowed_origin(const wire::RequestHead& head) const;
    Status check_origin(const wire::RequestHead& head) const;
    void add_cors(const wire::RequestHead& head, AnswerContext& context) const;
    void answer_preflight(const wire::RequestHead& head, wire::Responder& responder,
                          const AnswerContext& context) const;
    void answer_health(RouteId id, const wire::RequestHead& head, wire::Responder& responder,
                       const AnswerContext& context) const;
    void answer_cache(const Route& route, const wire::RequestHead& head,
                      const HeadDecision& decision, wire::Responder& responder,
                      const AnswerContext& context) const;
    void answer_models(const Route& route, const wire::RequestHead& head,
                       wire::Responder& responder, const AnswerContext& context,
                       const Admission& who) const;
    Result<HeadDecision> decide(const wire::RequestHead& head, Asks asks) const;
    Status check_size(const wire::RequestHead& head, const Principal& principal) const;

    ServiceOptions options_;
    Catalog catalog_;
    SkeletonStep skeleton_;
    WorkerPool workers_;
};

}  // namespace zerohop::api
