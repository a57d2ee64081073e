// Parsing: every field of wire-contract §3.2–3.8, each refusal with its path.
#include "api/messages_parse.h"

#include <gtest/gtest.h>

#include <ctime>

#include "api/body.h"
#include "api/cache_request.h"
#include "api/testing/fakes.h"

namespace zerohop::api {
namespace {

class ParseTest : public ::testing::Test {
  protected:
    Result<ParsedMessages> parse(std::string_view json) {
        std::string padded(json);
        padded.append(Body::kPadding, '\0');
        return parse_messages(std::string_view(padded).substr(0, json.size()), options_);
    }
    // `members` beside model, max_tokens and one user message; a leading comma is added.
    Result<ParsedMessages> with(std::string_view members) {
        std::string json =
            R"({"model":"m","max_tokens":2048,"messages":[{"role":"user","content":"hi"}])";
        if (!members.empty()) json += "," + std::string(members);
        return parse(json + "}");
    }
    // A request whose messages are the given JSON array.
    Result<ParsedMessages> said(std::string_view messages) {
        return parse(R"({"model":"m","max_tokens":9,"messages":)" + std::string(messages) + "}");
    }
    // Content blocks of a single user message.
    Result<ParsedMessages> blocks(std::string_view content) {
        return said(R"([{"role":"user","content":)" + std::string(content) + "}]");
    }
    void count_tokens() { options_.endpoint = Endpoint::kCountTokens; }
    void old_version() { options_.version = Version::k2023_06_01; }

    static std::string outcome(const Result<ParsedMessages>& result) {
        return result ? "ok" : result.error().detail;
    }
    static void expect_bad(const Result<ParsedMessages>& result, std::string_view message) {
        ASSERT_FALSE(result) << "accepted, expected: " << message;
        EXPECT_EQ(result.error().code, Code::kInvalidRequest);
        EXPECT_EQ(result.error().detail, message);
    }

    FakeEngine engine_{"m"};
    FakeEngine no_prefill_{"np"};
    Catalog catalog_{make_models()};
    ParseOptions options_{.catalog = &catalog_};

