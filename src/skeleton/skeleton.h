// Prompt skeleton: the tree of a prompt's structure, its canonical form and its keys.
//
// Format: docs/formats/skeleton.md (kFormatVersion is part of every key). Identifiers, numbers,
// wording and white space do not count; tags, code structure, lists, tables, JSON shapes and the
// content of <semantic_anchor> do.
//
// Threads: re-entrant; no global state but constant tables. One Arena per thread (or per request):
// analyze() may run on any thread, never blocks, and takes time linear in the input.
// Lifetime: an Analysis points into its Arena and into the input's bytes; it ends with the next
// analyze() on that Arena. The Arena frees everything; it keeps its memory for the next call.
// Errors: nothing fails. Bad input is reported in Analysis::errors, and read as text.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace zerohop::skeleton {

inline constexpr std::uint32_t kFormatVersion = 1;
inline constexpr int kMaxDepthAdvice = 7;          // deeper is a warning, never an error
inline constexpr std::size_t kMaxOpenTags = 64;    // deeper tags are text (strict: an error)
inline constexpr std::size_t kMaxReported = 1024;  // spans kept; the total is exact
inline constexpr std::size_t kMaxErrors = 64;      // errors kept; the totals are exact
inline constexpr std::size_t kMaxBlockBytes = std::size_t{1} << 30;

// --- input --------------------------------------------------------------------------------------
enum class Role : std::uint8_t { kSystem, kUser, kAssistant };

enum class BlockKind : std::uint8_t {
    kText,        // text: the words
    kToolUse,     // name: the tool; text: its input as JSON
    kToolResult,  // text: its content, as text
    kImage,       // neither
};

struct Block {
    BlockKind kind = BlockKind::kText;
    std::string_view text;
    std::string_view name = {};
};

struct Message {
    Role role = Role::kUser;
    std::span<const Block> blocks;
};

struct Prompt {
    std::uint32_t tools = 0;            // number of tool definitions
    std::span<const Message> messages;  // system first, as the model reads them
};

struct Options {
    bool strict = false;         // report unbalanced tags, raw < > & in elements, open fences
    bool template_text = false;  // the text is a template file: a last <assistant> may stay open
    bool portable = false;       // force the portable path (tests)
};

// --- output -------------------------------------------------------------------------------------
enum class Kind : std::uint8_t {
    kTools,
    kSystem,
    kUser,
    kAssistant,
    kToolUse,
    kToolResult,
    kTag,
    kAnchor,
    kCodeBlock,
    kFunctionDef,
    kClassDef,
    kImport,
    kHeading,
    kList,
    kTable,
    kQuote,
    kJson,
    kImage,
    kText,
    kDissolved,  // a tag that was never closed: text, its children belong to its parent
};

// Nodes stand in preorder; a node's subtree is [its index, next). A FunctionDef stands for
// FUNCTION_DEF and its PARAMS, a CodeBlock for CODE_BLOCK and its language.
struct Node {
    Kind kind = Kind::kText;
    std::uint8_t sub = 0;       // CodeBlock: Lang; List: 0 bullet, 1 number; Heading: level
    std::uint16_t columns = 0;  // Table
    std::uint32_t count = 0;    // params, items, rows, tools; exact
    std::uint32_t block = 0;    // index of its block, counted over the whole prompt
    std::uint32_t begin = 0;    // byte range within its block
    std::uint32_t end = 0;
    std::uint32_t next = 0;
    std::uint32_t name = 0;  // Tag, Anchor, CodeBlock: range in the block; Json: in the shapes
    std::uint32_t name_size = 0;
    std::uint32_t content_begin = 0;  // Tag, CodeBlock: what lies between its delimiters
    std::uint32_t content_end = 0;
};

struct Key {
    std::uint64_t high = 0;
    std::uint64_t low = 0;
    friend bool operator==(const Key&, const Key&) = default;
    std::string hex() const;  // 32 digits
};

enum class VolatileKind : std::uint8_t {
    kTimestamp,
    kDate,
    kTime,
    kUuid,
    kHex,
    kToken,
    kEpoch,
    kCounter
};
std::string_view name_of(VolatileKind kind);

