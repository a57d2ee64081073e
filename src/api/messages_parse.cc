#include "api/messages_parse.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <span>

#include "api/body.h"
#include "api/cache_request.h"
#include "api/content_parse.h"
#include "api/features_parse.h"
#include "api/json_fields.h"
#include "api/json_text.h"
#include "request/output_text.h"

namespace zerohop::api {
namespace {

static_assert(Body::kPadding >= simdjson::SIMDJSON_PADDING);

using simdjson::dom::object;
using simdjson::dom::parser;

enum Name : std::size_t {
    kModel,
    kMessages,
    kMaxTokens,
    kSystem,
    kStream,
    kStopSequences,
    kTemperature,
    kTopP,
    kTopK,
    kTools,
    kToolChoice,
    kThinking,
    kOutputConfig,
    kOutputFormat,
    kMetadata,
    kServiceTier,
    kSpeed,
    kInferenceGeo,
    kCacheControl,
    kDiagnostics,
    kContainer,
    kContextManagement,
    kMcpServers,
    kThread,
    kCompaction,
    kFallbacks,
    kFallbackCreditToken,
    kBillingPolicy,
    kBetas,
    kSafeguards,
    kMaxOutputTokens,  // only 2024-07-15 knows it
    kPrompt,           // this and what follows: warm-ups only
    kTtl,
    kNameCount
};

constexpr std::array<std::string_view, kNameCount> kNames = {"model",
                                                             "messages",
                                                             "max_tokens",
                                                             "system",
                                                             "stream",
                                                             "stop_sequences",
                                                             "temperature",
                                                             "top_p",
                                                             "top_k",
                                                             "tools",
                                                             "tool_choice",
                                                             "thinking",
                                                             "output_config",
                                                             "output_format",
                                                             "metadata",
                                                             "service_tier",
                                                             "speed",
                                                             "inference_geo",
                                                             "cache_control",
                                                             "diagnostics",
                                                             "container",
                                                             "context_management",
                                                             "mcp_servers",
                                                             "thread",
                                                             "compaction",
                                                             "fallbacks",
                                                             "fallback_credit_token",
                                                             "billing_policy",
                                                             "betas",
                                                             "safeguards",
                                                             "max_output_tokens",
                                                             "prompt",
                                                             "ttl"};

// What count_tokens does not take (wire-contract §7.1).
constexpr Name kNotCounted[] = {kMaxTokens,     kMaxOutputTokens, kStream,
                                kStopSequences, kMetadata,        kServiceTier,
                                kInferenceGeo,  kDiagnostics,     kContainer};

using Fields = std::array<Field, kNameCount>;

class MessagesParser {
  public:
    explicit MessagesParser(const ParseOptions& options)
        : options_(options), content_(options.version, out_.request) {}

    Result<ParsedMessages> run(Json root) {
        const auto body = want_object(root, Path());
        if (!body) return std::unexpected(body.error());
        if (auto ok = threads_refused(*body); !ok) return std::unexpected(ok.error());
        const std::span<const std::string_view> names(kNames);
        const std::size_t known = warm_up()    ? names.size()
                                  : old_caps() ? kPrompt
                                               : kMaxOutputTokens;
        if (auto ok = read_fields(*body, root_, names.first(known), fields_); !ok)
            return std::unexpected(ok.error());
        using Step = Status (MessagesParser::*)();
        constexpr Step kSteps[] = {
            &MessagesParser::endpoint, &MessagesParser::model,       &MessagesParser::max_tokens,
            &MessagesParser::options,  &MessagesParser::sampling,    &MessagesParser::features,
            &MessagesParser::metadata, &MessagesParser::absent_only, &MessagesParser::stops,
            &MessagesParser::prompt,   &MessagesParser::prefill,     &MessagesParser::ttl};
        for (const Step step : kSteps)
            if (auto ok = (this->*step)(); !ok) return std::unexpected(ok.error());
        return std::move(out_);
    }

