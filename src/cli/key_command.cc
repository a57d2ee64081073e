#include "cli/key_command.h"

#include <fmt/color.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "auth/key_file.h"
#include "base/rfc3339.h"

namespace zerohop::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
    std::string file = auth::default_keys_path();
    bool json = false;
    // create
    auth::NewKey wanted;
    std::int64_t tpm = 0;
    std::string priority = "normal";
    // list
    bool all = false;
    std::string workspace;
    // revoke, rotate-secret
    std::string id;
    std::int64_t overlap_s = -1;  // -1: not given
};

std::string joined(const std::vector<std::string>& items) {
    return fmt::format("{}", fmt::join(items, ","));
}

std::string bold(std::string_view text) {
    if (::isatty(STDOUT_FILENO) == 0) return std::string(text);
    return fmt::format(fmt::emphasis::bold, "{}", text);
}

int report(const Error& error) {
    fmt::print(stderr, "zerohop key: {}\n", error.detail);
    return error.code == Code::kInvalidRequest ? 2 : 1;
}

std::string limit_text(std::int64_t limit) { return limit == 0 ? "-" : std::to_string(limit); }

// Never a hash or a secret.
Json describe(const auth::KeyRecord& key) {
    return {{"id", key.id},
            {"name", key.name},
            {"workspace", key.workspace},
            {"created", format_rfc3339(key.created_ns)},
            {"revoked", key.revoked_ns == 0 ? Json(nullptr) : Json(format_rfc3339(key.revoked_ns))},
            {"generation", key.generation},
            {"requests_per_minute", key.limits.requests},
            {"input_tokens_per_minute", key.limits.input_tokens},
            {"output_tokens_per_minute", key.limits.output_tokens},
            {"burst",
             {{"requests", key.burst.requests},
              {"input_tokens", key.burst.input_tokens},
              {"output_tokens", key.burst.output_tokens}}},
            {"priority_max", to_string(key.priority_max)},
            {"models", key.models},
            {"lanes", key.lanes},
            {"admin", key.admin}};
}

