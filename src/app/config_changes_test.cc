#include "app/config_changes.h"

#include <gtest/gtest.h>

namespace zerohop::app {
namespace {

using Names = std::vector<std::string>;

Config read(std::string_view toml) {
    Result<Config> config = parse_config(toml, "test.toml");
    EXPECT_TRUE(config) << config.error().detail;
    const Status finished = finish_config(*config);
    EXPECT_TRUE(finished) << finished.error().detail;
    return *config;
}

Names between(std::string_view running, std::string_view fresh) {
    return needs_restart(read(running), read(fresh));
}

constexpr std::string_view kModel = "[[model]]\nid = \"a\"\npath = \"null:\"\n";

TEST(ConfigChanges, WhatAReloadTakesUpIsNotNamed) {
    EXPECT_EQ(between("", ""), Names{});
    EXPECT_EQ(between(kModel,
                      "[quota]\nworkspace_requests = 5\ncount_cache_reads = true\n"
                      "[server]\nnames = [\"llm.home.arpa\"]\n"
                      "[api]\nunknown_model = \"default\"\n"
                      "[topology]\nregion = \"eu\"\nregions = [\"us=https://us\"]\n"
                      "[[workspace]]\nname = \"x\"\nrequests = 3\nrequests_burst = 1\n"
                      "[[model]]\nid = \"a\"\npath = \"null:\"\naliases = [\"b\", \"c-*\"]\n"
                      "default = true\n"),
              Names{});
}

TEST(ConfigChanges, WhatNeedsARestartIsNamed) {
    EXPECT_EQ(between("", "[limits]\nbody_bytes = 2048\n[server]\nlisten = []\ndrain_s = 5\n"),
              (Names{"server.listen", "server.drain_s", "limits.body_bytes"}));
    EXPECT_EQ(between(kModel, "[[model]]\nid = \"a\"\npath = \"null:tokens=5\"\nstep_ms = 60\n"),
              (Names{"model.path of \"a\"", "model.step_ms of \"a\""}));
    const Names tables = {"the set or order of [[model]]"};
    EXPECT_EQ(between(kModel, ""), tables);
    EXPECT_EQ(between(kModel, "[[model]]\nid = \"b\"\npath = \"null:\"\n"), tables);
    EXPECT_EQ(between("", "[[cache.share]]\nworkspaces = [\"a\", \"b\"]\n"), Names{"cache.share"});
    EXPECT_EQ(between("[[cache.share]]\nworkspaces = [\"a\", \"c\"]\n",
                      "[[cache.share]]\nworkspaces = [\"a\", \"b\"]\n"),
              Names{"cache.share"});
}

TEST(ConfigChanges, LanesAreThoseOfStart) {
    constexpr std::string_view kTwo =
        "[[lane]]\nname = \"default\"\n[[lane]]\nname = \"fast\"\nreserved_sequences = 1\n";
    EXPECT_EQ(between(kTwo, std::string(kTwo) + "ttft_p99_ms = 200\nbeside_step_tokens = 9\n"),
              Names{});
    EXPECT_EQ(between(kTwo, "[[lane]]\nname = \"default\"\n[[lane]]\nname = \"fast\"\n"),
              Names{"lane.reserved_sequences of \"fast\""});
    const Names tables = {"the set or order of [[lane]]"};
    EXPECT_EQ(between("", kTwo), tables);
    EXPECT_EQ(between(kTwo, "[[lane]]\nname = \"default\"\n"), tables);
}

}  // namespace
}  // namespace zerohop::app