  private:
    // 2024-07-15: max_tokens caps input and output together, stop sequences end whole tokens.
    bool old_caps() const { return options_.version == Version::k2024_07_15; }
    bool warm_up() const { return options_.endpoint == Endpoint::kWarmUp; }
    bool has(Name name) const { return present(fields_[name]); }
    Json at(Name name) const { return *fields_[name]; }
    Path path(Name name) const { return {root_, kNames[name]}; }
    std::unexpected<Error> bad(Name name, std::string_view message) const {
        return bad_field(path(name), message);
    }

    // First of all: an SDK's tool runner sends only the new messages of a thread, so anything but
    // this exact refusal would answer without context (wire-contract §8.3).
    Status threads_refused(object body) {
        Json thread;
        if (body.at_key("thread").get(thread) != simdjson::SUCCESS || thread.is_null()) return {};
        return std::unexpected(Error{.code = Code::kInvalidRequest,
                                     .detail =
                                         "thread: server-held threads are not supported; send "
                                         "the whole conversation",
                                     .origin = "api",
                                     .error_code = "thread_unsupported_request"});
    }

    Status endpoint() {
        out_.request.work =
            options_.endpoint == Endpoint::kCountTokens ? Work::kCount : Work::kGenerate;
        if (options_.endpoint != Endpoint::kCountTokens) return {};
        for (const Name name : kNotCounted)
            if (has(name)) return bad(name, "not accepted by count_tokens");
        return {};
    }

    Status model() {
        const bool hinted = warm_up() && !has(kModel) && !options_.hinted_model.empty();
        if (!fields_[kModel] && !hinted)
            return bad(kModel, warm_up() ? "field required (or a model in x-anthropic-early-hint)"
                                         : "field required");
        const auto name = hinted ? Result<std::string_view>(std::string_view(options_.hinted_model))
                                 : want_string(at(kModel), path(kModel));
        if (!name) return std::unexpected(name.error());
        out_.model = options_.catalog->find(*name);
        if (out_.model == nullptr)
            return fail(Code::kNotFound, "api",
                        fmt::format("model: {} is not served here; served: {}", in_quotes(*name),
                                    options_.known_models ? options_.known_models()
                                                          : options_.catalog->names()));
        out_.request.model = out_.model->id;
        return {};
    }

    Status max_tokens() {
        if (options_.endpoint == Endpoint::kCountTokens) return {};
        if (warm_up() && !fields_[kMaxTokens]) return {};
        if (old_caps()) return old_max_tokens();
        if (!fields_[kMaxTokens]) return bad(kMaxTokens, "field required");
        constexpr auto kAny = std::numeric_limits<std::int64_t>::max();
        const auto value = want_int(at(kMaxTokens), path(kMaxTokens), 0, kAny);
        if (!value) return std::unexpected(value.error());
        const std::int32_t limit = max_output_limit(*out_.model);
        if (*value > limit)
            return bad(kMaxTokens,
                       fmt::format("{} is above the maximum of {} output tokens of model {}",
                                   *value, limit, in_quotes(out_.model->id)));
        out_.request.max_tokens = static_cast<std::int32_t>(*value);
        return {};
    }

    Status old_max_tokens() {
        constexpr auto kMax = std::numeric_limits<std::int32_t>::max();
        const std::int32_t limit = max_output_limit(*out_.model);
        Request& request = out_.request;
        request.max_tokens = limit;
        if (has(kMaxOutputTokens)) {
            const auto value = want_int(at(kMaxOutputTokens), path(kMaxOutputTokens), 0, kMax);
            if (!value) return std::unexpected(value.error());
            if (*value > limit)
                return bad(kMaxOutputTokens,
                           fmt::format("{} is above the maximum of {} output tokens of model {}",
                                       *value, limit, in_quotes(out_.model->id)));
            request.max_tokens = static_cast<std::int32_t>(*value);
            if (!has(kMaxTokens)) return {};
        } else if (!fields_[kMaxTokens]) {
            return bad(kMaxTokens, "field required (or max_output_tokens)");
        }
        const auto total = want_int(at(kMaxTokens), path(kMaxTokens), 1, kMax);
        if (!total) return std::unexpected(total.error());
        request.max_total_tokens = static_cast<std::int32_t>(*total);
        request.max_tokens = std::min(request.max_tokens, request.max_total_tokens);
        return {};
    }

