#include "app/config.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ctime>

#include "app/topology_config.h"

namespace zerohop::app {
namespace {

std::string error_of(std::string_view toml) {
    const Result<Config> config = parse_config(toml, "test.toml");
    return config ? "accepted" : config.error().detail;
}

TEST(Config, DocumentedDefaultsMeanTheDefaults) {
    const std::string text = documented_defaults();
    const Result<Config> config = parse_config(text, "defaults");
    ASSERT_TRUE(config) << config.error().detail;
    for (const auto& field : config_fields()) {
        EXPECT_NE(text.find(field.name.substr(field.name.find('.') + 1)), std::string::npos);
        EXPECT_FALSE(field.doc.empty()) << field.name;
    }
    EXPECT_EQ(config->limits.body_bytes, 32 * 1024 * 1024);
    EXPECT_EQ(config->server.listen, Config().server.listen);
    EXPECT_TRUE(config->models.empty());
}

TEST(Config, ModelTableUncommentedParses) {
    std::string text = documented_defaults();
    std::string models;
    for (std::size_t at = text.find("# [[model]]"); at < text.size();) {
        const std::size_t end = text.find('\n', at);
        std::string line = text.substr(at, end - at);
        if (line.starts_with("# ")) line = line.substr(2);
        if (line == "path = \"\"") line = "path = \"m.gguf\"";
        models += line + "\n";
        at = end + 1;
    }
    const Result<Config> config = parse_config(models, "models");
    ASSERT_TRUE(config) << config.error().detail << models;
    ASSERT_EQ(config->models.size(), 1U);
    EXPECT_EQ(config->models[0].max_sequences, ModelConfig().max_sequences);
}

// Seconds of processor time for `n` tables and a group of `n` workspaces.
double seconds_of(int n) {
    std::string text = "[[cache.share]]\nworkspaces = [\"w\"";
    for (int i = 0; i < n; ++i) text += fmt::format(",\"s{}\"", i);
    text += "]\n";
    for (int i = 0; i < n; ++i) text += fmt::format("[[workspace]]\nname = \"w{}\"\n", i);
    const std::clock_t began = std::clock();
    Result<Config> config = parse_config(text, "many.toml");
    EXPECT_TRUE(config && finish_config(*config));
    EXPECT_EQ(config->workspaces.size(), static_cast<std::size_t>(n));
    EXPECT_EQ(cache_groups(*config).at("s1"), "w+s0");
    return static_cast<double>(std::clock() - began) / CLOCKS_PER_SEC;
}

// A reload holds up signals and revocations: each check is linear.
TEST(Config, ManyTablesCostNoMoreEach) {
    EXPECT_LT(seconds_of(40'000), 16 * seconds_of(5'000));
    EXPECT_NE(error_of("[[workspace]]\nname = \"w\"\n[[workspace]]\nname = \"w\"\n")
                  .find("of that name already"),
              std::string::npos);
}

TEST(Config, LanesAndWorkspacesAreTables) {
    const Result<Config> config = parse_config(
        "[[lane]]\nname = \"default\"\n[[lane]]\nname = \"fast\"\nreserved_sequences = 2\n"
        "[[workspace]]\nname = \"team-a\"\nrequests = 60\n",
        "test.toml");
    ASSERT_TRUE(config) << config.error().detail;
    ASSERT_EQ(config->lanes.size(), 2U);
    EXPECT_EQ(config->lanes[1].reserved_sequences, 2);
    EXPECT_EQ(config->workspaces.at(0).requests, 60);
    EXPECT_EQ(config->lanes[1].beside_step_tokens, 0);
    EXPECT_NE(error_of("[[lane]]\nreserved_sequences = 2").find("lane.name is missing"),
              std::string::npos);
    EXPECT_NE(error_of("[[workspace]]\nname = \"x\"\nrequest = 2")
                  .find("did you mean workspace.requests?"),
              std::string::npos);
    EXPECT_NE(error_of("lane = 5").find("[[lane]]"), std::string::npos);
}

TEST(Config, LanesOfKnownNamesStartFromWhatTheyAreOutOfTheBox) {
    const std::vector<admit::Lane> built_in = lanes_of(Config());
    const auto low_latency = [](std::string_view more) {
        const std::string text =
            "[[lane]]\nname = \"default\"\n[[lane]]\nname = \"low-latency\"\n" + std::string(more);
        const Result<Config> config = parse_config(text, "test.toml");
        EXPECT_TRUE(config) << config.error().detail;
        EXPECT_EQ(config->lanes.size(), 2U);  // the list is whole: no batch
        return lanes_of(*config).at(1);
    };
    EXPECT_EQ(low_latency("").reserved_sequences, built_in.at(1).reserved_sequences);
    EXPECT_EQ(low_latency("").ttft_p99_ms, 150U);
    EXPECT_EQ(low_latency("").beside_step_tokens, 64U);
    EXPECT_EQ(low_latency("ttft_p99_ms = 0\nbeside_step_tokens = 8").ttft_p99_ms, 0U);
    EXPECT_EQ(low_latency("ttft_p99_ms = 0\nbeside_step_tokens = 8").beside_step_tokens, 8U);
    EXPECT_NE(error_of("[[lane]]\nname = \"low-latency\"\nbeside_step_tokens = -1")
                  .find("lane.beside_step_tokens is -1"),
              std::string::npos);
}

// What no topology can be made of is told by the check, not only by a server that starts.
TEST(Config, NamesOfLanesWorkspacesAndRegions) {
    const auto refuses = [](std::string_view toml, std::string_view why) {
        Result<Config> config = parse_config(toml, "test.toml");
        const Status status = config ? finish_config(*config) : std::unexpected(config.error());
        ASSERT_FALSE(status) << toml;
        EXPECT_NE(status.error().detail.find(why), std::string::npos) << status.error().detail;
    };
    const std::string lane = "[[lane]]\nname = \"default\"\n";
    refuses("[[lane]]\nname = \"fast\"\n", "no lane is called \"default\"");
    refuses(lane + "[[lane]]\nname = \"DEFAULT\"\n",
            "test.toml:3: lane.name is \"DEFAULT\", but there is a [[lane]] of that name already");
    refuses(lane + "[[lane]]\nname = \"very fast\"\n",
            "test.toml:3: lane.name is \"very fast\", but must be 1 to 64 of [A-Za-z0-9._-]");
    const std::string workspace = "[[workspace]]\nname = \"a\"\nrequests = 1\n";
    refuses(
        workspace + workspace,
        "test.toml:4: workspace.name is \"a\", but there is a [[workspace]] of that name already");
    refuses("[[workspace]]\nname = \"a\"\nrequests_burst = 5\n",
            "the burst of workspace \"a\" needs the limit");
    refuses("[quota]\nworkspace_requests_burst = 5\n", "needs the limit");
    refuses("[[workspace]]\nname = \"a/b\"\n", "test.toml:1: workspace.name is \"a/b\"");
    refuses("[topology]\nregion = \"here and there\"\n", "region \"here and there\" must be");
    refuses("[topology]\nregions = [\"e u=https://x\"]\n", "must be NAME=URL");
    refuses("[topology]\nregions = [\"eu=https://x y\"]\n", "location of region \"eu\"");
    refuses("[topology]\nregions = [\"eu=https://x\", \"EU=https://y\"]\n",
            "region \"EU\" is listed twice");
    refuses("[topology]\nregion = \"eu\"\nregions = [\"eu\"]\n", "region \"eu\" is listed twice");
    refuses("[[model]]\npath = \"null:\"\nid = \"a\"\naliases = [\"A\"]\n",
            "model name \"A\" is used twice");
    Result<Config> apart = parse_config(workspace + "[[workspace]]\nname = \"A\"\n", "test.toml");
    ASSERT_TRUE(apart);
    EXPECT_TRUE(finish_config(*apart));
}

TEST(Config, CachesAndTheirWarmUps) {
    const Result<Config> defaults = parse_config(documented_defaults(), "defaults");
    ASSERT_TRUE(defaults) << defaults.error().detail;
    EXPECT_EQ(defaults->cache.pin_share, 0.25);
    EXPECT_EQ(defaults->cache.pin_total_share, 0.75);
    EXPECT_EQ(defaults->cache.host_mb, -1);
    EXPECT_EQ(defaults->cache.drop_lines, Config().cache.drop_lines);
    EXPECT_EQ(defaults->cache.drop_lines.size(), 1U);
    Result<Config> config = parse_config(
        "[cache]\nprefix = false\nisolate = \"user\"\npin_share = 1\ndrop_lines = []\n"
        "[[cache.warmup]]\nmodel = \"one\"\nsystem = \"Be brief.\"\n"
        "[[cache.warmup]]\nmodel = \"1\"\nprompt = \"<user>x</user>\"\nttl = \"5m\"\n"
        "workspace = \"team-a\"\n"
        "[[model]]\npath = \"one.gguf\"\naliases = [\"1\"]\n",
        "test.toml");
    ASSERT_TRUE(config) << config.error().detail;
    EXPECT_FALSE(config->cache.prefix);
    EXPECT_TRUE(config->cache.drafts);
    EXPECT_TRUE(config->cache.drop_lines.empty());
    ASSERT_EQ(config->cache.warm_ups.size(), 2U);
    EXPECT_EQ(config->cache.warm_ups[0].ttl, "1h");
    EXPECT_EQ(config->cache.warm_ups[1].workspace, "team-a");
    EXPECT_TRUE(finish_config(*config));
    config->cache.warm_ups[0].file = "x";
    EXPECT_NE(finish_config(*config).error().detail.find("one of system, prompt and file"),
              std::string::npos);
    config->cache.warm_ups[0] = {.model = "two", .system = "x"};
    EXPECT_NE(finish_config(*config).error().detail.find("\"two\", which no model is called"),
              std::string::npos);
    EXPECT_NE(error_of("[[cache.warmup]]\nsystem = \"x\"").find("cache.warmup.model is missing"),
              std::string::npos);
    EXPECT_NE(error_of("[[cache.warmup]]\nmodel = \"x\"\nttl = \"2h\"").find("5m|1h"),
              std::string::npos);
    EXPECT_NE(error_of("[cache]\nwarmup = 5").find("[[cache.warmup]]"), std::string::npos);
    EXPECT_NE(error_of("[cache]\npin_share = 1.5").find("between 0 and 1"), std::string::npos);
    EXPECT_NE(error_of("[cache]\nprefixes = true").find("did you mean cache.prefix?"),
              std::string::npos);
    EXPECT_NE(error_of("[[model]]\npath = \"x\"\nlane = 2").find("unknown key model.lane"),
              std::string::npos);
}

TEST(Config, NamesOfModelsAndOfTheServer) {
    const auto finished = [](std::string_view toml) {
        Result<Config> config = parse_config(toml, "test.toml");
        if (!config) return config.error().detail;
        const Status s = finish_config(*config);
        return s ? std::string() : s.error().detail;
    };
    const std::string a = "[[model]]\nid = \"a\"\npath = \"x\"\n";
    const std::string b = "[[model]]\nid = \"b\"\npath = \"x\"\n";
    EXPECT_EQ(finished(a + "aliases = [\"claude-*\", \"*\"]\ndefault = true\n" + b +
                       "[[cache.warmup]]\nmodel = \"claude-x\"\nsystem = \"s\"\n"
                       "[api]\nunknown_model = \"default\"\n"
                       "[server]\nnames = [\"llm.home.arpa\"]\n"),
              "");
    const auto refuses = [&](const std::string& toml, std::string_view why) {
        EXPECT_NE(finished(toml).find(why), std::string::npos) << toml << ": " << finished(toml);
    };
    refuses(a + "default = true\n" + b + "default = true\n", "\"a\" and \"b\" both have");
    refuses("[[model]]\nid = \"a*\"\npath = \"x\"\n", "only aliases stand for many names");
    refuses(a + "aliases = [\"c-*\"]\n" + b + "aliases = [\"C-*\"]\n", "used twice");
    refuses("[api]\nunknown_model = \"maybe\"\n", "refuse");
    for (const char* bad : {"", "http://a", "a:80", "*", "a b"})
        refuses(std::string("[server]\nnames = [\"") + bad + "\"]\n", "server name");
}

TEST(Config, WorkspacesShareCachesWhenToldTo) {
    const auto share = [](std::string_view toml) {
        Result<Config> config = parse_config(toml, "test.toml");
        if (!config) return config.error().detail;
        const Status finished = finish_config(*config);
        if (!finished) return finished.error().detail;
        std::string out;
        for (const auto& [workspace, group] : cache_groups(*config))
            out.append(workspace).append(" in ").append(group).append("; ");
        return out;
    };
    EXPECT_EQ(share(""), "");
    EXPECT_EQ(share("[[cache.share]]\nworkspaces = [\"b\", \"a\"]\n"
                    "[[cache.share]]\nworkspaces = [\"c\", \"default\"]\n"),
              "a in b+a; b in b+a; c in c+default; default in c+default; ");
    const auto refuses = [&](std::string_view toml, std::string_view why) {
        EXPECT_NE(share(toml).find(why), std::string::npos) << toml << ": " << share(toml);
    };
    refuses(
        "[[cache.share]]\nworkspaces = [\"a\", \"b\"]\n"
        "[[cache.share]]\nworkspaces = [\"c\", \"a\"]\n",
        "names \"a\" twice");
    refuses("[[cache.share]]\nworkspaces = [\"a\", \"a\"]\n", "names \"a\" twice");
    refuses("[[cache.share]]\nworkspaces = [\"a\"]\n", "[\"a\"] shares with nobody");
    refuses("[[cache.share]]\nworkspaces = [\"a\", \"b+c\"]\n", "\"b+c\" is no workspace");
    refuses("[[cache.share]]\nworkspaces = \"a\"\n", "list of strings");
    refuses("[[cache.share]]\n", "cache.share.workspaces is missing");
    refuses("[cache]\nshare = [\"a\", \"b\"]\n", "each with workspaces = [\"…\"]");
    refuses("[cache]\nisolate = \"user\"\n[[cache.share]]\nworkspaces = [\"a\", \"b\"]\n",
            "needs cache.isolate");
}

TEST(Config, UnknownKeysNameTheNearest) {
    EXPECT_NE(error_of("[server]\nlisen = []")
                  .find("test.toml:2: unknown key server.lisen; did you mean server.listen?"),
              std::string::npos)
        << error_of("[server]\nlisen = []");
    EXPECT_NE(error_of("io_threads = 2").find("server.io_threads"), std::string::npos);
    EXPECT_NE(error_of("[[model]]\npath = \"x\"\nthread = 2").find("did you mean model.threads?"),
              std::string::npos);
    EXPECT_NE(error_of("[zzzzzzzz]\nqqqqq = 1").find("config defaults"), std::string::npos);
}

TEST(Config, WrongTypesRangesAndChoicesSayWhatToWrite) {
    EXPECT_NE(error_of("[api]\nping_s = \"10\"").find("whole number of s"), std::string::npos);
    EXPECT_NE(error_of("[api]\nping_s = 0").find("between 1 and 240"), std::string::npos);
    EXPECT_NE(error_of("[api]\nsampling_params = \"maybe\"").find("accept|strict"),
              std::string::npos);
    EXPECT_NE(error_of("[server]\nlisten = \"x\"").find("list of strings"), std::string::npos);
    EXPECT_NE(error_of("[server]\nlisten = [1]").find("strings only"), std::string::npos);
    EXPECT_NE(error_of("[server").find("test.toml:1"), std::string::npos);
    EXPECT_NE(error_of("model = 3").find("[[model]]"), std::string::npos);
    EXPECT_NE(error_of("[[model]]\nid = \"x\"").find("path is missing"), std::string::npos);
    EXPECT_NE(error_of("server = 3").find("unknown key server"), std::string::npos);
}

TEST(Config, ModelFlags) {
    EXPECT_EQ(model_from_flag("a/b.gguf=pub").id, "pub");
    EXPECT_EQ(model_from_flag("a/b.gguf=pub").path, "a/b.gguf");
    EXPECT_EQ(model_from_flag("a/b.gguf").id, "");
    EXPECT_EQ(model_from_flag("null:tokens=5").id, "");
    EXPECT_EQ(model_from_flag("null:tokens=5,delay_ms=1=n").id, "n");
    EXPECT_EQ(model_from_flag("null:tokens=5,delay_ms=1=n").path, "null:tokens=5,delay_ms=1");
    EXPECT_EQ(model_from_flag("null:=n").id, "n");
    EXPECT_EQ(model_from_flag("null:").id, "");
}

TEST(Config, FinishNamesAndChecks) {
    Config config;
    config.models = {model_from_flag("x/one.gguf"), model_from_flag("x/two.gguf=one")};
    EXPECT_NE(finish_config(config).error().detail.find("two models are called \"one\""),
              std::string::npos);
    config.models.pop_back();
    EXPECT_TRUE(finish_config(config));
    EXPECT_EQ(config.models[0].id, "one");
    config.tls.key = "k.pem";
    EXPECT_FALSE(finish_config(config));
    Config odd;
    odd.api.default_version = "2023";
    const Status unknown = finish_config(odd);
    ASSERT_FALSE(unknown);
    EXPECT_NE(unknown.error().detail.find("known versions: 2023-06-01"), std::string::npos);
    Config small;
    small.limits.total_buffer_bytes = small.limits.body_bytes - 1;
    const Status too_small = finish_config(small);
    ASSERT_FALSE(too_small);
    EXPECT_NE(too_small.error().detail.find("limits.total_buffer_bytes"), std::string::npos);
}

}  // namespace
}  // namespace zerohop::app