  private:
    std::vector<ServedModel> make_models() {
        no_prefill_.info_.can_continue = false;
        return {{.id = "m", .engine = &engine_, .aliases = {"alias"}, .max_output_tokens = 4096},
                {.id = "np", .engine = &no_prefill_}};
    }
};

TEST_F(ParseTest, ReadsAMinimalRequest) {
    const auto parsed = with("");
    ASSERT_TRUE(parsed) << outcome(parsed);
    EXPECT_EQ(parsed->request.model, "m");
    EXPECT_EQ(parsed->request.max_tokens, 2048);
    EXPECT_EQ(parsed->request.work, Work::kGenerate);
    EXPECT_FALSE(parsed->stream);
    EXPECT_FALSE(parsed->context_management);
    EXPECT_FALSE(parsed->request.continue_last);
    ASSERT_EQ(parsed->request.turns.size(), 1U);
    EXPECT_EQ(parsed->request.turns[0].role, Role::kUser);
    EXPECT_EQ(parsed->request.turns[0].parts, std::vector<std::string>{"hi"});
    EXPECT_FALSE(parsed->request.sampling.temperature);
    EXPECT_TRUE(parsed->request.stop_sequences.empty());
}

TEST_F(ParseTest, ResolvesAliases) {
    const auto parsed =
        parse(R"({"model":"alias","max_tokens":1,"messages":[{"role":"user","content":"x"}]})");
    ASSERT_TRUE(parsed);
    EXPECT_EQ(parsed->request.model, "m");
    const auto unknown =
        parse(R"({"model":"gpt","max_tokens":1,"messages":[{"role":"user","content":"x"}]})");
    ASSERT_FALSE(unknown);
    EXPECT_EQ(unknown.error().code, Code::kNotFound);
    EXPECT_EQ(unknown.error().detail, "model: 'gpt' is not served here; served: 'm', 'np'");
}

TEST_F(ParseTest, AcceptsEveryFieldThatAsksForNothing) {
    for (
        const char* members : {
            R"("stream":true)",
            R"("stream":false)",
            R"("stop_sequences":[])",
            R"("stop_sequences":["a","\n\nHuman:"])",
            R"("temperature":0)",
            R"("temperature":1)",
            R"("temperature":1.0)",
            R"("top_p":0)",
            R"("top_p":0.5)",
            R"("top_k":0)",
            R"("top_k":40)",
            R"("tools":[])",
            R"("tools":null)",
            R"("tool_choice":{"type":"auto"})",
            R"("tool_choice":{"type":"none"})",
            R"("tool_choice":{"type":"auto","disable_parallel_tool_use":true})",
            R"("thinking":{"type":"disabled"})",
            R"("thinking":{"type":"adaptive"})",
            R"("thinking":{"type":"adaptive","display":"omitted"})",
            R"("thinking":{"type":"adaptive","display":"summarized"})",
            R"("thinking":{"type":"adaptive","display":null})",
            R"("thinking":{"type":"adaptive","display":"updates"})",
            R"("cache_control":{"type":"ephemeral","scope":"global"})",
            R"("output_config":{"task_budget":{"type":"tokens","total":5}})",
            R"("safeguards":[{"type":"dangerous_tool_use","classifier_context":{}}])",
            R"("stop_sequences":["\n"," "])",
            R"("thinking":null)",
            R"("output_config":{})",
            R"("output_config":{"effort":"low"})",
            R"("output_config":{"effort":"xhigh","format":null})",
            R"("output_config":{"effort":null})",
            R"("output_config":null)",
            R"("output_format":null)",
            R"("metadata":{})",
            R"("metadata":{"user_id":"u1"})",
            R"("metadata":{"user_id":null})",
            R"("metadata":null)",
            R"("service_tier":"auto")",
            R"("service_tier":"standard_only")",
            R"("speed":"standard")",
            R"("speed":null)",
            R"("inference_geo":null)",
            R"("cache_control":{"type":"ephemeral"})",
            R"("cache_control":{"type":"ephemeral","ttl":"1h"})",
            R"("cache_control":null)",
            R"("diagnostics":null)",
            R"("diagnostics":{})",
            R"("diagnostics":{"previous_message_id":null})",
            R"("diagnostics":{"previous_message_id":"msg_1"})",
            R"("container":null)",
            R"("context_management":null)",
            R"("context_management":{})",
            R"("context_management":{"edits":[]})",
            R"("context_management":{"edits":null})",
            R"("context_management":{"edits":[{"type":"clear_tool_uses_20250919","keep":{"type":"tool_uses","value":3}},{"type":"clear_thinking_20251015","keep":"all"}]})",
            R"("mcp_servers":[])",
            R"("mcp_servers":null)",
            R"("thread":null)",
            R"("compaction":null)",
            R"("fallbacks":null)",
            R"("fallbacks":"default")",
            R"("fallback_credit_token":null)",
            R"("billing_policy":null)",
            R"("betas":["a","b"])",
            R"("betas":[])",
            R"("system":"")",
            R"("system":[])",
            R"("system":null)",
        })
        EXPECT_EQ(outcome(with(members)), "ok") << members;
}

TEST_F(ParseTest, RefusesTopLevelFieldsByPath) {
    const std::pair<const char*, const char*> rows[] = {
        {R"("temprature":1)", "temprature: unknown field"},
        {R"("max_output_tokens":5)", "max_output_tokens: unknown field"},
        {R"("stream":true,"stream":true)", "stream: given twice"},
        {R"("model":"m")", "model: given twice"},
        {R"("stream":1)", "stream: must be a boolean, not a number"},
        {R"("stream":"true")", "stream: must be a boolean, not a string"},
        {R"("stop_sequences":"x")", "stop_sequences: must be an array, not a string"},
        {R"("stop_sequences":["a",1])", "stop_sequences.1: must be a string, not a number"},
        {R"("stop_sequences":[""])", "stop_sequences.0: must not be empty"},
        {R"("temperature":"1")", "temperature: must be a number, not a string"},
        {R"("temperature":1.5)", "temperature: must be between 0 and 1, not 1.5"},
        {R"("temperature":-0.1)", "temperature: must be between 0 and 1, not -0.1"},
        {R"("top_p":2)", "top_p: must be between 0 and 1, not 2"},
        {R"("top_k":-1)", "top_k: must be at least 0, not -1"},
        {R"("top_k":1.5)", "top_k: must be an integer, not a fraction"},
        {R"("top_k":18446744073709551615)", "top_k: must be at most 2147483647"},
        {R"("top_k":3000000000)", "top_k: must be at most 2147483647, not 3000000000"},
        {R"("tools":{})", "tools: must be an array, not an object"},
        {R"("tools":[1])", "tools.0: must be an object, not a number"},
        {R"("tools":[{"type":1}])", "tools.0.type: must be a string, not a number"},
        {R"("tools":[{"name":"f","input_schema":{"type":"object"}}])",
         "tools: tool use is not supported yet"},
        {R"("tools":[{"type":"custom","name":"f","input_schema":{"type":"object"}}])",
         "tools: tool use is not supported yet"},
        {R"("tools":[{"type":"web_search_20250305","name":"web_search"}])",
         "tools.0.type: 'web_search_20250305' is not supported"},
        {R"("tools":[{"name":"f","input_schema":{}},{"type":"bash_20250124","name":"bash"}])",
         "tools.1.type: 'bash_20250124' is not supported"},
        {R"("tool_choice":"auto")", "tool_choice: must be an object, not a string"},
        {R"("tool_choice":{})", "tool_choice.type: field required"},
        {R"("tool_choice":{"type":"any"})",
         "tool_choice.type: 'any' needs tools, and tool use is not supported yet"},
        {R"("tool_choice":{"type":"tool","name":"x"})",
         "tool_choice.type: 'tool' needs tools, and tool use is not supported yet"},
        {R"("tool_choice":{"type":"auto","name":"x"})", "tool_choice.name: only with type 'tool'"},
        {R"("tool_choice":{"type":"auto","disable_parallel_tool_use":1})",
         "tool_choice.disable_parallel_tool_use: must be a boolean, not a number"},
        {R"("tool_choice":{"type":"often"})",
         "tool_choice.type: must be one of 'auto', 'any', 'tool', 'none'; got 'often'"},
        {R"("thinking":true)", "thinking: must be an object, not a boolean"},
        {R"("thinking":{})", "thinking.type: field required"},
        {R"("thinking":{"type":"deep"})",
         "thinking.type: must be one of 'disabled', 'enabled', 'adaptive', 'between_tools'; got "
         "'deep'"},
        {R"("thinking":{"type":"enabled"})", "thinking.budget_tokens: field required"},
        {R"("thinking":{"type":"enabled","budget_tokens":512})",
         "thinking.budget_tokens: must be at least 1024, not 512"},
        {R"("thinking":{"type":"enabled","budget_tokens":2048})",
         "thinking.budget_tokens: 2048 must be below max_tokens (2048)"},
        {R"("thinking":{"type":"enabled","budget_tokens":1024})",
         "thinking.type: model 'm' does not support 'enabled' thinking yet; use 'adaptive' or "
         "'disabled'"},
        {R"("thinking":{"type":"adaptive","budget_tokens":1024})",
         "thinking.budget_tokens: only with type 'enabled'"},
        {R"("thinking":{"type":"adaptive","display":1})",
         "thinking.display: must be a string, not a number"},
        {R"("thinking":{"type":"between_tools"})",
         "thinking.type: 'between_tools' is not supported yet"},
        {R"("thinking":{"type":"disabled","x":1})", "thinking.x: unknown field"},
        {R"("output_config":[])", "output_config: must be an object, not an array"},
        {R"("output_config":{"effort":"huge"})",
         "output_config.effort: must be one of 'low', 'medium', 'high', 'xhigh', 'max'; got "
         "'huge'"},
        {R"("output_config":{"format":{"type":"json_schema","schema":{}}})",
         "output_config.format: structured output is not supported yet"},
        {R"("output_config":{"task_budget":1})",
         "output_config.task_budget: must be an object, not a number"},
        {R"("output_config":{"x":1})", "output_config.x: unknown field"},
        {R"("output_format":{"type":"json_schema","schema":{}})",
         "output_format: structured output is not supported yet"},
        {R"("output_format":{},"output_config":{"format":{}})",
         "output_format: give either output_format or output_config.format, not both"},
        {R"("metadata":"u")", "metadata: must be an object, not a string"},
        {R"("metadata":{"user":"u"})", "metadata.user: unknown field"},
        {R"("metadata":{"user_id":7})", "metadata.user_id: must be a string, not a number"},
        {R"("service_tier":"priority")",
         "service_tier: must be one of 'auto', 'standard_only'; got 'priority'"},
        {R"("service_tier":1)", "service_tier: must be a string, not a number"},
        {R"("speed":"fast")", "speed: 'fast' is not supported; use 'standard'"},
        {R"("speed":"slow")", "speed: must be one of 'standard', 'fast'; got 'slow'"},
        {R"("inference_geo":"eu")", "inference_geo: not supported; leave it out or send null"},
        {R"("cache_control":{})", "cache_control.type: field required"},
        {R"("cache_control":{"type":"forever"})",
         "cache_control.type: must be one of 'ephemeral'; got 'forever'"},
        {R"("cache_control":{"type":"ephemeral","ttl":"2h"})",
         "cache_control.ttl: must be one of '5m', '1h'; got '2h'"},
        {R"("cache_control":{"type":"ephemeral","ttl":"5m","ttl":"1h"})",
         "cache_control.ttl: given twice"},
        {R"("cache_control":"ephemeral")", "cache_control: must be an object, not a string"},
        {R"("diagnostics":1)", "diagnostics: must be an object, not a number"},
        {R"("diagnostics":{"x":1})", "diagnostics.x: unknown field"},
        {R"("diagnostics":{"previous_message_id":1})",
         "diagnostics.previous_message_id: must be a string, not a number"},
        {R"("container":"c1")", "container: not supported; leave it out or send null"},
        {R"("context_management":[])", "context_management: must be an object, not an array"},
        {R"("context_management":{"x":1})", "context_management.x: unknown field"},
        {R"("context_management":{"edits":{}})",
         "context_management.edits: must be an array, not an object"},
        {R"("context_management":{"edits":[{"type":"compact_20260112"}]})",
         "context_management.edits.0.type: 'compact_20260112' is not supported"},
        {R"("context_management":{"edits":[{}]})",
         "context_management.edits.0.type: field required"},
        {R"("mcp_servers":[{"type":"url","url":"https://x","name":"x"}])",
         "mcp_servers: MCP servers are not supported"},
        {R"("mcp_servers":{})", "mcp_servers: must be an array, not an object"},
        {R"("compaction":{})", "compaction: not supported; leave it out or send null"},
        {R"("fallbacks":["m"])", "fallbacks: not supported; leave it out or send 'default'"},
        {R"("fallback_credit_token":"x")",
         "fallback_credit_token: not supported; leave it out or send null"},
        {R"("billing_policy":{})", "billing_policy: not supported; leave it out or send null"},
        {R"("betas":"x")", "betas: must be an array, not a string"},
        {R"("betas":["x",2])", "betas.1: must be a string, not a number"},
        {R"("system":5)", "system: must be a string or an array of content blocks"},
        {R"("system":[{"type":"text","text":""}])", "system.0.text: must not be empty"},
        {R"("system":[{"type":"image"}])",
         "system.0: system content takes text blocks only, not 'image'"},
    };
    for (const auto& [members, message] : rows) {
        SCOPED_TRACE(members);
        expect_bad(with(members), message);
    }
}

TEST_F(ParseTest, RefusesThreadsWithTheExactCodeBeforeAnythingElse) {
    for (
        const char* json :
        {R"({"thread":{"type":"create"}})",
         R"({"model":"nope","messages":[],"thread":{"type":"continue","previous_message_id":"msg_1"}})",
         R"({"x":1,"tools":[{"name":"f"}],"thread":{"type":"create"}})"}) {
        const auto result = parse(json);
        ASSERT_FALSE(result);
        EXPECT_EQ(result.error().code, Code::kInvalidRequest);
        EXPECT_EQ(result.error().error_code, "thread_unsupported_request");
    }
}

TEST_F(ParseTest, RequiresWhatIsRequired) {
    expect_bad(parse("{}"), "model: field required");
    expect_bad(parse(R"({"model":null})"), "model: must be a string, not null");
    expect_bad(parse(R"({"model":7})"), "model: must be a string, not a number");
    expect_bad(parse(R"({"model":"m"})"), "max_tokens: field required");
    expect_bad(parse(R"({"model":"m","max_tokens":null})"),
               "max_tokens: must be an integer, not null");
    expect_bad(parse(R"({"model":"m","max_tokens":"5"})"),
               "max_tokens: must be an integer, not a string");
    expect_bad(parse(R"({"model":"m","max_tokens":1.5})"),
               "max_tokens: must be an integer, not a fraction");
    expect_bad(parse(R"({"model":"m","max_tokens":-1})"), "max_tokens: must be at least 0, not -1");
    expect_bad(parse(R"({"model":"m","max_tokens":4097})"),
               "max_tokens: 4097 is above the maximum of 4096 output tokens of model 'm'");
    expect_bad(parse(R"({"model":"m","max_tokens":9})"), "messages: field required");
    expect_bad(parse(R"({"model":"m","max_tokens":9,"messages":null})"),
               "messages: must be an array, not null");
    expect_bad(said("[]"), "messages: at least one message is required");
    expect_bad(said(R"(["x"])"), "messages.0: must be an object, not a string");
    expect_bad(said(R"([{}])"), "messages.0.role: field required");
    expect_bad(said(R"([{"role":"user"}])"), "messages.0.content: field required");
    expect_bad(said(R"([{"role":"user","content":null}])"),
               "messages.0.content: must be a string or an array of content blocks");
    expect_bad(said(R"([{"role":"tool","content":"x"}])"),
               "messages.0.role: must be one of 'user', 'assistant', 'system'; got 'tool'");
    expect_bad(said(R"([{"role":"user","content":"x","id":"msg_1"}])"),
               "messages.0.id: unknown field");
    expect_bad(said(R"([{"role":"user","content":"x","content":"y"}])"),
               "messages.0.content: given twice");
}

TEST_F(ParseTest, DefaultMaximumLetsAgentsAskForALot) {
    const std::string tail = R"(,"messages":[{"role":"user","content":"x"}]})";
    EXPECT_TRUE(parse(R"({"model":"np","max_tokens":32000)" + tail));
    EXPECT_TRUE(parse(R"({"model":"np","max_tokens":0)" + tail));
    expect_bad(parse(R"({"model":"np","max_tokens":10000000)" + tail),
               "max_tokens: 10000000 is above the maximum of 131072 output tokens of model 'np'");
}

TEST_F(ParseTest, RefusesWhatIsNotJson) {
    expect_bad(parse(""), "body: empty; a JSON object is required");
    expect_bad(parse("   "), "body: empty; a JSON object is required");
    expect_bad(parse("{"), "body: not valid JSON");
    expect_bad(parse("{\"model\":\"m\"}}"), "body: not valid JSON");
    expect_bad(parse("[]"), "body: must be an object, not an array");
    expect_bad(parse("null"), "body: must be an object, not null");
    expect_bad(parse("{\"a\":\"\xff\"}"), "body: not valid UTF-8");
    expect_bad(parse("{\"a\":\"\xed\xa0\x80\"}"), "body: not valid UTF-8");
    expect_bad(parse(R"({"a":"\ud800"})"),
               "body: not valid JSON: a string has a bad escape, a lone surrogate or no end");
    expect_bad(parse("{\"a\":\"\n\"}"),
               "body: not valid JSON: a string contains a raw control character");
    expect_bad(parse(R"({"max_tokens":1e999})"),
               "body: not valid JSON: a number is malformed or out of range");
    expect_bad(parse(R"({"max_tokens":184467440737095516160})"),
               "body: not valid JSON: a number is malformed or out of range");
    const std::string deep(500, '[');
    expect_bad(parse(R"({"a":)" + deep + std::string(500, ']') + "}"),
               "body: nested too deeply (more than 128 levels)");
    expect_bad(parse(std::string(2'000'000, '[')), "body: not valid JSON");
}

TEST_F(ParseTest, ReadsContentBlocks) {
    const auto parsed = said(
        R"([{"role":"user","content":[{"type":"text","text":"a"},{"text":"b","type":"text","citations":null,"cache_control":{"type":"ephemeral"}}]},
            {"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},{"type":"redacted_thinking","data":"x"},{"type":"text","text":"","citations":[{"type":"x"}]},{"type":"text","text":"c"}]},
            {"role":"user","content":"d"}])");
    ASSERT_TRUE(parsed) << outcome(parsed);
    const auto& turns = parsed->request.turns;
    ASSERT_EQ(turns.size(), 3U);
    EXPECT_EQ(turns[0].parts, (std::vector<std::string>{"a", "b"}));
    EXPECT_EQ(turns[1].role, Role::kAssistant);
    EXPECT_EQ(turns[1].parts, std::vector<std::string>{"c"});
    EXPECT_EQ(turns[2].parts, std::vector<std::string>{"d"});
}

TEST_F(ParseTest, RefusesContentBlocksByPath) {
    const std::pair<const char*, const char*> rows[] = {
        {R"("")", "messages.0.content: must not be empty"},
        {R"([])", "messages.0.content: must not be empty"},
        {R"(["x"])", "messages.0.content.0: must be an object, not a string"},
        {R"([{}])", "messages.0.content.0.type: field required"},
        {R"([{"type":1}])", "messages.0.content.0.type: must be a string, not a number"},
        {R"([{"type":"txt"}])", "messages.0.content.0.type: unknown block type 'txt'"},
        {R"([{"type":"text"}])", "messages.0.content.0.text: field required"},
        {R"([{"type":"text","text":null}])",
         "messages.0.content.0.text: must be a string, not null"},
        {R"([{"type":"text","text":""}])", "messages.0.content.0.text: must not be empty"},
        {R"([{"type":"text","text":"x","foo":1}])", "messages.0.content.0.foo: unknown field"},
        {R"([{"type":"text","type":"text","text":"x"}])", "messages.0.content.0.type: given twice"},
        {R"([{"type":"text","text":"x","citations":1}])",
         "messages.0.content.0.citations: must be an array, not a number"},
        {R"([{"type":"text","text":"x","citations":[{}]}])",
         "messages.0.content.0.citations: not accepted on user text under anthropic-version "
         "2026-10-21"},
        {R"([{"type":"text","text":"x","cache_control":5}])",
         "messages.0.content.0.cache_control: must be an object, not a number"},
        {R"([{"type":"thinking","thinking":"x","signature":"s"}])",
         "messages.0.content.0: 'thinking' blocks belong in assistant messages"},
        {R"([{"type":"text","text":"x"},{"type":"image","source":{}}])",
         "messages.0.content.1: 'image' blocks are not supported yet"},
        {R"([{"type":"document","source":{}}])",
         "messages.0.content.0: 'document' blocks are not supported yet"},
        {R"([{"type":"tool_result","tool_use_id":"t"}])",
         "messages.0.content.0: 'tool_result' blocks are not supported yet"},
        {R"([{"type":"search_result"}])",
         "messages.0.content.0: 'search_result' blocks are not supported yet"},
        {R"([{"type":"web_search_tool_result"}])",
         "messages.0.content.0: 'web_search_tool_result' blocks are not supported yet"},
    };
    for (const auto& [content, message] : rows) {
        SCOPED_TRACE(content);
        expect_bad(blocks(content), message);
    }
    expect_bad(
        said(
            R"([{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{}}]}])"),
        "messages.1.content.0: 'tool_use' blocks are not supported yet");
    expect_bad(
        said(
            R"([{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"thinking","thinking":"x"}]}])"),
        "messages.1.content.0.signature: field required");
    expect_bad(
        said(
            R"([{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"redacted_thinking","data":1}]}])"),
        "messages.1.content.0.data: must be a string, not a number");
    expect_bad(
        said(
            R"([{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"thinking","thinking":"x","signature":"s","cache_control":null}]}])"),
        "messages.1.content.0.cache_control: unknown field");
    expect_bad(
        said(R"([{"role":"user","content":"x"},{"role":"system","content":[{"type":"image"}]}])"),
        "messages.1.content.0: system content takes text blocks only, not 'image'");
    expect_bad(said(R"([{"role":"user","content":"x"},{"role":"system","content":""}])"),
               "messages.1.content: must not be empty");
}

TEST_F(ParseTest, KeepsVersionRules) {
    const char* document =
        R"([{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"document","source":{}}]}])";
    const char* cited = R"([{"type":"text","text":"x","citations":[{"type":"y"}]}])";
    expect_bad(said(document),
               "messages.1.content.0: document blocks are not accepted in assistant messages under "
               "anthropic-version 2026-10-21");
    EXPECT_TRUE(with(R"("temperature":0.5)"));
    options_.sampling = SamplingParams::kStrict;
    for (const char* name : {"temperature", "top_p", "top_k"})
        expect_bad(with("\"" + std::string(name) + "\":1"),
                   std::string(name) + ": not accepted under anthropic-version 2026-10-21");
    count_tokens();
    expect_bad(parse(R"({"model":"m","temperature":1,"messages":[{"role":"user","content":"x"}]})"),
               "temperature: not accepted under anthropic-version 2026-10-21");
    options_.endpoint = Endpoint::kMessages;
    old_version();
    EXPECT_TRUE(with(R"("temperature":0.5)"));
    EXPECT_TRUE(blocks(cited));
    expect_bad(said(document), "messages.1.content.0: 'document' blocks are not supported yet");
}

TEST_F(ParseTest, ReadsSampling) {
    const auto parsed = with(R"("temperature":0.25,"top_p":0,"top_k":7)");
    ASSERT_TRUE(parsed);
    EXPECT_FLOAT_EQ(*parsed->request.sampling.temperature, 0.25F);
    EXPECT_GT(*parsed->request.sampling.top_p, 0.0F);
    EXPECT_LT(*parsed->request.sampling.top_p, 0.001F);
    EXPECT_EQ(*parsed->request.sampling.top_k, 7);
    EXPECT_FALSE(with(R"("temperature":null)")->request.sampling.temperature);
}

TEST_F(ParseTest, PlacesSystemTurns) {
    const auto parsed = parse(
        R"({"model":"m","max_tokens":1,"system":[{"type":"text","text":"s1","cache_control":{"type":"ephemeral"}},{"type":"text","text":"s2"}],
            "messages":[{"role":"user","content":"u1"},{"role":"system","content":[{"type":"text","text":"mid","cache_control":{"type":"ephemeral"}}]},{"role":"system","content":"mid2"},{"role":"user","content":"u2"}]})");
    ASSERT_TRUE(parsed) << outcome(parsed);
    const auto& turns = parsed->request.turns;
    ASSERT_EQ(turns.size(), 4U);
    EXPECT_EQ(turns[0].role, Role::kSystem);
    EXPECT_EQ(turns[0].parts, (std::vector<std::string>{"s1", "s2"}));
    EXPECT_EQ(turns[1].role, Role::kUser);
    EXPECT_EQ(turns[2].role, Role::kSystem);
    EXPECT_EQ(turns[2].parts, (std::vector<std::string>{"mid", "mid2"}));
    EXPECT_EQ(turns[3].role, Role::kUser);
    // String and equivalent block are the same prompt.
    const auto text = with(R"("system":"s")");
    const auto block = with(R"("system":[{"type":"text","text":"s"}])");
    EXPECT_EQ(text->request.turns[0].parts, block->request.turns[0].parts);
}

TEST_F(ParseTest, MergesRolesAndWantsAUserFirst) {
    const auto parsed = said(
        R"([{"role":"user","content":"a"},{"role":"user","content":"b"},{"role":"assistant","content":"c"},{"role":"user","content":[{"type":"text","text":"d"}]}])");
    ASSERT_TRUE(parsed);
    ASSERT_EQ(parsed->request.turns.size(), 3U);
    EXPECT_EQ(parsed->request.turns[0].parts, (std::vector<std::string>{"a", "b"}));
    expect_bad(said(R"([{"role":"assistant","content":"a"}])"),
               "messages.0.role: the first message must be from 'user'");
    expect_bad(said(R"([{"role":"system","content":"a"}])"),
               "messages.0.role: the first message must be from 'user'; text for the system goes "
               "into the top-level 'system' field");
}

TEST_F(ParseTest, SystemMessagesMayBeClearedOrOnlyConfigure) {
    const auto parsed = said(
        R"([{"role":"user","content":"a"},
            {"role":"system","clear_at":"next_user_message","content":"gone"},
            {"role":"assistant","content":"b"},{"role":"system","clear_at":"never","content":"s"},
            {"role":"system","output_config":{"effort":"low"}},
            {"role":"user","content":"c"},
            {"role":"system","clear_at":"next_user_message","content":"stays"}])");
    ASSERT_TRUE(parsed) << outcome(parsed);
    std::string read;
    for (const Turn& turn : parsed->request.turns) read += "[" + text_of(turn) + "]";
    EXPECT_EQ(read, "[a][b][s][c][stays]");
    expect_bad(said(R"([{"role":"user","content":"a","clear_at":"never"}])"),
               "messages.0.clear_at: only on system messages");
    expect_bad(
        said(R"([{"role":"user","content":"a"},{"role":"system","content":"s","clear_at":"x"}])"),
        "messages.1.clear_at: must be one of 'never', 'next_user_message'; got 'x'");
    expect_bad(said(R"([{"role":"system","clear_at":"next_user_message","content":"s"},
                        {"role":"user","content":"a"}])"),
               "messages.0.role: the first message must be from 'user'; text for the system goes "
               "into the top-level 'system' field");
}