    // Small fields with a fixed set of values.
    Status options() {
        constexpr std::string_view kTiers[] = {"auto", "standard_only"};
        constexpr std::string_view kSpeeds[] = {"standard", "fast"};
        if (has(kStream)) {
            const auto stream = want_bool(at(kStream), path(kStream));
            if (!stream) return std::unexpected(stream.error());
            out_.stream = *stream;
        }
        if (has(kServiceTier)) {
            const auto tier = want_one_of(at(kServiceTier), path(kServiceTier), kTiers);
            if (!tier) return std::unexpected(tier.error());
        }
        if (has(kSpeed)) {
            const auto speed = want_one_of(at(kSpeed), path(kSpeed), kSpeeds);
            if (!speed) return std::unexpected(speed.error());
            if (*speed == "fast") return bad(kSpeed, "'fast' is not supported; use 'standard'");
        }
        if (has(kBetas)) {
            const auto betas = want_array(at(kBetas), path(kBetas));
            if (!betas) return std::unexpected(betas.error());
            std::size_t i = 0;
            for (const Json beta : *betas)
                if (auto name = want_string(beta, Path(path(kBetas), i++)); !name)
                    return std::unexpected(name.error());
        }
        if (has(kSafeguards))  // a wish for verdicts, which this server never gives
            if (auto list = want_array(at(kSafeguards), path(kSafeguards)); !list)
                return std::unexpected(list.error());
        return {};
    }

    Status sampling() {
        Sampling& sampling = out_.request.sampling;
        for (const Name name : {kTemperature, kTopP, kTopK}) {
            if (!fields_[name]) continue;
            if (options_.sampling == SamplingParams::kStrict &&
                options_.version == Version::k2026_10_21)
                return bad(name, fmt::format("not accepted under anthropic-version {}",
                                             version_name(options_.version)));
            if (!has(name)) continue;
            if (name == kTopK) {
                constexpr auto kMax = std::numeric_limits<std::int32_t>::max();
                const auto value = want_int(at(name), path(name), 0, kMax);
                if (!value) return std::unexpected(value.error());
                sampling.top_k = static_cast<std::int32_t>(*value);
                continue;
            }
            const auto value = want_number(at(name), path(name), 0, 1);
            if (!value) return std::unexpected(value.error());
            if (name == kTemperature) {
                sampling.temperature = static_cast<float>(*value);
            } else {
                // 0 would leave no token at all; the smallest share that is a share keeps the best.
                sampling.top_p = std::max(static_cast<float>(*value), 1e-6F);
            }
        }
        return {};
    }

    Status features() {
        const bool counting = options_.endpoint != Endpoint::kMessages;
        const auto max_tokens =
            counting ? std::nullopt : std::optional<std::int64_t>(out_.request.max_tokens);
        if (has(kTools))
            if (auto ok = check_tools(at(kTools), path(kTools)); !ok) return ok;
        if (has(kToolChoice))
            if (auto ok = check_tool_choice(at(kToolChoice), path(kToolChoice)); !ok) return ok;
        if (has(kThinking))
            if (auto ok =
                    check_thinking(at(kThinking), path(kThinking), max_tokens, out_.model->id);
                !ok)
                return ok;
        if (auto ok = check_output_config(fields_[kOutputConfig], fields_[kOutputFormat], root_);
            !ok)
            return ok;
        if (has(kDiagnostics))
            if (auto ok = check_diagnostics(at(kDiagnostics), path(kDiagnostics)); !ok) return ok;
        out_.context_management = has(kContextManagement);
        if (out_.context_management)
            return check_context_management(at(kContextManagement), path(kContextManagement));
        return {};
    }

    Status metadata() {
        if (!has(kMetadata)) return {};
        Result<std::string> user = parse_metadata(at(kMetadata), path(kMetadata));
        if (!user) return std::unexpected(user.error());
        out_.user_id = std::move(*user);
        return {};
    }

