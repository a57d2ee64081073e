// Any bytes as the body of each endpoint, under every version and sampling rule: no crash, and
// what is accepted keeps Request's promises. The same bytes also go through gunzip,
// percent-decoding and the JSON string writer.
#include <simdjson.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "api/body.h"
#include "api/cache_request.h"
#include "api/json_text.h"
#include "api/messages_parse.h"
#include "api/url.h"
#include "base/check.h"

namespace {

using namespace zerohop;
using namespace zerohop::api;

class AnyModel final : public EnginePort {
  public:
    AnyModel() {
        info_.id = "m";
        info_.context_tokens = 4096;
    }
    const ModelInfo& info() const override { return info_; }
    void submit(RequestPtr, StreamPtr) override {}
    EngineStats stats_approx() const override { return {}; }
    void drain() override {}
    void stop() override {}
    void notify() noexcept override {}

  private:
    ModelInfo info_;
};

bool is_utf8(std::string_view text) { return simdjson::validate_utf8(text.data(), text.size()); }

void check_turns(const Request& request) {
    ZH_CHECK(!request.turns.empty());
    const Turn* before = nullptr;
    for (const Turn& turn : request.turns) {
        ZH_CHECK(before == nullptr || before->role != turn.role);
        ZH_CHECK(turn.role == Role::kAssistant || !turn.parts.empty());
        for (const std::string& part : turn.parts) ZH_CHECK(!part.empty() && is_utf8(part));
        before = &turn;
    }
    const bool assistant_last = request.turns.back().role == Role::kAssistant;
    ZH_CHECK(request.continue_last == assistant_last);
    ZH_CHECK(!assistant_last || !request.turns.back().parts.empty());
}

void check_breakpoints(const Request& request) {
    ZH_CHECK(request.breakpoints.size() <= 4);
    const CacheBreakpoint* before = nullptr;
    for (const CacheBreakpoint& b : request.breakpoints) {
        ZH_CHECK(b.turn < request.turns.size() && b.part < request.turns[b.turn].parts.size());
        ZH_CHECK(b.ttl_ns == kShortTtl || b.ttl_ns == kLongTtl);
        ZH_CHECK(before == nullptr || before->turn < b.turn ||
                 (before->turn == b.turn && before->part < b.part));
        before = &b;
    }
}

// Whatever lines go, what is left is a Request as before, and nothing goes the second time.
void check_dropped(Request request) {
    const std::vector<std::string> prefixes = {"x", "- "};
    const std::size_t breakpoints = request.breakpoints.size();
    drop_lines(request, prefixes);
    ZH_CHECK(request.breakpoints.size() <= breakpoints);
    if (!request.turns.empty()) check_turns(request);
    check_breakpoints(request);
    ZH_CHECK(drop_lines(request, prefixes) == 0);
}

void check_accepted(const ParsedMessages& parsed, const ParseOptions& options) {
    const Request& request = parsed.request;
    ZH_CHECK(parsed.model != nullptr && request.model == "m");
    const bool warm_up = options.endpoint == Endpoint::kWarmUp;
    ZH_CHECK((parsed.warm_up_ttl_ns != 0) == warm_up && !(warm_up && parsed.stream));
    if (!warm_up || !request.turns.empty()) check_turns(request);
    check_breakpoints(request);
    check_dropped(request);
    ZH_CHECK(request.max_tokens >= 0 && request.max_tokens <= max_output_limit(*parsed.model));
    ZH_CHECK(request.stop_sequences.size() <= kMaxStopSequences);
    for (const std::string& stop : request.stop_sequences) ZH_CHECK(!stop.empty() && is_utf8(stop));
    const Sampling& s = request.sampling;
    ZH_CHECK(!s.temperature || (*s.temperature >= 0 && *s.temperature <= 1));
    ZH_CHECK(!s.top_p || (*s.top_p > 0 && *s.top_p <= 1));
    ZH_CHECK(!s.top_k || *s.top_k >= 0);
    if (options.sampling == SamplingParams::kStrict && options.version == Version::k2026_10_21)
        ZH_CHECK(!s.temperature && !s.top_p && !s.top_k);
    ZH_CHECK((request.work == Work::kCount) == (options.endpoint == Endpoint::kCountTokens));
    ZH_CHECK(is_utf8(parsed.user_id));
}

void check_parse(std::string_view json) {
    static AnyModel engine;
    static const Catalog catalog({{.id = "m", .engine = &engine, .aliases = {"claude"}}});
    for (const Endpoint endpoint : {Endpoint::kMessages, Endpoint::kCountTokens, Endpoint::kWarmUp})
        for (const Version version :
             {Version::k2023_06_01, Version::k2026_10_21, Version::k2024_07_15})
            for (const SamplingParams sampling :
                 {SamplingParams::kAccept, SamplingParams::kStrict}) {
                const ParseOptions options{version, sampling, endpoint, &catalog};
                const auto parsed = parse_messages(json, options);
                if (parsed) {
                    check_accepted(*parsed, options);
                    continue;
                }
                const Error& error = parsed.error();
                ZH_CHECK(error.code == Code::kInvalidRequest || error.code == Code::kNotFound);
                ZH_CHECK(!error.detail.empty() && error.detail.size() < 2048 &&
                         is_utf8(error.detail));
            }
}

// What we write, simdjson reads back as it was.
void check_round_trip(std::string_view text) {
    if (!is_utf8(text)) return;
    std::string written;
    append_json_string(written, text);
    written.append(simdjson::SIMDJSON_PADDING, '\0');
    static simdjson::dom::parser parser;
    std::string_view read;
    const auto error =
        parser.parse(written.data(), written.size() - simdjson::SIMDJSON_PADDING, false).get(read);
    ZH_CHECK(error == simdjson::SUCCESS && read == text);
    ZH_CHECK(written.find('\n') == std::string::npos && written.find('\r') == std::string::npos);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view bytes(reinterpret_cast<const char*>(data), size);
    Body body(1 << 20, -1);
    if (body.append(bytes).has_value() && body.finish().has_value()) check_parse(body.bytes());
    Body packed(1 << 20, -1);
    if (packed.set_encoding("gzip").has_value() && packed.append(bytes).has_value() &&
        packed.finish().has_value())
        check_parse(packed.bytes());
    check_round_trip(bytes);
    if (const auto decoded = percent_decode(bytes)) ZH_CHECK(decoded->size() <= size);
    (void)parse_query(bytes);
    return 0;
}
