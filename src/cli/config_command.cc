// `zerohop config check|defaults|hash-key`.
#include <fmt/format.h>
#include <openssl/evp.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>

#include "app/config.h"
#include "cli/command.h"

namespace zerohop::cli {
namespace {

std::string sha256_hex(const std::string& text) {
    unsigned char digest[32];
    unsigned int size = sizeof digest;
    EVP_Digest(text.data(), text.size(), digest, &size, EVP_sha256(), nullptr);
    std::string out = "sha256:";
    for (const unsigned char byte : digest) out += fmt::format("{:02x}", byte);
    return out;
}

void add_check(CLI::App& config, int& exit_code) {
    auto* check =
        config.add_subcommand("check", "Read a configuration file and say what is wrong with it");
    auto path = std::make_shared<std::string>("zerohop.toml");
    check->add_option("file", *path, "TOML file")->capture_default_str();
    check->footer("Example:\n  zerohop config check zerohop.toml\nExit code 0: fine, 1: not.");
    check->callback([path, &exit_code] {
        Result<app::Config> read = app::read_config(*path);
        Status status = read ? app::finish_config(*read) : Status(std::unexpected(read.error()));
        if (!status) {
            fmt::print(stderr, "{}\n", status.error().detail);
            exit_code = 1;
            return;
        }
        fmt::print("{}: fine, {} model{}\n", *path, read->models.size(),
                   read->models.size() == 1 ? "" : "s");
    });
}

void add_hash_key(CLI::App& config) {
    auto* hash = config.add_subcommand(
        "hash-key", "Read an API key from standard input, print its line for auth.keys");
    hash->footer("Example:\n  openssl rand -hex 24 | tee my.key | zerohop config hash-key");
    hash->callback([] {
        std::string key;
        std::getline(std::cin, key);
        fmt::print("{}\n", sha256_hex(key));
    });
}

}  // namespace

void add_config_command(CLI::App& app, int& exit_code) {
    auto* config = app.add_subcommand("config", "Check or explain the configuration");
    config->require_subcommand(1);
    add_check(*config, exit_code);
    auto* defaults =
        config->add_subcommand("defaults", "Print every key with its default, unit and meaning");
    defaults->footer("Example:\n  zerohop config defaults > zerohop.toml");
    defaults->callback([] { fmt::print("{}", zerohop::app::documented_defaults()); });
    add_hash_key(*config);
}

}  // namespace zerohop::cli