    // Accepted while they ask for nothing.
    Status absent_only() {
        for (const Name name :
             {kInferenceGeo, kContainer, kCompaction, kFallbackCreditToken, kBillingPolicy})
            if (has(name)) return bad(name, "not supported; leave it out or send null");
        if (has(kMcpServers)) {
            const auto servers = want_array(at(kMcpServers), path(kMcpServers));
            if (!servers) return std::unexpected(servers.error());
            if (servers->begin() != servers->end())
                return bad(kMcpServers, "MCP servers are not supported");
        }
        if (has(kFallbacks)) {
            std::string_view text;
            if (at(kFallbacks).get_string().get(text) != simdjson::SUCCESS || text != "default")
                return bad(kFallbacks, "not supported; leave it out or send 'default'");
        }
        return {};
    }

    Status stops() {
        if (old_caps()) out_.request.stop_rule = StopRule::kWholeToken;
        if (!has(kStopSequences)) return {};
        const Path here = path(kStopSequences);
        const auto list = want_array(at(kStopSequences), here);
        if (!list) return std::unexpected(list.error());
        std::size_t i = 0;
        std::size_t bytes = 0;
        for (const Json item : *list) {
            const Path at_stop(here, i++);
            if (i > kMaxStopSequences)
                return bad_field(here, fmt::format("at most {} stop sequences", kMaxStopSequences));
            const auto text = old_caps() ? old_stop(item, at_stop) : want_string(item, at_stop);
            if (!text) return std::unexpected(text.error());
            if (text->empty()) return bad_field(at_stop, "must not be empty");
            // The public API refuses white space; people who host their own model need it.
            if (!old_caps() && options_.sampling == SamplingParams::kStrict &&
                text->find_first_not_of(" \t\n\r\f\v") == std::string_view::npos)
                return bad_field(at_stop, "must contain something other than white space");
            bytes += text->size();
            if (bytes > OutputText::kMaxStopBytes)
                return bad_field(here, fmt::format("must have at most {} bytes together",
                                                   OutputText::kMaxStopBytes));
            out_.request.stop_sequences.emplace_back(*text);
        }
        return {};
    }

    // A string, or {"type":"text","text":"…"}; white space counts.
    static Result<std::string_view> old_stop(Json item, const Path& where) {
        constexpr std::string_view kMembers[] = {"type", "text"};
        constexpr std::string_view kTypes[] = {"text"};
        Result<std::string_view> text;
        if (item.is_object()) {
            std::array<Field, 2> members;
            if (auto ok = read_fields(item.get_object().value_unsafe(), where, kMembers, members);
                !ok)
                return std::unexpected(ok.error());
            for (std::size_t i = 0; i < members.size(); ++i)
                if (!members[i]) return bad_field(Path(where, kMembers[i]), "field required");
            if (auto type = want_one_of(*members[0], Path(where, kMembers[0]), kTypes); !type)
                return std::unexpected(type.error());
            text = want_string(*members[1], Path(where, kMembers[1]));
        } else {
            text = want_string(item, where);
        }
        return text;
    }

    Status prompt() {
        if (has(kPrompt)) return tagged_prompt();
        if (has(kSystem))
            if (auto ok = content_.system(at(kSystem), path(kSystem)); !ok) return ok;
        if (!warm_up() || (has(kMessages) && !is_empty_list(at(kMessages)))) {
            if (!fields_[kMessages]) return bad(kMessages, "field required");
            if (auto ok = content_.messages(at(kMessages), path(kMessages)); !ok) return ok;
        }
        // Stands for a breakpoint on the last block, so it comes after all others.
        return content_.cache_control(fields_[kCacheControl], root_);
    }

    static bool is_empty_list(Json value) {
        simdjson::dom::array list;
        return value.get_array().get(list) == simdjson::SUCCESS && list.begin() == list.end();
    }

    Status tagged_prompt() {
        for (const Name name : {kSystem, kMessages})
            if (has(name)) return bad(name, "give either prompt, or system and messages");
        const auto text = want_string(at(kPrompt), path(kPrompt));
        if (!text) return std::unexpected(text.error());
        return append_tagged(*text, out_.request.turns);
    }

