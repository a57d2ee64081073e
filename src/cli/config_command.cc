// `zerohop config check|defaults|hash-key|reload`.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/evp.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/config.h"
#include "cli/command.h"
#include "cli/http_client.h"

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

std::vector<std::string> needs_restart(const HttpReply& reply) {
    std::vector<std::string> out;
    const auto json = nlohmann::json::parse(reply.body, nullptr, false);
    if (!json.is_object() || !json.contains("needs_restart")) return out;
    for (const auto& what : json["needs_restart"])
        if (what.is_string()) out.push_back(what.get<std::string>());
    return out;
}

int reload(const std::string& url_text, const std::string& key) {
    const Result<Url> url = parse_url(url_text);
    const Result<HttpReply> reply = url ? http_call(*url, "POST", "/v1/config/reload", key, "{}")
                                        : std::unexpected(url.error());
    if (!reply) {
        fmt::print(stderr, "{}\n", reply.error().detail);
        return 1;
    }
    if (reply->status != 200) {
        fmt::print(stderr, "{}\n", error_message_of(*reply));
        return 1;
    }
    fmt::print("{}: certificate, keys, topology and quotas reloaded\n", url_text);
    const std::vector<std::string> later = needs_restart(*reply);
    if (!later.empty()) fmt::print("needs a restart: {}\n", fmt::join(later, ", "));
    return 0;
}

void add_reload(CLI::App& config, int& exit_code) {
    auto* command = config.add_subcommand(
        "reload", "Tell a running server to read its configuration, keys and certificate again");
    auto url = std::make_shared<std::string>("http://127.0.0.1:8080");
    auto key = std::make_shared<std::string>();
    command->add_option("--url", *url, "The server's clear-text address, or unix:PATH")
        ->capture_default_str();
    command->add_option("--key", *key, "API key of an admin (zerohop key create --admin)")
        ->envname("ZEROHOP_API_KEY");
    command->footer(
        "Taken up: the certificate, the keys of the key file, and of the configuration the "
        "sections\ntopology, quota and workspace, aliases of models, and ttft_p99_ms "
        "and\nbeside_step_tokens of lanes. "
        "Streams go on. What is broken stays as it was; the\nreason is printed here and logged "
        "there, as is what else has changed and needs a restart.\n"
        "Examples:\n"
        "  zerohop config reload\n"
        "  ZEROHOP_API_KEY=$ADMIN_KEY zerohop config reload --url http://127.0.0.1:8080\n"
        "  kill -HUP $(pidof zerohop)     (the same, for a server without clear text; see its "
        "log)\n"
        "Exit code 0: all that can be taken up was, 1: something is broken, or nobody answers.");
    command->callback([=, &exit_code] { exit_code = reload(*url, *key); });
}

}  // namespace

void add_config_command(CLI::App& app, int& exit_code) {
    auto* config = app.add_subcommand("config", "Check, explain or reload the configuration");
    config->require_subcommand(1);
    add_check(*config, exit_code);
    auto* defaults =
        config->add_subcommand("defaults", "Print every key with its default, unit and meaning");
    defaults->footer("Example:\n  zerohop config defaults > zerohop.toml");
    defaults->callback([] { fmt::print("{}", zerohop::app::documented_defaults()); });
    add_hash_key(*config);
    add_reload(*config, exit_code);
}

}  // namespace zerohop::cli
