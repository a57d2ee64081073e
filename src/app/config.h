// Config: everything an operator can set, with its default. Read from TOML, command-line flags on
// top.
//
// One table (config_fields.cc) names every key with type, unit, range and meaning; reading,
// checking, "did you mean" and `zerohop config defaults` all come from it, so they cannot disagree.
// Threads: built on the main thread, then immutable. Errors: kInvalidRequest with file, line and
// cure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.h"
#include "request/principal.h"

namespace zerohop::app {

struct ModelConfig {
    std::string id;    // public id; default: the file's name without .gguf
    std::string path;  // GGUF file, or "null:…" for the scripted engine
    std::vector<std::string> aliases;
    bool fallback = false;            // "default" in the file: see api.unknown_model
    std::int64_t context_tokens = 0;  // 0: the model's own, bounded by kv_tokens
    std::int64_t kv_tokens = 0;       // 0: chosen from free memory
    std::int64_t max_sequences = 8;
    std::int64_t max_output_tokens = 0;  // 0: the context
    std::int64_t batch_tokens = 512;
    std::int64_t step_ms = 120;
    bool side_prefill = true;
    std::int64_t threads = 0;  // 0: measured
    std::string flash_attention = "auto";
    std::string kv_type = "auto";
    std::string kv_layout = "auto";
    std::int64_t gpu_layers = 999;
    std::int64_t queue_requests = 256;
    std::int64_t queue_tokens = 1'000'000;
    double temperature = -1;  // < 0: the model file's own, else 1
    double top_p = -1;
    std::int64_t top_k = -1;
    std::int64_t seed = -1;  // < 0: random
};

// A scheduling class that x-anthropic-cuda-stream names.
struct LaneConfig {
    std::string name;
    std::int64_t reserved_sequences = 0;
    std::int64_t ttft_p99_ms = 0;         // 0: none
    std::int64_t beside_step_tokens = 0;  // 0: no cap
};

// Limits of one workspace, instead of quota.workspace_*.
struct WorkspaceConfig {
    std::string name;
    std::int64_t requests = 0;
    std::int64_t input_tokens = 0;
    std::int64_t output_tokens = 0;
    std::int64_t requests_burst = 0;  // 0: as the limit
    std::int64_t input_tokens_burst = 0;
    std::int64_t output_tokens_burst = 0;
};

// A prompt whose KV is computed before the server is ready.
struct WarmUpConfig {
    std::string model;   // id or alias
    std::string system;  // one of system, prompt and file
    std::string prompt;  // tagged text
    std::string file;    // the same, read at start
    std::string ttl = "1h";
    std::string workspace = "default";
};

// Workspaces whose caches are one.
struct ShareConfig {
    std::vector<std::string> workspaces;
};

struct Config {
    struct Server {
        std::vector<std::string> listen = {"127.0.0.1:8080"};
        std::vector<std::string> listen_tls = {"127.0.0.1:8443"};
        std::int64_t io_threads = 0;
        std::int64_t drain_s = 30;
        std::string socket_mode = "0600";
        bool reuse_port = false;
        std::vector<std::string> names;
        bool readyz_details = true;
        std::string access_log;
    } server;
    struct Tls {
        std::string certificate;
        std::string key;
    } tls;
    struct Limits {
        std::int64_t connections = 10'000;
        std::int64_t connections_per_address = 4'096;
        std::int64_t streams_per_connection = 256;
        std::int64_t head_bytes = 32'768;
        std::int64_t head_fields = 128;
        std::int64_t body_bytes = 32 * 1024 * 1024;
        std::int64_t handshake_s = 10;
        std::int64_t head_s = 15;
        std::int64_t idle_s = 400;
        std::int64_t body_idle_s = 30;
        std::int64_t body_s = 120;
        std::int64_t write_stall_s = 60;
        std::int64_t min_bytes_per_s = 256;
        std::int64_t connection_buffer_bytes = 64LL * 1024 * 1024;
        std::int64_t total_buffer_bytes = 1024LL * 1024 * 1024;
    } limits;
    struct Api {
        std::string sampling_params = "accept";
        std::string unknown_model = "refuse";
        std::string default_version;
        std::int64_t ping_s = 10;
        std::int64_t header_delay_s = 10;
        std::int64_t keepalive_whitespace_s = 240;
        std::int64_t request_timeout_s = 0;
        std::vector<std::string> cors_origins;
    } api;
    struct Auth {
        std::vector<std::string> keys;
        std::string key_file;
    } auth;
    struct Quota {
        std::int64_t workspace_requests = 0;
        std::int64_t workspace_input_tokens = 0;
        std::int64_t workspace_output_tokens = 0;
        std::int64_t workspace_requests_burst = 0;
        std::int64_t workspace_input_tokens_burst = 0;
        std::int64_t workspace_output_tokens_burst = 0;
        bool count_cache_reads = false;
    } quota;
    struct Topology {
        std::string region = "local";
        std::vector<std::string> regions;
    } topology;
    struct Log {
        std::string format = "auto";
        std::string level = "info";
    } log;
    struct Engine {
        std::string cache_dir;
        std::int64_t tokenizer_threads = 2;
        bool own_attention = true;
        std::int64_t slow_reader_s = 10;
        std::int64_t stalled_reader_s = 60;
    } engine;
    struct Cache {
        bool prefix = true;
        bool drafts = true;
        std::string isolate = "workspace";
        std::int64_t host_mb = -1;
        std::int64_t draft_mb = 64;
        double pin_share = 0.25;
        double pin_total_share = 0.75;
        std::vector<std::string> drop_lines = {"x-anthropic-billing-header:"};
        std::vector<WarmUpConfig> warm_ups;  // [[cache.warmup]]
        std::vector<ShareConfig> shares;     // [[cache.share]]
    } cache;
    std::vector<LaneConfig> lanes;  // empty: default, low-latency, batch
    std::vector<WorkspaceConfig> workspaces;
    std::vector<ModelConfig> models;
};

// A place to put a value: what the TOML must hold is its type.
using FieldRef =
    std::variant<bool*, std::int64_t*, double*, std::string*, std::vector<std::string>*>;

template <class Owner>
struct Field {
    std::string_view name;  // "server.listen", or "context_tokens" for a model
    std::string_view unit;  // "tokens", "s", … or ""
    std::string_view doc;   // one sentence
    std::int64_t min = 0;   // numbers only
    std::int64_t max = INT64_MAX;
    std::string_view choices = {};  // "a|b|c" for strings, empty: any
    FieldRef (*ref)(Owner&) = nullptr;
    bool reloads = false;  // a running server takes it up (config_changes.h)
};

const std::vector<Field<Config>>& config_fields();
const std::vector<Field<ModelConfig>>& model_fields();
const std::vector<Field<LaneConfig>>& lane_fields();
const std::vector<Field<WarmUpConfig>>& warm_up_fields();
const std::vector<Field<ShareConfig>>& share_fields();
const std::vector<Field<WorkspaceConfig>>& workspace_fields();

// Reads a TOML file over the defaults. All errors name the file, the line and what to write
// instead.
Result<Config> read_config(const std::string& path);
Result<Config> parse_config(std::string_view toml, std::string_view source_name);

// The lanes of a configuration that lists none; a [[lane]] of such a name starts from its values.
std::vector<LaneConfig> built_in_lanes();

// "path.gguf", "path.gguf=public-id", "null:tokens=5=id": as --model takes it.
ModelConfig model_from_flag(std::string_view flag);
// Fills default ids; rejects two models of one name, missing paths, half a TLS pair, a workspace in
// two groups, and lanes, regions and names that no topology can have.
Status finish_config(Config& config);

// Principal::cache_group of each workspace that shares: its group's first two names, "a+b". No
// workspace can be called so.
CacheGroups cache_groups(const Config& config);

// The whole configuration with comments, as a TOML file that means the defaults.
std::string documented_defaults();

}  // namespace zerohop::app
