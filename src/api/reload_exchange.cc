#include "api/reload_exchange.h"

#include <utility>

#include "api/json_text.h"

namespace zerohop::api {

ReloadExchange::ReloadExchange(const ServiceOptions& options, wire::Responder& responder,
                               AnswerContext answer)
    : options_(options),
      responder_(responder),
      answer_(std::move(answer)),
      link_(std::make_shared<Link>(Link{this})) {
    responder_.send_continue();
}

ReloadExchange::~ReloadExchange() { on_disconnect(); }

void ReloadExchange::on_disconnect() { link_->owner = nullptr; }

void ReloadExchange::on_body_end() {
    if (link_->owner == nullptr) return;
    options_.reload([link = link_, loop = &responder_.loop()](const ReloadOutcome& outcome) {
        loop->post([link, outcome] {
            if (link->owner != nullptr) link->owner->answer(outcome);
        });
    });
}

void ReloadExchange::answer(const ReloadOutcome& outcome) {
    link_->owner = nullptr;
    if (!outcome) return answer_error(responder_, answer_, outcome.error());
    std::string body = R"({"type":"config_reloaded","needs_restart":[)";
    for (const std::string& what : *outcome) {
        if (!body.ends_with('[')) body += ',';
        append_json_string(body, what);
    }
    answer_json(responder_, answer_, 200, body + "]}");
}

}  // namespace zerohop::api