TEST_F(ParseTest, StopSequencesAreBoundedTogether) {
    const auto stops = [&](int count, std::size_t bytes) {
        std::string list = R"("stop_sequences":[)";
        for (int i = 0; i < count; ++i)
            list += (i > 0 ? ",\"" : "\"") + std::string(bytes, 'x') + "\"";
        return with(list + "]");
    };
    EXPECT_TRUE(stops(256, 64));
    expect_bad(stops(2, 8193), "stop_sequences: must have at most 16384 bytes together");
    expect_bad(stops(256, 110'000), "stop_sequences: must have at most 16384 bytes together");
    options_.sampling = SamplingParams::kStrict;
    expect_bad(with(R"("stop_sequences":["a"," \n"])"),
               "stop_sequences.1: must contain something other than white space");
}

TEST_F(ParseTest, Prefills) {
    const auto parsed =
        said(R"([{"role":"user","content":"q"},{"role":"assistant","content":"The answer is ("}])");
    ASSERT_TRUE(parsed);
    EXPECT_TRUE(parsed->request.continue_last);
    EXPECT_EQ(parsed->request.turns.back().parts, std::vector<std::string>{"The answer is ("});
    for (const char* end : {" ", "\\n", "\\t", "\\r"})
        expect_bad(said(R"([{"role":"user","content":"q"},{"role":"assistant","content":"a)" +
                        std::string(end) + R"("}])"),
                   "messages: the final assistant message must not end with white space");
    // Nothing to continue: as if the empty message were not there.
    for (const char* empty : {R"("")", R"([])", R"([{"type":"text","text":""}])"}) {
        const auto plain = said(R"([{"role":"user","content":"q"},{"role":"assistant","content":)" +
                                std::string(empty) + "}]");
        ASSERT_TRUE(plain) << outcome(plain);
        EXPECT_FALSE(plain->request.continue_last);
        EXPECT_EQ(plain->request.turns.size(), 1U);
    }
    expect_bad(
        parse(
            R"({"model":"np","max_tokens":1,"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}]})"),
        "messages: model 'np' cannot continue an assistant message; the last message must be "
        "from 'user'");
    // An earlier assistant turn may end as it likes.
    EXPECT_TRUE(said(
        R"([{"role":"user","content":"q"},{"role":"assistant","content":"a "},{"role":"user","content":"r"}])"));
}