void print_json(const Json& json) {
    fmt::print("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
}

void print_secret(const auth::KeyWithSecret& key, std::string_view headline,
                  const Options& options) {
    if (options.json) {
        Json json = describe(key.record);
        json["secret"] = key.secret;
        return print_json(json);
    }
    fmt::print("{}\n\n    {}\n\n", headline, bold(key.secret));
    fmt::print("This secret is shown once and stored only as a hash. Keep it now.\n");
    fmt::print(
        "A running server accepts it within a second:\n\n"
        "    curl -H \"x-api-key: $KEY\" -H \"anthropic-version: 2023-06-01\" "
        "http://127.0.0.1:8080/v1/models\n");
}

int create(Options& options) {
    auth::Limits& limits = options.wanted.limits;
    if (limits.input_tokens == 0) limits.input_tokens = options.tpm;
    if (limits.output_tokens == 0) limits.output_tokens = options.tpm;
    options.wanted.priority_max = parse_priority(options.priority).value_or(Priority::kNormal);
    Result<auth::KeyFile> file = auth::KeyFile::open_for_change(options.file);
    if (!file) return report(file.error());
    const auto key = auth::create_key(file->content(), options.wanted, wall_now());
    if (!key) return report(key.error());
    if (Status s = file->commit(); !s) return report(s.error());
    print_secret(*key,
                 fmt::format("Created {} in workspace {}.", key->record.id, key->record.workspace),
                 options);
    return 0;
}

void print_table(const std::vector<const auth::KeyRecord*>& keys) {
    std::size_t workspace_width = 9;
    for (const auth::KeyRecord* key : keys)
        workspace_width = std::max(workspace_width, key->workspace.size());
    fmt::print("{:14}  {:{}}  {:20}  {:>8}  {:>9}  {:>9}  {:8}  {:20}  {}\n", "KEY", "WORKSPACE",
               workspace_width, "CREATED", "RPM", "INPUT/MIN", "OUT/MIN", "PRIORITY", "LANES",
               "NAME");
    for (const auth::KeyRecord* key : keys) {
        std::string note = key->name;
        if (key->admin) note += note.empty() ? "(admin)" : " (admin)";
        if (joined(key->models) != "*") note += fmt::format(" models: {}", joined(key->models));
        if (key->revoked_ns != 0)
            note += fmt::format(" REVOKED {}", format_rfc3339(key->revoked_ns));
        fmt::print("{:14}  {:{}}  {:20}  {:>8}  {:>9}  {:>9}  {:8}  {:20}  {}\n", key->id,
                   key->workspace, workspace_width, format_rfc3339(key->created_ns),
                   limit_text(key->limits.requests), limit_text(key->limits.input_tokens),
                   limit_text(key->limits.output_tokens), to_string(key->priority_max),
                   joined(key->lanes), note);
    }
}

int list(const Options& options) {
    const auto content = auth::read_key_file(options.file);
    if (!content && content.error().code != Code::kNotFound) return report(content.error());
    std::vector<const auth::KeyRecord*> keys;
    if (content) {
        for (const auth::KeyRecord& key : content->keys)
            if ((options.all || key.revoked_ns == 0) &&
                (options.workspace.empty() || key.workspace == options.workspace))
                keys.push_back(&key);
    }
    if (options.json) {
        Json json = Json::array();
        for (const auth::KeyRecord* key : keys) json.push_back(describe(*key));
        print_json({{"file", options.file}, {"keys", std::move(json)}});
    } else if (keys.empty()) {
        fmt::print("No keys{} in {}. Make one: zerohop key create --workspace NAME\n",
                   options.workspace.empty() ? "" : " of that workspace", options.file);
    } else {
        print_table(keys);
    }
    return 0;
}

int revoke(const Options& options) {
    Result<auth::KeyFile> file = auth::KeyFile::open_for_change(options.file);
    if (!file) return report(file.error());
    const auto key = auth::revoke_key(file->content(), options.id, wall_now());
    if (!key) return report(key.error());
    if (Status s = file->commit(); !s) return report(s.error());
    if (options.json) {
        print_json(describe(*key));
    } else {
        fmt::print(
            "Revoked {} (workspace {}). Its requests and tokens are refused within a second; "
            "streams that run now end normally.\n",
            key->id, key->workspace);
    }
    return 0;
}

int rotate_tokens(auth::KeyFile& file, const Options& options) {
    const std::int64_t overlap = options.overlap_s < 0 ? auth::kTokenOverlapS : options.overlap_s;
    const auth::TokenSecret secret = auth::rotate_token_secret(file.content(), overlap, wall_now());
    if (Status s = file.commit(); !s) return report(s.error());
    if (options.json) {
        print_json({{"token_secret", secret.id}, {"overlap_seconds", overlap}});
    } else if (overlap == 0) {
        fmt::print("Tokens are now signed with secret {}; all tokens issued before end now.\n",
                   secret.id);
    } else {
        fmt::print(
            "Tokens are now signed with secret {}; those of the previous secret are good for "
            "{} more seconds.\n",
            secret.id, overlap);
    }
    return 0;
}

int rotate(const Options& options) {
    Result<auth::KeyFile> file = auth::KeyFile::open_for_change(options.file);
    if (!file) return report(file.error());
    if (options.id.empty()) return rotate_tokens(*file, options);
    const std::int64_t overlap = std::max<std::int64_t>(options.overlap_s, 0);
    const auto key = auth::rotate_key_secret(file->content(), options.id, overlap, wall_now());
    if (!key) return report(key.error());
    if (Status s = file->commit(); !s) return report(s.error());
    print_secret(
        *key,
        overlap == 0
            ? fmt::format("New secret for {}; the old one and its tokens end now.", key->record.id)
            : fmt::format("New secret for {}; the old one is good for {} more seconds.",
                          key->record.id, overlap),
        options);
    return 0;
}

CLI::App* subcommand(CLI::App* parent, const std::shared_ptr<Options>& o, const char* name,
                     const char* description) {
    CLI::App* sub = parent->add_subcommand(name, description);
    sub->add_option("--file", o->file, "Key file (default: $ZEROHOP_KEYS or the state folder)")
        ->capture_default_str();
    sub->add_flag("--json", o->json, "Print JSON");
    return sub;
}

void add_create(CLI::App* parent, const std::shared_ptr<Options>& o, int& exit_code) {
    CLI::App* sub = subcommand(parent, o, "create", "Make a key and show its secret, once");
    auth::NewKey& wanted = o->wanted;
    sub->add_option("--workspace,-w", wanted.workspace, "Who it belongs to: isolation and quota")
        ->required();
    sub->add_option("--name", wanted.name, "A note for people");
    const auto limit = CLI::Range(std::int64_t{0}, auth::kMaxLimit);
    sub->add_option("--rpm", wanted.limits.requests, "Requests per minute (0: no limit)")
        ->check(limit);
    sub->add_option("--tpm", o->tpm, "Input tokens and output tokens per minute, each")
        ->check(limit);
    sub->add_option("--input-tpm", wanted.limits.input_tokens, "Input tokens per minute")
        ->check(limit);
    sub->add_option("--output-tpm", wanted.limits.output_tokens, "Output tokens per minute")
        ->check(limit);
    sub->add_option("--burst", wanted.burst.requests,
                    "Requests at once, after a pause (0: as many as --rpm)")
        ->check(limit);
    sub->add_option("--input-burst", wanted.burst.input_tokens,
                    "Input tokens at once, the longest prompt (0: as many as --input-tpm)")
        ->check(limit);
    sub->add_option("--output-burst", wanted.burst.output_tokens,
                    "Output tokens at once (0: as many as --output-tpm)")
        ->check(limit);
    sub->add_option("--priority-max", o->priority, "Highest priority it may ask for")
        ->check(CLI::IsMember({"low", "normal", "high"}))
        ->capture_default_str();
    sub->add_option("--models", wanted.models, "Models it may use, comma-separated (*: all)")
        ->delimiter(',');
    sub->add_option("--lanes", wanted.lanes, "Lanes it may use (default: default,batch; *: all)")
        ->delimiter(',');
    sub->add_flag("--admin", wanted.admin,
                  "May read the topology, reload, and see all caches (not its tokens)");
    sub->callback([o, &exit_code] { exit_code = create(*o); });
}

}  // namespace