    // What a warm-up is told by its own field, else by the breakpoint that lasts longest.
    Status ttl() {
        if (!warm_up()) return {};
        constexpr std::string_view kTtls[] = {"5m", "1h"};
        out_.stream = false;
        out_.warm_up_ttl_ns = kShortTtl;
        for (const CacheBreakpoint& breakpoint : out_.request.breakpoints)
            out_.warm_up_ttl_ns = std::max(out_.warm_up_ttl_ns, breakpoint.ttl_ns);
        if (!has(kTtl)) return {};
        const auto value = want_one_of(at(kTtl), path(kTtl), kTtls);
        if (!value) return std::unexpected(value.error());
        out_.warm_up_ttl_ns = *value == "1h" ? kLongTtl : kShortTtl;
        return {};
    }

    // A final assistant turn is the beginning of the answer.
    Status prefill() {
        std::vector<Turn>& turns = out_.request.turns;
        if (turns.empty() || turns.back().role != Role::kAssistant) return {};
        if (turns.back().parts.empty()) {  // only empty text: there is nothing to continue
            turns.pop_back();
            return {};
        }
        const char last = turns.back().parts.back().back();
        if (last == ' ' || last == '\t' || last == '\n' || last == '\r')
            return bad(kMessages, "the final assistant message must not end with white space");
        if (!out_.model->engine->info().can_continue)
            return bad(kMessages, fmt::format("model {} cannot continue an assistant message; the "
                                              "last message must be from 'user'",
                                              in_quotes(out_.model->id)));
        out_.request.continue_last = true;
        return {};
    }

    const ParseOptions& options_;
    const Path root_;
    Fields fields_;
    ParsedMessages out_;
    ContentParser content_;  // writes into out_
};

std::string_view json_problem(simdjson::error_code code) {
    switch (code) {
        case simdjson::EMPTY:
            return "empty; a JSON object is required";
        case simdjson::UTF8_ERROR:
            return "not valid UTF-8";
        case simdjson::DEPTH_ERROR:
            return "nested too deeply (more than 128 levels)";
        case simdjson::STRING_ERROR:
            return "not valid JSON: a string has a bad escape, a lone surrogate or no end";
        case simdjson::UNESCAPED_CHARS:
            return "not valid JSON: a string contains a raw control character";
        case simdjson::UNCLOSED_STRING:
            return "not valid JSON: a string has no end";
        case simdjson::NUMBER_ERROR:
            return "not valid JSON: a number is malformed or out of range";
        default:
            return "not valid JSON";
    }
}

// Bodies up to this size are parsed with the thread's own parser, whose buffers stay (about 14
// bytes per byte of the largest); larger ones give their memory back.
constexpr std::size_t kKeptParserBytes = 256 * 1024;

}  // namespace

// Simdjson's structural indexes and tape, and what its strings have beside their text. Each key and
// value but the first follows one of these characters; those inside of strings count for nothing
// worse than a larger bound.
std::size_t parse_scratch_bytes(std::string_view json) {
    constexpr std::size_t kPerValue =
        33;  // 3 indexes of 4 bytes, 16 on the tape, 5 beside a string
    std::size_t values = 1;
    for (const char c : json)
        values += static_cast<std::size_t>(c == ',' || c == ':' || c == '[' || c == '{');
    return values * kPerValue;
}

Result<ParsedMessages> parse_messages(std::string_view json, const ParseOptions& options,
                                      Body* source) {
    thread_local parser kept;
    std::unique_ptr<parser> large;
    if (json.size() > kKeptParserBytes) large = std::make_unique<parser>();
    parser& chosen = large ? *large : kept;
    simdjson::error_code error = simdjson::SUCCESS;
    if (chosen.capacity() < json.size() || chosen.capacity() == 0)
        error = chosen.allocate(std::max<std::size_t>(json.size(), 4096), kMaxJsonDepth);
    Json root;
    if (error == simdjson::SUCCESS) error = chosen.parse(json.data(), json.size(), false).get(root);
    if (error == simdjson::MEMALLOC)
        return fail(Code::kOverloaded, "api", "out of memory for the request body; try again");
    if (error != simdjson::SUCCESS) return bad_field(Path(), json_problem(error));
    if (source != nullptr) source->clear();  // the document has copies of its strings
    return MessagesParser(options).run(root);
}

}  // namespace zerohop::api