TEST_F(ParseTest, PlacesCacheBreakpoints) {
    const auto at = [](const Result<ParsedMessages>& parsed) {
        std::string out;
        for (const CacheBreakpoint& b : parsed->request.breakpoints)
            out += std::to_string(b.turn) + "." + std::to_string(b.part) +
                   (b.ttl_ns == kLongTtl    ? "h "
                    : b.ttl_ns == kShortTtl ? "m "
                                            : "? ");
        return out;
    };
    const std::string s = R"({"type":"text","text":"x"})";
    const std::string m = R"({"type":"text","text":"x","cache_control":{"type":"ephemeral"}})";
    const std::string h =
        R"({"type":"text","text":"x","cache_control":{"type":"ephemeral","ttl":"1h"}})";
    const std::string empty = R"({"type":"text","text":"","cache_control":{"type":"ephemeral"}})";
    const auto body = [](const std::string& system, const std::string& messages,
                         const std::string& more = "") {
        return R"({"model":"m","max_tokens":1,"system":[)" + system + R"(],"messages":[)" +
               messages + "]" + more + "}";
    };
    const std::string user = R"({"role":"user","content":)";
    // Turns of one role are one: their parts count on.
    const auto merged =
        parse(body(s + "," + h, user + "\"a\"}," + user + "[" + m + "," + s + "," + m + "]}"));
    ASSERT_TRUE(merged) << outcome(merged);
    EXPECT_EQ(at(merged), "0.1h 1.1m 1.3m ");
    // The automatic one is the last block's; with the block's own it is one.
    const std::string automatic = R"(,"cache_control":{"type":"ephemeral"})";
    EXPECT_EQ(at(parse(body(h, user + "\"a\"}", automatic))), "0.0h 1.0m ");
    EXPECT_EQ(at(parse(body(h, user + "[" + s + "," + m + "]}", automatic))), "0.0h 1.1m ");
    EXPECT_EQ(at(parse(body(s, user + "[" + h + "]}", automatic))), "1.0h ");
    // An empty answer, echoed, has nothing to keep.
    EXPECT_EQ(at(parse(body(s, user + "\"a\"},{\"role\":\"assistant\",\"content\":[" + empty +
                                   "]}," + user + "\"b\"}"))),
              "1.0m ");
    EXPECT_EQ(at(parse(body(s, user + "\"a\"}"))), "");
}

