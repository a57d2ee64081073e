#include "cli/skeleton_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

namespace zerohop::cli {
namespace {

using Json = nlohmann::ordered_json;
namespace sk = skeleton;

std::unexpected<Error> bad(const std::string& what) {
    return fail(Code::kInvalidRequest, "cli", what);
}

std::string text_of(const Json& content) {
    if (content.is_string()) return content.get<std::string>();
    std::string out;
    if (content.is_array())
        for (const Json& block : content)
            if (block.is_object() && block.contains("text") && block["text"].is_string())
                out += block["text"].get<std::string>();
    return out;
}

void add_blocks(InputTurn& turn, const Json& content, const std::string& where) {
    if (content.is_string()) {
        turn.blocks.push_back({sk::BlockKind::kText, content.get<std::string>(), "", where});
        return;
    }
    if (!content.is_array()) return;
    for (std::size_t i = 0; i < content.size(); ++i) {
        const Json& block = content[i];
        if (!block.is_object()) continue;
        const std::string at = fmt::format("{}[{}]", where, i);
        const std::string type = block.value("type", "text");
        if (type == "tool_use")
            turn.blocks.push_back({sk::BlockKind::kToolUse,
                                   block.value("input", Json::object()).dump(),
                                   block.value("name", ""), at + ".input"});
        else if (type == "tool_result")
            turn.blocks.push_back({sk::BlockKind::kToolResult,
                                   text_of(block.value("content", Json(""))), "", at + ".content"});
        else if (type == "image")
            turn.blocks.push_back({sk::BlockKind::kImage, "", "", at});
        else if (block.contains("text") && block["text"].is_string())
            turn.blocks.push_back(
                {sk::BlockKind::kText, block["text"].get<std::string>(), "", at + ".text"});
    }
}

Result<Call> call_of(const std::string& name, const Json& body) {
    Call call;
    call.name = name;
    if (body.contains("tools") && body["tools"].is_array()) {
        call.tools = static_cast<std::uint32_t>(body["tools"].size());
        call.tools_text = body["tools"].dump();
    }
    if (body.contains("system")) {
        InputTurn turn{sk::Role::kSystem, {}};
        add_blocks(turn, body["system"], "system");
        if (!turn.blocks.empty()) call.turns.push_back(std::move(turn));
    }
    if (!body["messages"].is_array()) return bad(fmt::format("{}: \"messages\" is no list", name));
    for (std::size_t i = 0; i < body["messages"].size(); ++i) {
        const Json& m = body["messages"][i];
        if (!m.is_object()) return bad(fmt::format("{}: messages[{}] is no object", name, i));
        const std::string role = m.value("role", "");
        if (role != "user" && role != "assistant" && role != "system")
            return bad(
                fmt::format("{}: messages[{}].role is \"{}\"; there are user, assistant and system",
                            name, i, role));
        InputTurn turn{role == "user"     ? sk::Role::kUser
                       : role == "system" ? sk::Role::kSystem
                                          : sk::Role::kAssistant,
                       {}};
        add_blocks(turn, m.value("content", Json("")), fmt::format("messages[{}].content", i));
        call.turns.push_back(std::move(turn));
    }
    return call;
}

Call text_call(const std::string& name, std::string text) {
    Call call;
    call.name = name;
    call.is_text = true;
    call.raw = std::move(text);
    if (call.raw.starts_with("\xEF\xBB\xBF")) call.raw.erase(0, 3);  // a byte order mark is no text
    sk::Arena arena;
    const sk::Analysis a = sk::analyze_text(call.raw, arena, {.template_text = true});
    for (std::size_t i = 1; i < a.nodes.size(); i = a.nodes[i].next) {
        if (a.nodes[i].kind != sk::Kind::kTag) continue;
        const std::string_view tag =
            std::string_view(call.raw).substr(a.nodes[i].name, a.nodes[i].name_size);
        call.is_template =
            call.is_template || tag == "system" || tag == "user" || tag == "assistant";
    }
    if (!call.is_template) {
        call.turns.push_back({sk::Role::kUser, {{sk::BlockKind::kText, call.raw, "", ""}}});
        return call;
    }
    for (sk::TemplateMessage& m : sk::parse_template(call.raw, false, arena).messages)
        call.turns.push_back({m.role, {{sk::BlockKind::kText, std::move(m.text), "", ""}}});
    return call;
}

bool is_request(const Json& json) { return json.is_object() && json.contains("messages"); }

}  // namespace

PromptView::PromptView(const Call& call) {
    for (const InputTurn& turn : call.turns) {
        blocks_.emplace_back();
        for (const InputBlock& b : turn.blocks) {
            blocks_.back().push_back({b.kind, b.text, b.name});
            order_.push_back(&b);
        }
    }
    for (std::size_t i = 0; i < call.turns.size(); ++i)
        messages_.push_back({call.turns[i].role, blocks_[i]});
    prompt_ = {call.tools, messages_};
}

Result<std::vector<Call>> parse_calls(const std::string& name, std::string text) {
    std::vector<Call> calls;
    const bool lines = name.ends_with(".jsonl");
    const std::size_t first = text.find_first_not_of(" \t\r\n");
    if (!lines && first != std::string::npos && text[first] == '{') {
        const Json whole = Json::parse(text, nullptr, false);
        if (is_request(whole)) {
            auto call = call_of(name, whole);
            if (!call) return std::unexpected(call.error());
            calls.push_back(std::move(*call));
            return calls;
        }
        if (name.ends_with(".json"))
            return bad(
                fmt::format("{}: {}", name,
                            whole.is_discarded() ? "not JSON" : "a request needs \"messages\""));
    }
    std::size_t number = 0;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.size(), text.find('\n', at));
        const std::string line = text.substr(at, end - at);
        at = end + 1;
        ++number;
        if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
        const Json json = line[line.find_first_not_of(" \t\r")] == '{'
                              ? Json::parse(line, nullptr, false)
                              : Json();
        // The Batch API's lines carry the body under "params" or "body".
        const Json* body = &json;
        for (const char* key : {"params", "body"})
            if (json.is_object() && json.contains(key) && is_request(json[key])) body = &json[key];
        if (!is_request(*body)) {
            if (lines) return bad(fmt::format("{}:{}: not a request in JSON", name, number));
            calls.clear();
            break;  // not JSONL after all
        }
        auto call = call_of(fmt::format("{}:{}", name, number), *body);
        if (!call) return std::unexpected(call.error());
        calls.push_back(std::move(*call));
    }
    if (!lines && calls.empty()) calls.push_back(text_call(name, std::move(text)));
    return calls;
}

