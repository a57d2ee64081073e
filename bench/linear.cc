// bench_linear: passes over client text other than the skeleton's, one input each, for an
// instruction counter around --once (bench/skeleton.py: linear_ratio).
//
//   --once KIND BYTES [--dry]   makes a hostile input and (unless --dry) runs its pass once
//   --kinds                     names them
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "api/cache_request.h"
#include "api/messages_parse.h"
#include "engine/null_engine.h"
#include "engine/prompt_guard.h"
#include "request/output_text.h"

namespace {

using namespace zerohop;

std::string repeated(std::string_view unit, std::size_t bytes) {
    std::string out;
    out.reserve(bytes + unit.size());
    while (out.size() < bytes) out += unit;
    return out;
}

std::size_t guard(const std::string& text) {
    const engine::SpecialTokens specials(
        {{"<|im_start|>", 1}, {"<|im_end|>", 2}, {"<|endoftext|>", 3}});
    engine::PromptGuard guard(specials);
    return guard.reveal({{guard.hide(text), true}}).size();
}

std::size_t parse(const std::string& json) {
    static const auto engine = engine::make_null("null");
    static const api::Catalog catalog({{.id = "m", .engine = engine->get()}});
    std::string padded = json;
    padded.append(api::Body::kPadding, '\0');
    auto parsed =
        api::parse_messages(std::string_view(padded).substr(0, json.size()), {.catalog = &catalog});
    if (!parsed) return parsed.error().detail.size();
    const std::string prefixes[] = {"x-header:"};
    return 1 + api::drop_lines(parsed->request, prefixes);
}

// The stop sequences are as many as may be; what grows is the text.
std::size_t stop(const std::string& text) {
    std::vector<std::string> stops;
    for (std::size_t i = 1; i <= 127; ++i) stops.push_back(std::string(i, 'a') + "b");
    OutputText output(stops);
    std::string out;
    output.append(text, out);
    output.flush(out);
    return out.size();
}

std::string messages(std::string_view members) {
    return R"({"model":"m","max_tokens":1,"messages":[)" + std::string(members) + "]}";
}

std::string said(std::string_view content) {
    return messages(R"({"role":"user","content":)" + std::string(content) + "}");
}

struct Kind {
    std::function<std::string(std::size_t)> input;
    std::function<std::size_t(const std::string&)> pass;
};

std::string list_of(std::string_view unit, std::size_t bytes) {
    std::string all = repeated(unit, bytes);
    all.pop_back();  // the last comma
    return all;
}

const std::map<std::string_view, Kind> kKinds = {
    {"guard-open", {[](auto n) { return repeated("\xF3\xB0\x80\xBE", n) + "<|im_end|>"; }, guard}},
    {"guard-token", {[](auto n) { return repeated("<|im_end|>", n); }, guard}},
    {"guard-half", {[](auto n) { return repeated("<|im_en", n) + "<|im_end|>"; }, guard}},
    {"parse-blocks",
     {[](auto n) { return said("[" + list_of(R"({"type":"text","text":"a"},)", n) + "]"); },
      parse}},
    {"parse-messages",
     {[](auto n) {
          return messages(
              list_of(R"({"role":"user","content":"a"},{"role":"assistant","content":"b"},)", n));
      },
      parse}},
    {"parse-system",
     {[](auto n) {
          return messages(R"({"role":"user","content":"a"},)" +
                          list_of(R"({"role":"system","clear_at":"next_user_message","content":")"
                                  R"(x-header: a=1;b"},)",
                                  n));
      },
      parse}},
    {"parse-escapes",
     {[](auto n) { return said("\"" + repeated("\\u00e9\\n", n) + "\""); }, parse}},
    {"parse-depth", {[](auto n) { return said(repeated("[", n)); }, parse}},
    {"parse-keys", {[](auto n) { return said("{" + list_of(R"("k":1,)", n) + "}"); }, parse}},
    {"stop-almost", {[](auto n) { return repeated("a", n); }, stop}},
    {"stop-mixed", {[](auto n) { return repeated("aaaaaac", n); }, stop}},
};

}  // namespace

int main(int argc, char** argv) {
    if (argc >= 2 && std::strcmp(argv[1], "--kinds") == 0) {
        for (const auto& [name, kind] : kKinds) fmt::print("{}\n", name);
        return 0;
    }
    const auto kind =
        argc >= 4 && std::strcmp(argv[1], "--once") == 0 ? kKinds.find(argv[2]) : kKinds.end();
    if (kind == kKinds.end()) return 2;
    const std::string text = kind->second.input(std::strtoul(argv[3], nullptr, 10));
    if (argc > 4) return text.empty() ? 1 : 0;
    return kind->second.pass(text) > 0 ? 0 : 1;
}
