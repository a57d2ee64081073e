// Headers are bytes from strangers. Lines of the input become the hint headers; whatever they are,
// parsing does not crash, fails only with a 400, and what it accepts obeys the grammar.
#include <cstdint>
#include <string>
#include <string_view>

#include "admit/hints.h"
#include "api/trace.h"
#include "base/check.h"

using namespace zerohop;
using namespace zerohop::admit;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    constexpr const char* kNames[] = {"x-anthropic-early-hint",
                                      "x-anthropic-rate-hint",
                                      "x-anthropic-cuda-stream",
                                      "x-anthropic-debug",
                                      "x-anthropic-stream-buffering",
                                      "traceparent",
                                      "x-zerohop-early-hint",
                                      "x-zerohop-rate-hint",
                                      "x-zerohop-cuda-stream",
                                      "x-api-key",
                                      "authorization",
                                      "x-zerohop-other"};
    std::string_view text(reinterpret_cast<const char*>(data), size);
    wire::RequestHead head;
    // Each line: a letter that chooses the name, then the value.
    while (!text.empty() && head.headers.size() < 32) {
        const std::string_view line = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(text.size(), line.size() + 1));
        if (line.empty()) continue;
        const auto which = static_cast<unsigned char>(line[0]) % std::size(kNames);
        head.headers.push_back({kNames[which], std::string(line.substr(1))});
    }
    const HeadFields fields = scan_head(head);
    if (const auto parent = api::trace_parent_of(head)) {
        const std::string again = api::make_traceparent({parent->trace_id.data(), 32},
                                                        {parent->span_id.data(), 16}, true);
        ZH_CHECK(api::parse_traceparent(again));
    }
    const auto hints = parse_hints(fields);
    if (!hints) {
        ZH_CHECK(hints.error().code == Code::kInvalidRequest && !hints.error().detail.empty());
        return 0;
    }
    ZH_CHECK(hints->model.size() <= 128 && hints->region.size() <= 128);
    ZH_CHECK(!hints->tokens || *hints->tokens >= 0);
    for (const std::string_view word : {hints->model, hints->region})
        for (const char c : word) ZH_CHECK(c > 0x20 && c < 0x7f);
    return 0;
}