Result<std::vector<Call>> read_calls(const std::vector<std::string>& paths) {
    namespace fs = std::filesystem;
    std::vector<Call> all;
    const auto add = [&all](const std::string& name, std::string text) -> Status {
        auto calls = parse_calls(name, std::move(text));
        if (!calls) return std::unexpected(calls.error());
        std::move(calls->begin(), calls->end(), std::back_inserter(all));
        return {};
    };
    std::vector<std::string> files;
    for (const std::string& path : paths.empty() ? std::vector<std::string>{"-"} : paths) {
        std::error_code ec;
        if (path != "-" && fs::is_directory(path, ec)) {
            std::vector<std::string> inside;
            for (auto it = fs::recursive_directory_iterator(
                     path, fs::directory_options::skip_permission_denied, ec);
                 it != fs::recursive_directory_iterator(); it.increment(ec))
                if (it->is_regular_file(ec) && !it->path().filename().string().starts_with('.'))
                    inside.push_back(it->path().string());
            std::sort(inside.begin(), inside.end());
            files.insert(files.end(), inside.begin(), inside.end());
        } else {
            files.push_back(path);
        }
    }
    for (const std::string& file : files) {
        std::string text;
        if (file == "-") {
            text.assign(std::istreambuf_iterator<char>(std::cin), {});
        } else {
            std::ifstream in(file, std::ios::binary);
            if (!in) return bad(fmt::format("cannot read {}: {}", file, std::strerror(errno)));
            text.assign(std::istreambuf_iterator<char>(in), {});
        }
        if (auto done = add(file, std::move(text)); !done) return std::unexpected(done.error());
    }
    if (all.empty()) return bad("there is nothing to read");
    return all;
}

std::string Rendered::place(std::size_t offset) const {
    const auto it = std::upper_bound(segments.begin(), segments.end(), offset,
                                     [](std::size_t at, const Segment& s) { return at < s.begin; });
    const std::size_t begin = it == segments.begin() ? 0 : std::prev(it)->begin;
    const std::string where = it == segments.begin() ? "" : std::prev(it)->where;
    const sk::Place p = sk::place_of(std::string_view(text).substr(begin), offset - begin);
    return fmt::format("{}line {}, byte {}", where.empty() ? "" : where + ", ", p.line,
                       offset - begin);
}

Rendered render(const Call& call) {
    Rendered out;
    if (call.is_text) {
        out.text = call.raw;
        return out;
    }
    if (!call.tools_text.empty()) {
        out.segments.push_back({0, "tools"});
        out.text += call.tools_text;
    }
    for (const InputTurn& turn : call.turns)
        for (const InputBlock& b : turn.blocks) {
            // A role's marker is the template's own text: the same for every call.
            out.text += turn.role == sk::Role::kSystem ? "\n[system]\n"
                        : turn.role == sk::Role::kUser ? "\n[user]\n"
                                                       : "\n[assistant]\n";
            out.text += b.name;
            out.segments.push_back({out.text.size(), b.where});
            out.text += b.text;
        }
    return out;
}

std::vector<Turn> turns_of(const Call& call) {
    std::vector<Turn> turns;
    for (const InputTurn& t : call.turns) {
        const Role role = t.role == sk::Role::kSystem ? Role::kSystem
                          : t.role == sk::Role::kUser ? Role::kUser
                                                      : Role::kAssistant;
        if (turns.empty() || turns.back().role != role) turns.push_back({role, {}});
        for (const InputBlock& b : t.blocks) turns.back().parts.push_back(b.text);
    }
    // An empty last <assistant> is the cue to answer, which every rendered prompt ends with anyway.
    if (!turns.empty() && turns.back().role == Role::kAssistant &&
        std::all_of(turns.back().parts.begin(), turns.back().parts.end(), [](const std::string& s) {
            return s.find_first_not_of(" \t\r\n") == std::string::npos;
        }))
        turns.pop_back();
    return turns;
}

}  // namespace zerohop::cli
