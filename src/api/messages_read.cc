#include "api/messages_read.h"

#include <memory>
#include <utility>

#include "api/cache_request.h"

namespace zerohop::api {
namespace {

std::unexpected<Error> cancelled() { return fail(Code::kCancelled, "api", "cancelled"); }

// The body's charge, which from here on pays for the text that came out of it.
Status charge(Request& request, MemoryCharge&& body) {
    request.memory = std::make_shared<MemoryCharge>(std::move(body));
    if (request.memory->resize(text_bytes(request))) return {};
    return std::unexpected(bodies_full());
}

Result<ParsedMessages> parse(Body& body, const ReadTerms& terms) {
    const std::string_view json = body.bytes();
    MemoryCharge paid = body.take_charge();
    MemoryCharge scratch = paid.for_a_moment();
    if (json.size() > kLargeBody && !scratch.resize(parse_scratch_bytes(json)))
        return std::unexpected(bodies_full());
    Result<ParsedMessages> parsed = parse_messages(json, terms.parse, &body);
    if (!parsed) return parsed;
    if (Status paying = charge(parsed->request, std::move(paid)); !paying)
        return std::unexpected(paying.error());
    return parsed;
}

}  // namespace

Result<ReadMessages> read_messages(Body& body, const ReadTerms& terms) {
    if (stopped(terms.stop)) return cancelled();
    Result<ParsedMessages> parsed = parse(body, terms);
    body.clear();
    if (!parsed) return std::unexpected(parsed.error());
    if (stopped(terms.stop)) return cancelled();
    ReadMessages out{.parsed = std::move(*parsed), .skeleton = {}};
    Request& request = out.parsed.request;
    request.id = terms.request_id;
    out.dropped_lines = drop_lines(request, terms.options->drop_lines);
    if (terms.parse.endpoint == Endpoint::kWarmUp)
        if (auto ok = make_warm_up(request, out.parsed.warm_up_ttl_ns); !ok)
            return std::unexpected(ok.error());
    if (stopped(terms.stop)) return cancelled();
    MemoryCharge scratch = request.memory->for_a_moment();
    if (request.memory->bytes() > kLargeBody &&
        !scratch.resize(SkeletonStep::scratch_bytes(request)))
        return std::unexpected(bodies_full());
    Result<SkeletonSummary> skeleton = terms.skeleton->read(request, terms.strict_skeleton);
    if (!skeleton) return std::unexpected(skeleton.error());
    out.skeleton = std::move(*skeleton);
    request.structure = out.skeleton.structure;
    if (terms.options->isolate_users) request.cache_user = out.parsed.user_id;
    return out;
}

}  // namespace zerohop::api
