#include "admit/head_decider.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/origin.h"

namespace zerohop::admit {
namespace {

Status check_region(const HeadAdmission& a, std::string_view region, std::string_view target) {
    const Topology& topology = a.topology();
    if (region.empty() || topology.is_here(region)) return {};
    Error error{.code = Code::kMisdirected, .detail = {}, .origin = "admit"};
    const Region* there = topology.find_region(region);
    if (there == nullptr) {
        error.detail = fmt::format("region \"{}\" is not known here; this is region \"{}\"",
                                   printable(region), topology.config().region);
    } else if (there->location.empty()) {
        error.detail =
            fmt::format("this is region \"{}\", not \"{}\"", topology.config().region, there->name);
    } else {
        error.detail = fmt::format("this is region \"{}\"; region \"{}\" is at {}",
                                   topology.config().region, there->name, there->location);
        error.headers.emplace_back("location", there->location + std::string(target));
    }
    return std::unexpected(std::move(error));
}

bool is_ours(const Topology& topology, const wire::RequestHead& head) {
    // Nobody's page reaches a unix socket, and its clients write any host.
    return head.peer == "unix" || topology.is_ours(api::host_of(head.authority));
}

// A token only narrows: for one that names a region, the head may not name another.
Status check_token_region(std::string_view granted, std::string_view region) {
    if (granted.empty() || region.empty() || equal_ignoring_case(granted, region)) return {};
    return fail(Code::kPermission, "admit",
                fmt::format("the token is for region \"{}\"; x-anthropic-early-hint asks for "
                            "region \"{}\"",
                            granted, printable(region)));
}

std::string lanes_of(const Topology& topology, std::uint64_t mask) {
    std::string out;
    for (std::size_t i = 0; i < topology.lanes().size(); ++i)
        if ((mask >> i & 1) != 0) out += (out.empty() ? "" : ", ") + topology.lanes()[i].name;
    return out.empty() ? "none" : out;
}

Result<std::uint8_t> check_lane(const Topology& topology, const Binding& binding,
                                std::string_view name) {
    const int lane = name.empty() ? binding.default_lane : topology.find_lane(name);
    if (lane < 0)
        return fail(Code::kInvalidRequest, "admit",
                    fmt::format("x-anthropic-cuda-stream: there is no lane \"{}\"; lanes: {}",
                                printable(name), topology.lane_names()));
    if ((binding.lanes >> lane & 1) == 0)
        return fail(Code::kPermission, "admit",
                    fmt::format("key {} may not use lane \"{}\"; its lanes: {}", binding.key->id,
                                topology.lanes()[static_cast<std::size_t>(lane)].name,
                                lanes_of(topology, binding.lanes)));
    return static_cast<std::uint8_t>(lane);
}

Result<Priority> check_priority(const Binding& binding, std::optional<Priority> wanted) {
    if (!wanted) return std::min(Priority::kNormal, binding.priority_max);
    if (*wanted > binding.priority_max)
        return fail(Code::kPermission, "admit",
                    fmt::format("key {} may ask for priority {} at most, not {}", binding.key->id,
                                to_string(binding.priority_max), to_string(*wanted)));
    return *wanted;
}

Error not_admin(const HeadAdmission& a) {
    return Error{
        .code = Code::kPermission,
        .detail = a.by_token()
                      ? "a token is never an admin's, whoever asked for it: use the key itself"
                      : fmt::format("key {} is not an admin key (zerohop key create --admin)",
                                    a.key()->id),
        .origin = "admit"};
}

Error overloaded(std::string detail, std::int64_t retry_after_ms) {
    Error error{.code = Code::kOverloaded, .detail = std::move(detail), .origin = "admit"};
    error.retry_after_ms = std::max<std::int64_t>(retry_after_ms, 1);
    return error;
}

// 529 before the body is read: the queue of its lane is full.
Status check_load(const HeadAdmission& a) {
    const Model* model = a.model();
    if (model == nullptr || !model->gauge || a.counts_only()) return {};
    const sched::QueueGauge::Lane& lane = model->gauge->lanes[a.lane()];
    if (!lane.full.load(std::memory_order_relaxed)) return {};
    const std::int64_t retry = lane.retry_after_ms.load(std::memory_order_relaxed);
    return std::unexpected(
        overloaded(fmt::format("overloaded: the queue of model \"{}\" is full; try again in {} s",
                               model->id, (retry + 999) / 1000),
                   retry));
}

}  // namespace

HeadDecider::HeadDecider(std::shared_ptr<const auth::KeySnapshot> keys,
                         std::shared_ptr<const Topology> topology, Clocks clocks)
    : clocks_(std::move(clocks)), table_(book_.build(std::move(keys), std::move(topology))) {}

void HeadDecider::install(std::shared_ptr<const auth::KeySnapshot> keys,
                          std::shared_ptr<const Topology> topology) {
    table_.store(book_.build(std::move(keys), std::move(topology)));
}

HeadDecider::Now HeadDecider::now_of(const wire::RequestHead& head) const {
    return {.mono = head.decoded_ns != 0 ? head.decoded_ns
                    : clocks_.mono       ? clocks_.mono()
                                         : mono_now(),
            .wall = clocks_.wall ? clocks_.wall() : wall_now()};
}

Result<std::unique_ptr<HeadAdmission>> HeadDecider::identify(Mine& mine,
                                                             const wire::RequestHead& head,
                                                             const HeadFields& fields,
                                                             WallNs wall) {
    const std::shared_ptr<const AdmitTable>& table = mine.reader.get(table_);
    if (table->keys->empty()) {
        if (!is_ours(*table->topology, head))
            return fail(Code::kMisdirected, "admit",
                        fmt::format("this server has no keys, so it answers to localhost only, not "
                                    "to \"{}\": add that name to server.names, or make a key "
                                    "(zerohop key create)",
                                    printable(api::host_of(head.authority))));
        return std::make_unique<HeadAdmission>(table, table->anonymous, nullptr);
    }
    if (fields.two_keys)
        return fail(Code::kAuthentication, "admit",
                    "x-api-key or authorization was sent twice with different values");
    const auto credentials = auth::read_credentials(fields.x_api_key, fields.authorization);
    if (!credentials) return std::unexpected(credentials.error());
    auto first = whose(table, mine.verifier, credentials->first, wall);
    if (first || !credentials->second) return first;
    auto second = whose(table, mine.verifier, *credentials->second, wall);
    // Of two refusals the one that a new token cures.
    return second || credentials->second->is_token ? std::move(second) : std::move(first);
}

Result<std::unique_ptr<HeadAdmission>> HeadDecider::whose(
    const std::shared_ptr<const AdmitTable>& table, auth::TokenVerifier& verifier,
    const auth::Credential& credential, WallNs wall) {
    const auth::KeySnapshot& keys = *table->keys;
    if (!credential.is_token) {
        const auth::KeyRecord* key = keys.find_by_secret(credential.text, wall);
        if (key == nullptr) return std::unexpected(auth::invalid_key());
        return std::make_unique<HeadAdmission>(table, table->bindings[keys.index_of(*key)],
                                               nullptr);
    }
    auto token = verifier.check(keys, credential.text, wall);
    if (!token) return std::unexpected(std::move(token).error());
    std::shared_ptr<void>& attachment = *token->attachment;
    if (!attachment) attachment = book_.token_state(*token->claims, wall);
    return std::make_unique<HeadAdmission>(table, table->bindings[keys.index_of(*token->key)],
                                           std::static_pointer_cast<TokenState>(attachment));
}

Status HeadDecider::place(HeadAdmission& a, const Hints& hints,
                          const wire::RequestHead& head) const {
    if (!hints.model.empty()) {
        const Model* model = a.topology().find_model(hints.model);
        if (model == nullptr) return std::unexpected(a.unknown_model(hints.model));
        if (Status s = a.check_scope(*model); !s) return s;
        a.model_ = model;
        a.model_from_hint_ = true;
    }
    const auto lane = check_lane(a.topology(), *a.binding_, hints.lane);
    if (!lane) return std::unexpected(lane.error());
    const auto priority = check_priority(*a.binding_, hints.priority);
    if (!priority) return std::unexpected(priority.error());
    a.lane_ = *lane;
    a.priority_ = *priority;
    a.hinted_tokens_ = hints.tokens.value_or(0);
    a.content_length_ = head.content_length;
    return {};
}

Status HeadDecider::charge(HeadAdmission& a, const wire::RequestHead& head, Now now) const {
    const std::int64_t cap = a.topology().config().max_body_bytes;
    if (head.content_length > cap)
        return fail(
            Code::kTooLarge, "admit",
            fmt::format("the body is {} bytes long, the limit is {}", head.content_length, cap));
    if (Status s = check_load(a); !s) return s;
    if (Status s = a.check_first_token_now(); !s) return s;
    if (a.counts_only()) return charge_request(a, {}, now);
    return charge_request(a, {.input_tokens = 1, .output_tokens = 1}, now);
}

Status HeadDecider::charge_request(HeadAdmission& a, const Cost& probe, Now now) const {
    if (const auto refusal =
            QuotaCharge::charge(a.groups(), request_cost(a.class_), probe, now.mono))
        return std::unexpected(a.quota_error(*refusal, now.mono, now.wall));
    a.request_charged_ = true;
    return {};
}

Status HeadDecider::charge_lookup(HeadAdmission& a, bool deletes, Now now) const {
    Cost cost = request_cost(Quota::kLookups);
    cost.deletes = deletes ? 1 : 0;
    if (const auto refusal = QuotaCharge::charge(a.groups(), cost, {}, now.mono))
        return std::unexpected(a.quota_error(*refusal, now.mono, now.wall));
    return {};
}

void HeadDecider::reserve(HeadAdmission& a, const wire::RequestHead& head, MonoNs now) const {
    if (!a.model_from_hint_) return;
    const Topology& topology = a.topology();
    // A token is about four bytes of JSON; the answer's length is what admission will charge.
    std::int64_t tokens = a.model_->kv_reserve_tokens;
    if (head.content_length >= 0) tokens = head.content_length / 4 + a.expected_output();
    tokens = std::min<std::int64_t>(tokens, a.model_->context_tokens);
    if (tokens <= 0) return;
    a.binding_->workspace->soft_kv.reserve(
        a.hold_,
        {.tokens = tokens,
         .workspace_bound = topology.config().soft_kv_per_workspace,
         .key_bound = topology.config().soft_kv_per_key,
         .key_sum = &a.binding_->key_state->soft_kv,
         .model_sum = &a.table_->models[topology.index_of(*a.model_)]->soft_kv()},
        now);
}

Result<std::unique_ptr<HeadAdmission>> HeadDecider::decide_head(const wire::RequestHead& head,
                                                                api::Asks asks) {
    Mine& mine = mine_.get();
    const Now now = now_of(head);
    const HeadFields fields = scan_head(head);
    auto admission = identify(mine, head, fields, now.wall);
    if (!admission) return admission;
    HeadAdmission& a = **admission;
    a.last_now_ = now.mono;
    using api::Asks;
    if (asks == Asks::kToken) {
        if (Status s = charge_request(a, {}, now); !s) return std::unexpected(std::move(s).error());
        return admission;
    }
    const auto hints = parse_hints(fields);
    if (!hints) return std::unexpected(hints.error());
    a.skeleton_ = hints->skeleton;
    a.buffering_ = hints->buffering;
    const std::string_view granted = a.token_ ? std::string_view(a.token_->region) : "";
    Status placed = check_token_region(granted, hints->region);
    if (placed)
        placed = check_region(a, hints->region.empty() ? granted : hints->region, head.target);
    if (!placed) return std::unexpected(std::move(placed).error());
    if (asks == Asks::kAdmin) {
        if (!a.is_admin()) return std::unexpected(not_admin(a));
        return admission;
    }
    if (asks == Asks::kLookup || asks == Asks::kDelete) {
        a.class_ = Quota::kLookups;
        if (Status s = charge_lookup(a, asks == Asks::kDelete, now); !s)
            return std::unexpected(std::move(s).error());
        return admission;
    }
    if (asks == Asks::kCount) a.class_ = Quota::kCounts;
    if (Status s = place(a, *hints, head); !s) return std::unexpected(std::move(s).error());
    if (Status s = charge(a, head, now); !s) return std::unexpected(std::move(s).error());
    reserve(a, head, now.mono);
    return admission;
}

Result<api::HeadDecision> HeadDecider::decide(const wire::RequestHead& head, api::Asks asks) {
    auto admission = decide_head(head, asks);
    if (!admission) return std::unexpected(std::move(admission).error());
    api::HeadDecision decision;
    HeadAdmission& a = **admission;
    if (const auth::KeyRecord* key = a.key()) {
        decision.principal.workspace = key->workspace;
        decision.principal.key_id = key->id;
    }
    decision.principal.admin = a.is_admin();
    if (asks != api::Asks::kAdmin) {
        const Now now = now_of(head);
        decision.response_headers.reserve(12);
        a.append_rate_limits(now.mono, now.wall, decision.response_headers);
    }
    decision.admission = std::move(*admission);
    return decision;
}

}  // namespace zerohop::admit
