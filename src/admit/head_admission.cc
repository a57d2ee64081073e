#include "admit/head_admission.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "admit/hints.h"
#include "admit/rate_limit_headers.h"
#include "sched/first_token.h"

namespace zerohop::admit {
namespace {

constexpr std::string_view kQuotaNames[kQuotas] = {
    "requests", "input tokens", "output tokens", "count_tokens requests", "look-ups", "deletions"};

std::string duration_text(MonoNs ns) {
    const double seconds = static_cast<double>(ns) / 1e9;
    if (seconds < 10) return fmt::format("{:.1f} s", std::max(seconds, 0.1));
    return fmt::format("{} s", (ns + kNsPerSec - 1) / kNsPerSec);
}

bool names_model(const std::vector<std::string>& scope, const Model& model) {
    for (const std::string& name : scope) {
        if (name == "*" || equal_ignoring_case(name, model.id)) return true;
        for (const std::string& alias : model.aliases)
            if (equal_ignoring_case(name, alias)) return true;
    }
    return false;
}

}  // namespace

HeadAdmission::~HeadAdmission() {
    if (open_) settle({.input_tokens = charged_.input_tokens}, false, last_now_);
}

std::int32_t HeadAdmission::expected_output() const {
    return std::max(hinted_tokens_, binding_->workspace->structure_lengths.estimate(structure_)
                                        .value_or(binding_->key_state->lengths.estimate()));
}

bool HeadAdmission::output_is_a_guess() const {
    return !binding_->key_state->lengths.learned() && hinted_tokens_ < LengthLearner::kPrior &&
           !binding_->workspace->structure_lengths.estimate(structure_);
}

Error HeadAdmission::unknown_model(std::string_view name) const {
    std::string known;
    std::size_t shown_models = 0;
    for (const Model& model : topology().models()) {
        if (!check_scope(model)) continue;
        if (++shown_models > 8) {
            known += ", …";
            break;
        }
        known += (known.empty() ? "" : ", ") + model.id;
    }
    return Error{.code = Code::kNotFound,
                 .detail = fmt::format("model \"{}\" is not served here; there {}: {}",
                                       printable(name), shown_models == 1 ? "is" : "are",
                                       known.empty() ? "none for this key" : known),
                 .origin = "admit"};
}

Status HeadAdmission::check_scope(const Model& model) const {
    if (!binding_->all_models && !binding_->models[topology().index_of(model)])
        return fail(Code::kPermission, "admit",
                    fmt::format("key {} may not use model \"{}\"", binding_->key->id, model.id));
    if (token_ && !names_model(token_->models, model))
        return fail(Code::kPermission, "admit",
                    fmt::format("the token's model_scope does not include \"{}\"", model.id));
    return {};
}

FirstTokenPromise HeadAdmission::promise() const {
    const Lane& lane = topology().lanes()[lane_];
    if (priority_ != Priority::kHigh || lane.ttft_p99_ms == 0 || counts_only() ||
        model_ == nullptr || !model_->gauge)
        return {};
    return {.lane = lane.name, .within_ms = lane.ttft_p99_ms};
}

Status HeadAdmission::check_first_token(std::uint32_t start_ms, std::int64_t input_tokens) const {
    const FirstTokenPromise promise = this->promise();
    if (promise.within_ms == 0) return {};
    const sched::QueueGauge& gauge = *model_->gauge;
    return sched::check_first_token(
        promise, start_ms, gauge.engine_keeps_promises ? 0 : gauge.prefill_ms_approx(input_tokens));
}

Status HeadAdmission::check_first_token_now() {
    if (model_ == nullptr || !model_->gauge) return {};
    start_ms_ = model_->gauge->lanes[lane_].high_start_ms.load(std::memory_order_relaxed);
    // At least so many tokens: few texts have more than eight bytes of JSON to a token.
    return check_first_token(start_ms_, std::max<std::int64_t>(content_length_, 0) / 8);
}

Result<const Model*> HeadAdmission::choose_model(std::string_view name) {
    const Model* named = topology().find_model(name);
    if (named == nullptr) return std::unexpected(unknown_model(name));
    if (model_from_hint_ && named != model_)
        return fail(Code::kInvalidRequest, "admit",
                    fmt::format("model: \"{}\" is not the model of x-anthropic-early-hint, \"{}\"",
                                printable(name), model_->id));
    if (Status s = check_scope(*named); !s) return std::unexpected(s.error());
    model_ = named;
    if (Status s = check_first_token_now(); !s) return std::unexpected(s.error());
    return named;
}

Status HeadAdmission::check_model(std::string_view name) {
    if (const auto model = choose_model(name); !model) return std::unexpected(model.error());
    return {};
}

bool HeadAdmission::may_use(std::string_view model_id) const {
    const Model* model = topology().find_model(model_id);
    return model != nullptr && check_scope(*model).has_value();
}

api::Admission::Terms HeadAdmission::terms() const {
    Terms terms;
    terms.lane = lane_;
    terms.priority = priority_;
    if (model_ != nullptr && model_->gauge && model_->gauge->engine_keeps_promises)
        terms.promise = promise();
    terms.expected_output = expected_output();
    terms.buffering = buffering_;
    return terms;
}

Status HeadAdmission::charge(std::int32_t input_tokens, std::int32_t max_output, MonoNs now,
                             WallNs wall) {
    if (const auto price = admit(input_tokens, max_output, now, wall); !price)
        return std::unexpected(price.error());
    return {};
}

Error HeadAdmission::quota_error(const QuotaRefusal& refusal, MonoNs now, WallNs wall) const {
    Error error{.code = Code::kRateLimited, .detail = {}, .origin = "admit"};
    const std::string_view what = kQuotaNames[static_cast<std::size_t>(refusal.quota)];
    const std::string who =
        refusal.group->name().empty()
            ? "this server's anonymous use"
            : fmt::format("{} {}", refusal.group->scope(), refusal.group->name());
    if (refusal.retry_in_ns < 0) {
        const std::string burst = refusal.burst == refusal.limit
                                      ? std::string()
                                      : fmt::format(" with a burst of {}", refusal.burst);
        error.detail = fmt::format(
            "{}: this request needs {} {}, more than the limit of {} per minute{} ever allows at "
            "once",
            who, refusal.cost, what, refusal.limit, burst);
        error.headers.emplace_back("x-should-retry", "false");
    } else {
        error.detail = fmt::format("{}: the limit of {} {} per minute is reached; try again in {}",
                                   who, refusal.limit, what, duration_text(refusal.retry_in_ns));
        error.retry_after_ms =
            std::max<std::int64_t>(1, (refusal.retry_in_ns + kNsPerMs - 1) / kNsPerMs);
    }
    for (wire::Header& h : rate_limits(now, wall))
        error.headers.emplace_back(std::move(h.name), std::move(h.value));
    return error;
}

Result<Price> HeadAdmission::admit(std::int32_t input_tokens, std::int32_t max_output, MonoNs now,
                                   WallNs wall) {
    Price price{.input_tokens = std::max(input_tokens, 0),
                .output_tokens = std::clamp(expected_output(), 0, std::max(max_output, 0))};
    if (Status late = check_first_token(start_ms_, input_tokens); !late) {
        for (wire::Header& h : rate_limits(now, wall))
            late.error().headers.emplace_back(std::move(h.name), std::move(h.value));
        return std::unexpected(std::move(late).error());
    }
    const auto groups = this->groups();
    Cost cost{.input_tokens = price.input_tokens, .output_tokens = price.output_tokens};
    std::optional<QuotaRefusal> refusal;
    if (output_is_a_guess()) {
        refusal = QuotaCharge::charge_what_remains(groups, cost, now);
    } else {
        // A long expected answer may exceed a whole minute's output quota; it is then admitted when
        // the quota is untouched, and what it really uses is settled (and owed) at the end.
        for (const QuotaGroup* group : groups) {
            const std::int64_t burst = group == nullptr ? 0 : group->burst_of(Quota::kOutputTokens);
            if (burst != 0) cost.output_tokens = std::min(cost.output_tokens, burst);
        }
        refusal = QuotaCharge::charge(groups, cost, {}, now);
    }
    if (refusal) return std::unexpected(quota_error(*refusal, now, wall));
    hold_.release();
    charged_ = {.input_tokens = price.input_tokens,
                .output_tokens = static_cast<std::int32_t>(cost.output_tokens)};
    open_ = true;
    last_now_ = now;
    return price;
}

void HeadAdmission::settle(const Usage& used, bool completed, MonoNs now) {
    if (!open_) return;
    open_ = false;
    const std::int64_t input =
        used.input_tokens -
        (topology().config().count_cache_reads ? std::int64_t{0} : used.cache_read_tokens);
    QuotaCharge::adjust(
        groups(),
        {.input_tokens = input - charged_.input_tokens,
         .output_tokens = std::int64_t{used.output_tokens} - charged_.output_tokens},
        now);
    if (!completed) return;
    binding_->key_state->lengths.observe(used.output_tokens);
    binding_->workspace->structure_lengths.observe(structure_, used.output_tokens);
}

void HeadAdmission::forget_prompts() { binding_->workspace->structure_lengths.forget(); }

void HeadAdmission::refund_request(MonoNs now) {
    if (!std::exchange(request_charged_, false)) return;
    QuotaCharge::adjust(groups(), request_cost(class_, -1), now);
}

std::vector<wire::Header> HeadAdmission::rate_limits(MonoNs now, WallNs wall) const {
    std::vector<wire::Header> out;
    append_rate_limits(now, wall, out);
    return out;
}

void HeadAdmission::append_rate_limits(MonoNs now, WallNs wall,
                                       std::vector<wire::Header>& out) const {
    append_rate_limit_headers(QuotaCharge::states(groups(), now), class_, wall, out);
}

}  // namespace zerohop::admit
