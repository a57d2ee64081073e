#include "auth/key_file.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "auth/key_json.h"
#include "auth/key_store.h"

namespace zerohop::auth {
namespace {

namespace fs = std::filesystem;

class KeyFileTest : public ::testing::Test {
  protected:
    void SetUp() override {
        std::string pattern = (fs::temp_directory_path() / "zerohop-keys-XXXXXX").string();
        ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
        folder_ = pattern;
        path_ = folder_ + "/state/keys.json";
    }
    void TearDown() override { fs::remove_all(folder_); }

    KeyWithSecret create(const NewKey& wanted = {}) {
        auto file = KeyFile::open_for_change(path_);
        EXPECT_TRUE(file);
        auto key = create_key(file->content(), wanted, wall_now());
        EXPECT_TRUE(key);
        EXPECT_TRUE(file->commit());
        return *key;
    }
    void overwrite(const std::string& path, std::string_view text) {
        std::ofstream(path + ".new") << text;
        fs::rename(path + ".new", path);
    }
    std::string slurp(const std::string& path) {
        std::ifstream in(path);
        return {std::istreambuf_iterator<char>(in), {}};
    }

    std::string folder_, path_;
};

TEST_F(KeyFileTest, CreatedKeyIsFoundByItsSecretAndOnlyItsHashIsStored) {
    NewKey wanted{.name = "ci \"bot\" ü", .workspace = "team-a"};
    wanted.limits = {.requests = 60, .input_tokens = 1000, .output_tokens = 0};
    wanted.priority_max = Priority::kHigh;
    wanted.models = {"m1", "m2"};
    wanted.lanes = {"*"};
    wanted.admin = true;
    const KeyWithSecret key = create(wanted);
    EXPECT_EQ(key.record.id.size(), 14U);
    EXPECT_TRUE(key.secret.starts_with("zh_" + key.record.id.substr(4) + "_"));

    for (const std::string& path : {path_, path_ + ".secrets"}) {
        struct stat info{};
        ASSERT_EQ(::stat(path.c_str(), &info), 0);
        EXPECT_EQ(info.st_mode & 0777, 0600U) << path;
        EXPECT_EQ(slurp(path).find(key.secret), std::string::npos);
        EXPECT_EQ(slurp(path).find(key.secret.substr(14)), std::string::npos);
    }
    const KeySnapshot snapshot(*read_key_file(path_));
    const KeyRecord* found = snapshot.find_by_secret(key.secret, wall_now());
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found->name, wanted.name);
    EXPECT_EQ(found->workspace, "team-a");
    EXPECT_EQ(found->limits, wanted.limits);
    EXPECT_EQ(found->priority_max, Priority::kHigh);
    EXPECT_EQ(found->models, wanted.models);
    EXPECT_EQ(found->lanes, wanted.lanes);
    EXPECT_TRUE(found->admin);
    EXPECT_EQ(snapshot.find_by_secret(key.secret + "x", wall_now()), nullptr);
    EXPECT_NE(snapshot.current_token_secret(), nullptr);
}

TEST_F(KeyFileTest, RevokedKeyIsRefusedAndNamesHelp) {
    const KeyWithSecret key = create();
    auto file = KeyFile::open_for_change(path_);
    std::string typo = key.record.id;
    typo.back() = typo.back() == 'a' ? 'b' : 'a';
    EXPECT_EQ(revoke_key(file->content(), typo, 1).error().detail,
              "there is no key \"" + typo + "\"; did you mean " + key.record.id + "?");
    ASSERT_TRUE(revoke_key(file->content(), key.record.id, wall_now()));
    EXPECT_EQ(revoke_key(file->content(), key.record.id, 1).error().code, Code::kConflict);
    EXPECT_EQ(rotate_key_secret(file->content(), key.record.id, 0, 1).error().code,
              Code::kConflict);
    ASSERT_TRUE(file->commit());
    const KeySnapshot snapshot(*read_key_file(path_));
    EXPECT_EQ(snapshot.find_by_secret(key.secret, wall_now()), nullptr);
    EXPECT_NE(snapshot.find_by_id(key.record.id), nullptr);
}

TEST_F(KeyFileTest, RotatedSecretOverlapsOnlyWhenAsked) {
    const KeyWithSecret old = create();
    KeySnapshot::Content content = *read_key_file(path_);
    const WallNs now = wall_now();
    const auto second = rotate_key_secret(content, old.record.id, 60, now);
    ASSERT_TRUE(second);
    EXPECT_EQ(second->record.generation, 1U);
    {
        const KeySnapshot snapshot(content);
        EXPECT_NE(snapshot.find_by_secret(second->secret, now), nullptr);
        EXPECT_NE(snapshot.find_by_secret(old.secret, now + 59 * kNsPerSec), nullptr);
        EXPECT_EQ(snapshot.find_by_secret(old.secret, now + 60 * kNsPerSec), nullptr);
    }
    const auto third = rotate_key_secret(content, old.record.id, 0, now);
    EXPECT_EQ(third->record.generation, 2U);
    const KeySnapshot snapshot(content);
    EXPECT_EQ(snapshot.find_by_secret(old.secret, now), nullptr);
    EXPECT_EQ(snapshot.find_by_secret(second->secret, now), nullptr);
    EXPECT_NE(snapshot.find_by_secret(third->secret, now), nullptr);
}

TEST_F(KeyFileTest, TokenSecretsRotateByIdWithOverlap) {
    KeySnapshot::Content content;
    const TokenSecret first = rotate_token_secret(content, 360, 1000);
    const TokenSecret second = rotate_token_secret(content, 360, 2000);
    const KeySnapshot snapshot(content);
    EXPECT_EQ(snapshot.current_token_secret()->id, second.id);
    EXPECT_NE(snapshot.find_token_secret(first.id, 3000), nullptr);
    EXPECT_EQ(snapshot.find_token_secret(first.id, 2000 + 360 * kNsPerSec), nullptr);
    rotate_token_secret(content, 360, 3000 + 360 * kNsPerSec);
    EXPECT_EQ(content.token_secrets.size(), 2U);  // the retired first one is gone
    rotate_token_secret(content, 0, 4000 + 360 * kNsPerSec);
    EXPECT_EQ(content.token_secrets.size(), 1U);
}

TEST_F(KeyFileTest, BadWishesAreRefused) {
    KeySnapshot::Content content;
    const auto text = [&](const NewKey& wanted) {
        const auto got = create_key(content, wanted, 1);
        return got ? std::string() : got.error().detail;
    };
    EXPECT_NE(text({.workspace = ""}), "");
    EXPECT_NE(text({.workspace = "a b"}), "");
    EXPECT_NE(text({.workspace = std::string(65, 'a')}), "");
    EXPECT_NE(text({.limits = {.requests = -1}}), "");
    EXPECT_NE(text({.limits = {.output_tokens = kMaxLimit + 1}}), "");
    EXPECT_NE(text({.limits = {.requests = 5}, .burst = {.requests = -1}}), "");
    EXPECT_NE(
        text({.limits = {.requests = 5}, .burst = {.input_tokens = 5}}).find("needs the limit"),
        std::string::npos);
    EXPECT_NE(text({.models = {}}), "");
    EXPECT_NE(text({.lanes = {"a;b"}}), "");
    EXPECT_TRUE(content.keys.empty());
}

TEST_F(KeyFileTest, BurstMayBeAbsentFromTheFile) {
    KeySnapshot::Content content;
    const auto key =
        create_key(content, {.limits = {.requests = 60}, .burst = {.requests = 7}}, 1'000'000'000);
    ASSERT_TRUE(key);
    std::string text = write_keys_json(content);
    KeySnapshot::Content read;
    ASSERT_TRUE(read_keys_json(text, read));
    EXPECT_EQ(read.keys.at(0).burst, (Limits{.requests = 7}));
    const std::size_t at = text.find("\"burst\"");
    ASSERT_NE(at, std::string::npos);
    text.replace(at, 7, "\"earlier\"");
    KeySnapshot::Content earlier;
    ASSERT_TRUE(read_keys_json(text, earlier));
    EXPECT_EQ(earlier.keys.at(0).burst, Limits{});
}

TEST_F(KeyFileTest, BrokenFilesAreNamedByField) {
    create();
    const std::string good = slurp(path_);
    const auto broken = [&](std::string_view from, std::string_view to) {
        std::string text = good;
        const auto at = text.find(from);
        EXPECT_NE(at, std::string::npos) << from;
        text.replace(at, from.size(), to);
        KeySnapshot::Content content;
        const Status s = read_keys_json(text, content);
        return s ? std::string("accepted") : s.error().detail;
    };
    EXPECT_EQ(broken("\"version\": 1", "\"version\": 2"), "version must be an integer from 1 to 1");
    EXPECT_EQ(broken("zerohop-keys", "other"), "format must be \"zerohop-keys\"");
    EXPECT_EQ(broken("\"workspace\": \"default\"", "\"workspace\": 7"),
              "keys[0].workspace must be a string");
    EXPECT_EQ(broken("\"workspace\": \"default\"", "\"w\": \"default\""),
              "keys[0].workspace is missing");
    EXPECT_EQ(broken("\"admin\": false", "\"admin\": 0"), "keys[0].admin must be true or false");
    EXPECT_EQ(broken("blake2b-256:", "md5:"),
              "keys[0].secrets[0].hash must be \"blake2b-256:\" or \"sha256:\" and 64 hex digits");
    EXPECT_EQ(broken("\"priority_max\": \"normal\"", "\"priority_max\": \"urgent\""),
              "keys[0].priority_max must be \"low\", \"normal\" or \"high\"");
    EXPECT_EQ(broken("{", "["), "is not a JSON object");
    EXPECT_EQ(broken("\"input_tokens\": 0", "\"input_tokens\": \"many\""),
              "keys[0].burst.input_tokens must be an integer from 0 to 1000000000");
    EXPECT_NE(broken("\"requests_per_minute\": 0", "\"requests_per_minute\": -1"), "accepted");
    KeySnapshot::Content content;
    for (std::size_t n = 0; n + 2 < good.size(); n += 7)
        ASSERT_FALSE(read_keys_json(good.substr(0, n), content)) << n;
}

TEST_F(KeyFileTest, StorePicksChangesUpAndKeepsTheOldOnesWhenTheFileBreaks) {
    auto store = KeyStore::open(path_, {});
    ASSERT_TRUE(store);
    EXPECT_TRUE(store->snapshot()->empty());
    EXPECT_FALSE(*store->reload());
    const KeyWithSecret key = create();
    EXPECT_TRUE(*store->reload());
    EXPECT_FALSE(*store->reload());
    const auto good = store->snapshot();
    EXPECT_NE(good->find_by_secret(key.secret, wall_now()), nullptr);

    const std::string text = slurp(path_);
    overwrite(path_, text.substr(0, text.size() / 2));
    const auto broken = store->reload();
    ASSERT_FALSE(broken);
    EXPECT_NE(broken.error().detail.find(path_), std::string::npos);
    EXPECT_EQ(store->snapshot(), good);
    const auto still = store->reload();  // whoever asks again is told again
    ASSERT_FALSE(still);
    EXPECT_EQ(still.error().detail, broken.error().detail);

    fs::remove(path_);
    EXPECT_FALSE(store->reload());  // a vanished file must not open the door
    const auto gone = store->reload();
    ASSERT_FALSE(gone);
    EXPECT_NE(gone.error().detail.find("no keys any more"), std::string::npos);
    EXPECT_EQ(store->snapshot(), good);
    overwrite(path_, text);
    EXPECT_TRUE(*store->reload());
    EXPECT_FALSE(*store->reload());
}

TEST_F(KeyFileTest, StaticKeysJoinThoseOfTheFile) {
    const KeyWithSecret key = create();
    auto store = KeyStore::open(path_, {{.id = "ops", .sha256 = to_hex(sha256("pw"))}});
    ASSERT_TRUE(store);
    EXPECT_EQ(store->snapshot()->find_by_secret("pw", 1)->id, "ops");
    EXPECT_EQ(store->snapshot()->find_by_secret(key.secret, 1)->id, key.record.id);
    EXPECT_FALSE(KeyStore::open(path_, {{.id = key.record.id, .sha256 = to_hex(sha256("p"))}}));
}

// Two command lines at once and a server that re-reads: nothing is lost, nothing half read.
TEST_F(KeyFileTest, ConcurrentWritersLoseNothing) {
    create();
    std::atomic<bool> done{false};
    std::thread reader([&] {
        while (!done) {
            const auto content = read_key_file(path_);
            EXPECT_TRUE(content) << content.error().detail;
        }
    });
    std::vector<std::thread> writers;
    writers.reserve(3);
    for (int w = 0; w < 3; ++w)
        writers.emplace_back([&] {
            for (int i = 0; i < 8; ++i) create();
        });
    for (std::thread& w : writers) w.join();
    done = true;
    reader.join();
    EXPECT_EQ(read_key_file(path_)->keys.size(), 25U);
}

// A writer killed at any moment leaves whole files, and the next one is not held up.
TEST_F(KeyFileTest, SurvivesKilledWriters) {
    create();
    for (int round = 0; round < 12; ++round) {
        const pid_t child = ::fork();
        ASSERT_GE(child, 0);
        if (child == 0) {
            for (;;) {
                auto file = KeyFile::open_for_change(path_);
                if (!file || !create_key(file->content(), {}, 1) || !file->commit()) ::_exit(1);
            }
        }
        ::usleep(3000 + 1700 * static_cast<useconds_t>(round));
        ::kill(child, SIGKILL);
        int status = 0;
        ASSERT_EQ(::waitpid(child, &status, 0), child);
        ASSERT_TRUE(WIFSIGNALED(status));
        const auto content = read_key_file(path_);
        ASSERT_TRUE(content) << content.error().detail;
        create();
    }
}

}  // namespace
}  // namespace zerohop::auth