TEST_F(ParseTest, CountsCacheBreakpoints) {
    const std::string marked = R"({"type":"text","text":"x","cache_control":{"type":"ephemeral"}})";
    const auto content = [&](int n) {
        std::string out = "[";
        for (int i = 0; i < n; ++i) out += (i > 0 ? "," : "") + marked;
        return out + "]";
    };
    EXPECT_TRUE(blocks(content(4)));
    expect_bad(
        blocks(content(5)),
        "messages.0.content.4.cache_control: a request may have at most 4 cache breakpoints");
    const auto request = [&](int system, int user, const char* more) {
        return parse(R"({"model":"m","max_tokens":1,"system":)" + content(system) +
                     R"(,"messages":[{"role":"user","content":)" + content(user) + "}]" + more +
                     "}");
    };
    EXPECT_TRUE(request(2, 2, ""));
    EXPECT_TRUE(request(2, 1, R"(,"cache_control":{"type":"ephemeral"})"));
    expect_bad(
        request(3, 2, ""),
        "messages.0.content.1.cache_control: a request may have at most 4 cache breakpoints");
    expect_bad(request(2, 2, R"(,"cache_control":{"type":"ephemeral"})"),
               "cache_control: a request may have at most 4 cache breakpoints");
    EXPECT_TRUE(blocks(
        R"([{"type":"text","text":"x","cache_control":{"type":"ephemeral","ttl":"1h"}},{"type":"text","text":"y","cache_control":{"type":"ephemeral"}}])"));
    expect_bad(
        blocks(
            R"([{"type":"text","text":"x","cache_control":{"type":"ephemeral"}},{"type":"text","text":"y","cache_control":{"type":"ephemeral","ttl":"1h"}}])"),
        "messages.0.content.1.cache_control: a breakpoint with ttl '1h' must not come after one "
        "with ttl '5m'");
}

