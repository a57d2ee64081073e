#include "cli/key_command.h"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "auth/key_file.h"

namespace zerohop::cli {
namespace {

namespace fs = std::filesystem;

class KeyCommand : public ::testing::Test {
  protected:
    void SetUp() override {
        std::string pattern = (fs::temp_directory_path() / "zerohop-cli-XXXXXX").string();
        ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
        folder_ = pattern;
        file_ = folder_ + "/keys.json";
    }
    void TearDown() override { fs::remove_all(folder_); }

    // Runs `zerohop key …` in this process; out_ and err_ hold what it printed.
    int run(std::vector<std::string> arguments) {
        CLI::App app("zerohop");
        int exit_code = 0;
        add_key_command(app, exit_code);
        arguments.insert(arguments.begin(), "key");
        arguments.push_back("--file");
        arguments.push_back(file_);
        std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
        ::testing::internal::CaptureStdout();
        ::testing::internal::CaptureStderr();
        try {
            app.parse(arguments);
        } catch (const CLI::ParseError& e) {
            exit_code = 2;
        }
        std::fflush(nullptr);
        out_ = ::testing::internal::GetCapturedStdout();
        err_ = ::testing::internal::GetCapturedStderr();
        return exit_code;
    }
    nlohmann::json json() { return nlohmann::json::parse(out_, nullptr, false); }

    std::string folder_, file_, out_, err_;
};

TEST_F(KeyCommand, CreateListRevoke) {
    ASSERT_EQ(run({"create", "--workspace",    "team-a", "--name",       "ci",    "--rpm",
                   "60",     "--tpm",          "1000",   "--output-tpm", "500",   "--burst",
                   "9",      "--priority-max", "high",   "--models",     "m1,m2", "--lanes",
                   "*",      "--admin",        "--json"}),
              0);
    const auto created = json();
    EXPECT_EQ(created["workspace"], "team-a");
    EXPECT_EQ(created["requests_per_minute"], 60);
    EXPECT_EQ(created["input_tokens_per_minute"], 1000);
    EXPECT_EQ(created["output_tokens_per_minute"], 500);
    EXPECT_EQ(created["burst"],
              nlohmann::json({{"requests", 9}, {"input_tokens", 0}, {"output_tokens", 0}}));
    EXPECT_EQ(created["priority_max"], "high");
    EXPECT_EQ(created["models"], nlohmann::json::array({"m1", "m2"}));
    EXPECT_EQ(created["lanes"], nlohmann::json::array({"*"}));
    EXPECT_EQ(created["admin"], true);
    const std::string secret = created["secret"], id = created["id"];
    const auth::KeySnapshot keys(*auth::read_key_file(file_));
    EXPECT_EQ(keys.find_by_secret(secret, wall_now())->id, id);

    ASSERT_EQ(run({"list"}), 0);
    EXPECT_NE(out_.find(id), std::string::npos);
    EXPECT_EQ(out_.find(secret.substr(14)), std::string::npos);  // shown once
    ASSERT_EQ(run({"list", "--json"}), 0);
    EXPECT_EQ(json()["keys"].size(), 1U);
    EXPECT_FALSE(json()["keys"][0].contains("secret"));

    ASSERT_EQ(run({"revoke", id}), 0);
    EXPECT_EQ(run({"revoke", id}), 1);
    EXPECT_NE(err_.find("revoked already"), std::string::npos);
    ASSERT_EQ(run({"list", "--json"}), 0);
    EXPECT_EQ(json()["keys"].size(), 0U);
    ASSERT_EQ(run({"list", "--all", "--json"}), 0);
    EXPECT_EQ(json()["keys"].size(), 1U);
}

TEST_F(KeyCommand, DefaultsAreModest) {
    ASSERT_EQ(run({"create", "-w", "w", "--json"}), 0);
    EXPECT_EQ(json()["priority_max"], "normal");
    EXPECT_EQ(json()["lanes"], nlohmann::json::array({"default", "batch"}));
    EXPECT_EQ(json()["models"], nlohmann::json::array({"*"}));
    EXPECT_EQ(json()["admin"], false);
    EXPECT_EQ(json()["requests_per_minute"], 0);
}

TEST_F(KeyCommand, PlainOutputShowsTheSecretOnItsOwnLine) {
    ASSERT_EQ(run({"create", "-w", "w"}), 0);
    EXPECT_NE(out_.find("\n    zh_"), std::string::npos);
    EXPECT_NE(out_.find("shown once"), std::string::npos);
}

TEST_F(KeyCommand, RotateSecrets) {
    ASSERT_EQ(run({"create", "-w", "w", "--json"}), 0);
    const std::string id = json()["id"], old = json()["secret"];
    ASSERT_EQ(run({"rotate-secret", id, "--overlap", "60", "--json"}), 0);
    const std::string fresh = json()["secret"];
    auth::KeySnapshot keys(*auth::read_key_file(file_));
    EXPECT_NE(keys.find_by_secret(old, wall_now()), nullptr);
    EXPECT_NE(keys.find_by_secret(fresh, wall_now()), nullptr);
    const std::string token_secret = keys.current_token_secret()->id;
    ASSERT_EQ(run({"rotate-secret", "--json"}), 0);
    EXPECT_EQ(json()["overlap_seconds"], 360);
    EXPECT_NE(json()["token_secret"], token_secret);
    const auth::KeySnapshot after(*auth::read_key_file(file_));
    EXPECT_NE(after.find_token_secret(token_secret, wall_now()), nullptr);
    ASSERT_EQ(run({"rotate-secret", id, "--json"}), 0);
    const auth::KeySnapshot last(*auth::read_key_file(file_));
    EXPECT_EQ(last.find_by_secret(fresh, wall_now()), nullptr);
    EXPECT_EQ(last.find_by_id(id)->generation, 2U);
}

TEST_F(KeyCommand, MistakesAreToldNotStored) {
    EXPECT_EQ(run({"create"}), 2);
    EXPECT_EQ(run({"create", "-w", "a b"}), 2);
    EXPECT_NE(err_.find("workspace"), std::string::npos);
    EXPECT_EQ(run({"create", "-w", "w", "--rpm", "-1"}), 2);
    EXPECT_EQ(run({"create", "-w", "w", "--priority-max", "urgent"}), 2);
    EXPECT_EQ(run({"revoke", "key_nothing"}), 1);
    EXPECT_EQ(run({"rotate-secret", "key_nothing"}), 1);
    EXPECT_EQ(run({"list"}), 0);
    EXPECT_NE(out_.find("No keys"), std::string::npos);
    EXPECT_FALSE(fs::exists(file_));
}

}  // namespace
}  // namespace zerohop::cli