void add_key_command(CLI::App& app, int& exit_code) {
    auto o = std::make_shared<Options>();
    CLI::App* key = app.add_subcommand("key", "Create, list and revoke API keys");
    key->require_subcommand(1);
    key->footer(
        "Examples:\n"
        "  zerohop key create --workspace team-a --rpm 600 --tpm 200000\n"
        "  zerohop key create --workspace team-b --rpm 600 --burst 20   # even, not all at once\n"
        "  zerohop key create --workspace ops --admin --priority-max high --lanes '*'\n"
        "  zerohop key list --json\n"
        "  zerohop key revoke key_ab12cd34ef\n"
        "  zerohop key rotate-secret key_ab12cd34ef --overlap 86400\n"
        "  zerohop key rotate-secret            # the secret that signs 5-minute tokens");
    add_create(key, o, exit_code);

    CLI::App* list_keys = subcommand(key, o, "list", "Show the keys (never their secrets)");
    list_keys->add_flag("--all", o->all, "Revoked ones too");
    list_keys->add_option("--workspace,-w", o->workspace, "Only those of this workspace");
    list_keys->callback([o, &exit_code] { exit_code = list(*o); });

    CLI::App* revoke_one = subcommand(key, o, "revoke", "End a key and all its tokens");
    revoke_one->add_option("key", o->id, "Its id, as list shows it")->required();
    revoke_one->callback([o, &exit_code] { exit_code = revoke(*o); });

    CLI::App* rotate_one =
        subcommand(key, o, "rotate-secret", "New secret for a key, or for signing tokens");
    rotate_one->add_option("key", o->id, "Key id; without one, the token secret is rotated");
    rotate_one
        ->add_option("--overlap", o->overlap_s,
                     "Seconds that the old secret stays good (default: 0 for a key, which also "
                     "ends its tokens; 360 for the token secret)")
        ->check(CLI::Range(std::int64_t{0}, std::int64_t{31'536'000}));
    rotate_one->callback([o, &exit_code] { exit_code = rotate(*o); });
}

}  // namespace zerohop::cli