TEST_F(ParseTest, ReadsCountTokens) {
    count_tokens();
    const std::string base = R"({"model":"m","messages":[{"role":"user","content":"x"}])";
    const auto parsed = parse(base + "}");
    ASSERT_TRUE(parsed) << outcome(parsed);
    EXPECT_EQ(parsed->request.work, Work::kCount);
    for (const char* members :
         {R"("system":"s")", R"("tools":[])", R"("tool_choice":{"type":"auto"})",
          R"("thinking":{"type":"adaptive"})", R"("output_config":{"effort":"low"})",
          R"("speed":"standard")", R"("cache_control":{"type":"ephemeral"})",
          R"("context_management":{"edits":[]})", R"("mcp_servers":[])", R"("compaction":null)",
          R"("temperature":1)"})
        EXPECT_EQ(outcome(parse(base + "," + members + "}")), "ok") << members;
    const std::pair<const char*, const char*> rows[] = {
        {"max_tokens", "5"},   {"stream", "true"},           {"stop_sequences", "[]"},
        {"metadata", "{}"},    {"service_tier", "\"auto\""}, {"inference_geo", "\"x\""},
        {"diagnostics", "{}"}, {"container", "\"x\""}};
    for (const auto& [name, value] : rows)
        expect_bad(parse(base + ",\"" + name + "\":" + value + "}"),
                   std::string(name) + ": not accepted by count_tokens");
    expect_bad(parse(base + R"(,"max_tokenz":1})"), "max_tokenz: unknown field");
    expect_bad(
        parse(base + R"(,"thinking":{"type":"enabled","budget_tokens":2000}})"),
        "thinking.type: model 'm' does not support 'enabled' thinking yet; use 'adaptive' or "
        "'disabled'");
}