struct Volatile {
    VolatileKind kind = VolatileKind::kTimestamp;
    std::uint32_t block = 0;
    std::uint32_t offset = 0;  // bytes within the block
    std::uint32_t size = 0;
};

enum class Problem : std::uint8_t {
    kInvalidUtf8,
    kNulByte,
    kRawLess,
    kRawGreater,
    kRawAmpersand,
    kUnclosedTag,
    kStrayClose,
    kIllegalTag,
    kTooDeep,
    kUnclosedFence,
    kTooLarge,
    kTextOutsideRoles,
    kRoleInsideRole,
};
inline constexpr std::size_t kProblems = 13;
std::string_view name_of(Problem problem);

struct ParseError {
    Problem problem = Problem::kInvalidUtf8;
    std::uint32_t block = 0;
    std::uint32_t offset = 0;  // bytes within the block
};

struct Analysis {
    std::span<const Node> nodes;
    std::span<const std::string_view> blocks;  // text of each block, in order
    std::span<const std::string_view> names;   // tool name of each block
    std::string_view shapes;                   // JSON shapes, see Node::name
    std::string_view canonical;                // the hashed form; nodes closed
    Key whole, last_turn, system_tools;        // the chain of keys, most to least specific
    int complexity = 0;                        // depth of the tree, ROOT = 0
    std::span<const Volatile> volatiles;       // the first kMaxReported, by block and offset
    std::uint64_t volatile_count = 0;
    std::span<const ParseError> errors;  // the first kMaxErrors
    std::array<std::uint64_t, kProblems> error_counts{};
    std::uint64_t error_count = 0;
};

class Arena {
  public:
    Arena();
    ~Arena();
    Arena(Arena&&) noexcept;
    Arena& operator=(Arena&&) noexcept;
    struct State;
    State& state() { return *state_; }
    std::size_t bytes() const;            // memory held
    void shrink(std::size_t keep_bytes);  // frees everything when more than keep_bytes is held

  private:
    std::unique_ptr<State> state_;
};

// The one entry point. The prompt's bytes must outlive the use of the result.
Analysis analyze(const Prompt& prompt, Arena& arena, const Options& options = {});
// One user message with one text block.
Analysis analyze_text(std::string_view text, Arena& arena, const Options& options = {});

// For people: nodes in brackets, not closed, as [USER][CODE_BLOCK][PYTHON][FUNCTION_DEF][PARAMS:3].
std::string flat_form(const Analysis& analysis);
// The value of x-anthropic-skeleton: "key=…;complexity=…;volatile=…".
std::string header_value(const Analysis& analysis);

// --- templates ----------------------------------------------------------------------------------
struct TemplateMessage {
    Role role = Role::kUser;
    std::string text;          // entities decoded
    std::uint32_t offset = 0;  // of the content in the template
};

struct Template {
    std::vector<TemplateMessage> messages;  // an empty last assistant message is a cue, kept
    std::vector<ParseError> errors;         // block is 0: offsets are into the template
};

// Reads <system>, <user> and <assistant> at the top level as roles. Lenient (strict = false): text
// outside of roles is a user message. Allocates; for files and warm-ups, not for the I/O thread.
Template parse_template(std::string_view text, bool strict, Arena& arena);

// --- words for errors ---------------------------------------------------------------------------
struct Place {
    std::uint32_t line = 1;    // lines end at \n, \r\n or \r
    std::uint32_t column = 1;  // code points
};
Place place_of(std::string_view text, std::size_t offset);
// "SKELETON_PARSE_ERROR line 3 column 7: found "<b" …; cure: …"
std::string describe(const ParseError& error, std::string_view block_text);
std::string_view cure_of(Problem problem);

std::size_t tables_bytes();         // size of all constant tables
std::string_view implementation();  // "avx2" or "portable"
std::string_view language_name(const Analysis& analysis, const Node& node, std::string& scratch);
std::uint32_t step(std::uint32_t count);  // 0, 1, 2, 3 (3–4), 5 (5–8), 9, …

}  // namespace zerohop::skeleton
