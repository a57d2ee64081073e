// `zerohop ask "prompt"`: streams one answer, from a running server or straight from a model file.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <thread>

#include "app/models.h"
#include "cli/command.h"
#include "cli/http_client.h"
#include "cli/progress.h"

namespace zerohop::cli {
namespace {

struct AskOptions {
    std::string prompt;
    std::string url = "http://127.0.0.1:8080";
    std::string key;
    std::string model;  // public id at a server, or a GGUF file
    std::string system;
    int max_tokens = 512;
    double temperature = -1;
};

void print_now(std::string_view text) {
    fmt::print("{}", text);
    std::fflush(stdout);
}

// Prints the text of an SSE stream as it comes; remembers an in-stream error.
class SsePrinter {
  public:
    void feed(std::string_view piece) {
        pending_ += piece;
        for (std::size_t end; (end = pending_.find('\n')) != std::string::npos;) {
            line(std::string_view(pending_).substr(0, end));
            pending_.erase(0, end + 1);
        }
    }
    const std::string& error() const { return error_; }
    bool stopped() const { return stopped_; }

  private:
    void line(std::string_view text) {
        if (!text.starts_with("data: ")) return;
        const auto json = nlohmann::json::parse(text.substr(6), nullptr, false);
        const std::string type = json.is_object() ? json.value("type", "") : "";
        if (type == "content_block_delta") print_now(json["delta"].value("text", ""));
        if (type == "message_stop") stopped_ = true;
        if (type == "error")
            error_ = json["error"].value("message", "the server reported an error");
    }

    std::string pending_;
    std::string error_;
    bool stopped_ = false;
};

// The id to ask for: the one named, or the server's first.
Result<std::string> pick_model(const Url& url, const AskOptions& options) {
    if (!options.model.empty()) return options.model;
    const Result<HttpReply> reply = http_call(url, "GET", "/v1/models", options.key, "");
    if (!reply) return std::unexpected(reply.error());
    if (reply->status != 200) return fail(Code::kInternal, "cli", error_message_of(*reply));
    const auto json = nlohmann::json::parse(reply->body, nullptr, false);
    if (!json.is_object() || !json.contains("data") || json["data"].empty())
        return fail(Code::kNotFound, "cli", "the server has no model");
    return json["data"][0].value("id", "");
}

Status ask_server(const Url& url, const AskOptions& options) {
    const Result<std::string> model = pick_model(url, options);
    if (!model) return std::unexpected(model.error());
    nlohmann::json body = {{"model", *model},
                           {"max_tokens", options.max_tokens},
                           {"stream", true},
                           {"messages", {{{"role", "user"}, {"content", options.prompt}}}}};
    if (!options.system.empty()) body["system"] = options.system;
    if (options.temperature >= 0) body["temperature"] = options.temperature;
    SsePrinter printer;
    const Result<HttpReply> reply =
        http_call(url, "POST", "/v1/messages", options.key,
                  body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace),
                  [&](std::string_view piece) { printer.feed(piece); });
    print_now("\n");
    if (!reply) return std::unexpected(reply.error());
    if (reply->status != 200) return fail(Code::kInternal, "cli", error_message_of(*reply));
    if (!printer.error().empty()) return fail(Code::kInternal, "cli", printer.error());
    if (!printer.stopped()) return fail(Code::kInternal, "cli", "the answer broke off");
    return {};
}

Status ask_file(const AskOptions& options) {
    app::ModelConfig config = app::model_from_flag(options.model);
    config.max_sequences = 1;
    ProgressBar progress("loading the model");
    Result<std::unique_ptr<EnginePort>> engine =
        app::load_model(config, app::Config(), nullptr, nullptr,
                        [&](std::string_view what, float share) { progress.update(what, share); });
    progress.finish();
    if (!engine) return std::unexpected(engine.error());
    auto request = std::make_shared<Request>();
    request->model = (*engine)->info().id;
    if (!options.system.empty()) request->turns.push_back({Role::kSystem, {options.system}});
    request->turns.push_back({Role::kUser, {options.prompt}});
    request->max_tokens = options.max_tokens;
    if (options.temperature >= 0)
        request->sampling.temperature = static_cast<float>(options.temperature);
    auto stream = std::make_shared<Stream>(nullptr, nullptr);
    (*engine)->submit(request, stream);
    Status status;
    for (bool done = false; !done;) {
        Event event;
        if (!stream->try_pop(event)) {
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
        } else if (const Text* text = std::get_if<Text>(&event)) {
            print_now(text->delta);
        } else if (Failed* failed = std::get_if<Failed>(&event)) {
            status = std::unexpected(failed->error);
            done = true;
        } else if (std::holds_alternative<Done>(event)) {
            done = true;
        }
    }
    print_now("\n");
    (*engine)->stop();
    return status;
}

int run_ask(AskOptions options) {
    if (options.prompt == "-") options.prompt.assign(std::istreambuf_iterator<char>(std::cin), {});
    const bool is_file = options.model.ends_with(".gguf") || options.model.starts_with("null:");
    Status status;
    if (is_file) {
        status = ask_file(options);
    } else {
        const Result<Url> url = parse_url(options.url);
        status = url ? ask_server(*url, options) : Status(std::unexpected(url.error()));
    }
    if (status) return 0;
    fmt::print(stderr, "{}\n", status.error().detail);
    if (status.error().code == Code::kUnavailable && !is_file)
        fmt::print(stderr,
                   "Start one with: zerohop serve --model FILE.gguf\n"
                   "or ask a model file directly: zerohop ask --model FILE.gguf \"…\"\n");
    return 1;
}

}  // namespace

void add_ask_command(CLI::App& app, int& exit_code) {
    auto* ask =
        app.add_subcommand("ask", "Stream one answer, from a running server or a model file");
    auto options = std::make_shared<AskOptions>();
    ask->add_option("prompt", options->prompt, "The question; \"-\" reads standard input")
        ->required();
    ask->add_option(
        "--model", options->model,
        "Model id at the server (default: its first), or a .gguf file to ask without a server");
    ask->add_option("--url", options->url, "The server's clear-text address, or unix:PATH")
        ->capture_default_str();
    ask->add_option("--key", options->key, "API key")->envname("ZEROHOP_API_KEY");
    ask->add_option("--system", options->system, "System prompt");
    ask->add_option("--max-tokens", options->max_tokens, "Longest answer, in tokens")
        ->capture_default_str();
    ask->add_option("--temperature", options->temperature, "0 is greedy; default: the model's own");
    ask->footer(
        "Examples:\n"
        "  zerohop ask \"Why is the sky blue?\"\n"
        "  zerohop ask --model smollm2.gguf \"Name three rivers\"\n"
        "  git diff | zerohop ask --system \"Summarize this change\" -");
    ask->callback([options, &exit_code] { exit_code = run_ask(*options); });
}

}  // namespace zerohop::cli