TEST_F(ParseTest, TakesAClaudeCodeShapedRequest) {
    const auto parsed = parse(
        R"({"model":"m","max_tokens":4096,"stream":true,"metadata":{"user_id":"user_abc"},
            "system":[{"type":"text","text":"x-anthropic-billing-header: a"},{"type":"text","text":"You are","cache_control":{"type":"ephemeral","ttl":"1h"}}],
            "messages":[{"role":"user","content":[{"type":"text","text":"hi","cache_control":{"type":"ephemeral"}}]},{"role":"system","content":[{"type":"text","text":"reminder","cache_control":{"type":"ephemeral"}}]}],
            "tools":[],"thinking":{"type":"adaptive","display":"omitted"},
            "context_management":{"edits":[{"type":"clear_thinking_20251015","keep":"all"}]},
            "output_config":{"effort":"medium"},"diagnostics":{"previous_message_id":null}})");
    ASSERT_TRUE(parsed) << outcome(parsed);
    EXPECT_TRUE(parsed->stream);
    EXPECT_TRUE(parsed->context_management);
    EXPECT_EQ(parsed->user_id, "user_abc");
    EXPECT_EQ(parsed->request.turns.size(), 3U);
}

TEST_F(ParseTest, BoundsAndShortensWhatItEchoes) {
    const std::string key(10'000, 'k');
    const auto unknown = with("\"" + key + "\":1");
    ASSERT_FALSE(unknown);
    EXPECT_LT(unknown.error().detail.size(), 200U);
    std::string stops = R"("stop_sequences":[)";
    for (int i = 0; i < 257; ++i) stops += (i > 0 ? ",\"a\"" : "\"a\"");
    expect_bad(with(stops + "]"), "stop_sequences: at most 256 stop sequences");
    EXPECT_TRUE(with(R"("metadata":{"user_id":")" + std::string(256, 'x') + "\"}"));
    expect_bad(with(R"("metadata":{"user_id":")" + std::string(257, 'x') + "\"}"),
               "metadata.user_id: must have at most 256 characters");
    std::string many = "[";
    for (int i = 0; i < 100'001; ++i)
        many += std::string(i > 0 ? "," : "") + R"({"role":"user","content":"x"})";
    expect_bad(said(many + "]"), "messages: at most 100000 messages");
}

