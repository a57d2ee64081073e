// What the skeleton tools read: prompts from standard input, files, folders and JSONL.
//
//   *.jsonl           one request (the Messages API's body) per line
//   *.json            one request
//   a folder          its files, by name, folders within included
//   anything else     text: a template when it has <system>, <user> or <assistant> at its top
//   level,
//                     else one user message. A request is recognised by its content, too.
// Main thread; owns its strings. Fails with kInvalidRequest, in words for the person at the shell.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "request/request.h"
#include "skeleton/skeleton.h"

namespace zerohop::cli {

struct InputBlock {
    skeleton::BlockKind kind = skeleton::BlockKind::kText;
    std::string text;
    std::string name;
    std::string where;  // "messages[2].content[0]"; empty for a text file
};
struct InputTurn {
    skeleton::Role role = skeleton::Role::kUser;
    std::vector<InputBlock> blocks;
};
struct Call {
    std::string name;  // "prompt.txt", "calls.jsonl:3", "-"
    std::uint32_t tools = 0;
    std::string tools_text;  // the tools' JSON, as sent
    std::vector<InputTurn> turns;
    std::string raw;       // the file's text; empty for requests
    bool is_text = false;  // raw is what people wrote (a template or one message)
    bool is_template = false;
};

// A Prompt that points into a Call.
class PromptView {
  public:
    explicit PromptView(const Call& call);
    PromptView(const PromptView&) = delete;
    PromptView& operator=(const PromptView&) = delete;
    const skeleton::Prompt& prompt() const { return prompt_; }
    const InputBlock& block(std::size_t index) const { return *order_[index]; }

  private:
    std::vector<std::vector<skeleton::Block>> blocks_;
    std::vector<skeleton::Message> messages_;
    std::vector<const InputBlock*> order_;
    skeleton::Prompt prompt_;
};

// `paths` empty or "-": standard input.
Result<std::vector<Call>> read_calls(const std::vector<std::string>& paths);
Result<std::vector<Call>> parse_calls(const std::string& name, std::string text);

// The prompt as one text, in the order a model reads it; segments name its parts.
struct Rendered {
    struct Segment {
        std::size_t begin;
        std::string where;
    };
    std::string text;
    std::vector<Segment> segments;
    // "line 3, byte 57" or "messages[1].content[0], line 3, byte 57"
    std::string place(std::size_t offset) const;
};
Rendered render(const Call& call);

// For the engine's counting: text of each turn.
std::vector<Turn> turns_of(const Call& call);

}  // namespace zerohop::cli
