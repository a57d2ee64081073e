// `zerohop models`: what a running server offers.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/http_client.h"

namespace zerohop::cli {
namespace {

int list_models(const std::string& url_text, const std::string& key, bool as_json) {
    const Result<Url> url = parse_url(url_text);
    const Result<HttpReply> reply = url ? http_call(*url, "GET", "/v1/models?limit=1000", key, "")
                                        : std::unexpected(url.error());
    if (!reply) {
        fmt::print(stderr, "{}\nStart one with: zerohop serve --model FILE.gguf\n",
                   reply.error().detail);
        return 1;
    }
    if (reply->status != 200) {
        fmt::print(stderr, "{}\n", error_message_of(*reply));
        return 1;
    }
    if (as_json) {
        fmt::print("{}\n", reply->body);
        return 0;
    }
    const auto json = nlohmann::json::parse(reply->body, nullptr, false);
    if (!json.is_object() || !json.contains("data")) {
        fmt::print(stderr, "the server's answer is not a model list\n");
        return 1;
    }
    fmt::print("{:<40} {:>10}  {}\n", "MODEL", "CONTEXT", "NAME");
    for (const auto& model : json["data"])
        fmt::print("{:<40} {:>10}  {}\n", model.value("id", "?"),
                   model.value("max_input_tokens", 0), model.value("display_name", ""));
    return 0;
}

}  // namespace

void add_models_command(CLI::App& app, int& exit_code) {
    auto* models = app.add_subcommand("models", "List the models of a running server");
    auto url = std::make_shared<std::string>("http://127.0.0.1:8080");
    auto key = std::make_shared<std::string>();
    auto as_json = std::make_shared<bool>(false);
    models->add_option("--url", *url, "The server's clear-text address, or unix:PATH")
        ->capture_default_str();
    models->add_option("--key", *key, "API key")->envname("ZEROHOP_API_KEY");
    models->add_flag("--json", *as_json, "Print the server's answer as it is");
    models->footer("Example:\n  zerohop models --url http://127.0.0.1:8080");
    models->callback([=, &exit_code] { exit_code = list_models(*url, *key, *as_json); });
}

}  // namespace zerohop::cli