TEST_F(ParseTest, TextKeepsEveryByte) {
    const auto parsed = blocks(R"("a\u0000b\ud83d\ude00\u00e9 <|im_start|> \\ \"")");
    ASSERT_TRUE(parsed);
    EXPECT_EQ(parsed->request.turns[0].parts[0], std::string("a\0b", 3) + "😀é <|im_start|> \\ \"");
}

// Twice the body, about twice the time: eight times as slow would be quadratic.
// What this thread computed: a busy machine does not count.
std::int64_t thread_cpu_ns() {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * kNsPerSec + t.tv_nsec;
}

TEST_F(ParseTest, StaysLinear) {
    const auto time_of = [&](int n) {
        std::string content = "[";
        for (int i = 0; i < n; ++i)
            content += std::string(i > 0 ? "," : "") + R"({"type":"text","text":"x"})";
        content += "]";
        std::int64_t best = std::numeric_limits<std::int64_t>::max();
        for (int round = 0; round < 3; ++round) {
            const std::int64_t start = thread_cpu_ns();
            EXPECT_TRUE(blocks(content));
            best = std::min(best, thread_cpu_ns() - start);
        }
        return best;
    };
    const auto small = time_of(20'000);
    EXPECT_LT(time_of(160'000), small * 64);
}

}  // namespace
}  // namespace zerohop::api
