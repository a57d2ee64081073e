#include "app/warm_up.h"

#include <fmt/format.h>

#include <chrono>
#include <thread>
#include <utility>
#include <variant>

#include "api/cache_request.h"
#include "api/ids.h"
#include "base/file.h"
#include "base/log.h"
#include "request/stream.h"

namespace zerohop::app {
namespace {

constexpr auto kPoll = std::chrono::milliseconds(1);
// Nobody else asks yet: a prompt that waits for so long while nothing runs does not fit.
constexpr MonoNs kStandstillNs = 30 * kNsPerSec;

Result<Request> request_of(const WarmUpConfig& warm_up, const Config& config) {
    Request request;
    request.id = api::new_id("req_");
    request.trace_id = api::new_trace_id();
    request.principal.workspace = warm_up.workspace;
    join_cache_group(request.principal, cache_groups(config));
    request.received_ns = mono_now();
    std::string text = warm_up.prompt;
    if (!warm_up.file.empty()) {
        Result<std::string> read = read_file(warm_up.file, "config");
        if (!read) return std::unexpected(read.error());
        text = std::move(*read);
    }
    if (!warm_up.system.empty())
        request.turns.push_back({.role = Role::kSystem, .parts = {warm_up.system}});
    else if (Status s = api::append_tagged(text, request.turns); !s)
        return std::unexpected(s.error());
    request.continue_last = request.turns.back().role == Role::kAssistant;
    api::drop_lines(request, config.cache.drop_lines);
    const MonoNs ttl = warm_up.ttl == "5m" ? api::kShortTtl : api::kLongTtl;
    if (Status s = api::make_warm_up(request, ttl); !s) return std::unexpected(s.error());
    return request;
}

Result<Done> run(EnginePort& engine, const Request& request) {
    const auto stream = std::make_shared<Stream>(nullptr, nullptr);
    engine.submit(std::make_shared<Request>(request), stream);
    std::uint64_t steps = 0;
    MonoNs moved_ns = mono_now();
    for (Event event;;) {
        if (!stream->try_pop(event)) {
            std::this_thread::sleep_for(kPoll);
            const EngineStats stats = engine.stats_approx();
            if (stats.running > 0 || stats.steps != std::exchange(steps, stats.steps))
                moved_ns = mono_now();
            if (mono_now() - moved_ns <= kStandstillNs) continue;
            stream->cancel(CancelReason::kDeadline);
            return fail(Code::kTimeout, "app",
                        "it does not get on: there is no room for it beside the others");
        } else if (auto* const done = std::get_if<Done>(&event)) {
            return std::move(*done);
        } else if (auto* const failed = std::get_if<Failed>(&event)) {
            return std::unexpected(std::move(failed->error));
        }
    }
}

Result<Done> warm_up_one(const WarmUpConfig& warm_up, const Config& config,
                         const api::Catalog& catalog) {
    Result<Request> request = request_of(warm_up, config);
    if (!request) return std::unexpected(request.error());
    const api::ServedModel* model = catalog.find(warm_up.model);  // checked by finish_config
    if (model == nullptr) return fail(Code::kNotFound, "config", "the model is not served");
    request->model = model->id;
    Result<Done> done = run(*model->engine, *request);
    if (!done && done.error().code == Code::kInvalidRequest && api::add_user_turn(*request))
        done = run(*model->engine, *request);  // its template refuses a prompt without a user
    return done;
}

}  // namespace

void warm_up_all(const Config& config, const api::Catalog& catalog, const Progress& progress) {
    std::size_t at = 0;
    for (const WarmUpConfig& warm_up : config.cache.warm_ups) {
        const auto share =
            static_cast<float>(at++) / static_cast<float>(config.cache.warm_ups.size());
        if (progress)
            progress(fmt::format("{}: warming up, prompt {} of {}", warm_up.model, at,
                                 config.cache.warm_ups.size()),
                     share);
        const Result<Done> done = warm_up_one(warm_up, config, catalog);
        if (!done) {
            log_error("app",
                      "cache.warmup {} of model {} failed, its prompt will be computed when it is "
                      "asked for: {}",
                      at, warm_up.model, done.error().detail);
        } else if (done->cached_until_ns == 0) {
            log_warn("app",
                     "cache.warmup {} of model {} is not kept: raise cache.pin_share, "
                     "cache.pin_total_share or model.kv_tokens, and leave cache.prefix on",
                     at, warm_up.model);
        } else {
            log_info("app", "cache.warmup {} of model {}: {} tokens for workspace {}", at,
                     warm_up.model, done->usage.input_tokens, warm_up.workspace);
        }
    }
}

}  // namespace zerohop::app
