#include "app/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>

#include <algorithm>
#include <set>
#include <type_traits>

#include "auth/key_record.h"
#include "base/edit_distance.h"
#include "base/file.h"

namespace zerohop::app {
namespace {

template <class Owner>
std::string nearest(std::string_view unknown, const std::vector<Field<Owner>>& fields,
                    std::string_view prefix) {
    // Compares the last part of the name as well: `port` under the wrong section still finds its
    // home.
    std::string_view best;
    std::size_t best_distance = 4;
    for (const auto& field : fields) {
        const std::string full = fmt::format("{}{}", prefix, field.name);
        const std::string_view leaf = field.name.substr(field.name.rfind('.') + 1);
        const std::string_view unknown_leaf = unknown.substr(unknown.rfind('.') + 1);
        const std::size_t d =
            std::min(edit_distance(unknown, full), edit_distance(unknown_leaf, leaf) + 1);
        if (d < best_distance) {
            best_distance = d;
            best = field.name;
        }
    }
    if (best.empty()) return "; `zerohop config defaults` lists the known keys";
    return fmt::format("; did you mean {}{}?", prefix, best);
}

// Lanes differ by more than case.
struct LessIgnoringCase {
    bool operator()(std::string_view a, std::string_view b) const {
        return std::ranges::lexicographical_compare(a, b, {}, lower, lower);
    }
    static char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; }
};

class Reader {
  public:
    explicit Reader(std::string_view source) : source_(source) {}

    std::unexpected<Error> error(const toml::node& at, std::string text) const {
        return fail(Code::kInvalidRequest, "config",
                    fmt::format("{}:{}: {}", source_, at.source().begin.line, text));
    }

    template <class Owner>
    Status assign(const toml::node& node, const Field<Owner>& field, Owner& owner,
                  std::string_view full_name) const {
        const FieldRef ref = field.ref(owner);
        if (bool* const* flag = std::get_if<bool*>(&ref)) {
            if (!node.is_boolean())
                return error(node, fmt::format("{} must be true or false", full_name));
            **flag = node.as_boolean()->get();
        } else if (std::int64_t* const* number = std::get_if<std::int64_t*>(&ref)) {
            if (!node.is_integer())
                return error(node, fmt::format("{} must be a whole number{}", full_name,
                                               unit_words(field.unit)));
            const std::int64_t value = node.as_integer()->get();
            if (value < field.min || value > field.max)
                return error(node, fmt::format("{} is {}, but must lie between {} and {}",
                                               full_name, value, field.min, field.max));
            **number = value;
        } else if (double* const* real = std::get_if<double*>(&ref)) {
            if (!node.is_number())
                return error(node, fmt::format("{} must be a number", full_name));
            const double value = *node.value<double>();
            if (!(value >= static_cast<double>(field.min) &&
                  value <= static_cast<double>(field.max)))
                return error(node, fmt::format("{} is {}, but must lie between {} and {}",
                                               full_name, value, field.min, field.max));
            **real = value;
        } else if (std::string* const* text = std::get_if<std::string*>(&ref)) {
            if (!node.is_string())
                return error(node, fmt::format("{} must be a string", full_name));
            **text = node.as_string()->get();
            if (!field.choices.empty() && !is_choice(**text, field.choices))
                return error(node, fmt::format("{} is \"{}\", but must be one of {}", full_name,
                                               **text, field.choices));
        } else {
            auto* list = std::get<std::vector<std::string>*>(ref);
            const toml::array* array = node.as_array();
            if (array == nullptr)
                return error(node,
                             fmt::format("{} must be a list of strings, e.g. [\"…\"]", full_name));
            list->clear();
            for (const toml::node& item : *array) {
                if (!item.is_string())
                    return error(item, fmt::format("{} must hold strings only", full_name));
                list->push_back(item.as_string()->get());
            }
        }
        return {};
    }

    // Walks `table`; names below it are prefix + key. Sections are the prefixes that fields have.
    template <class Owner>
    Status table(const toml::table& table, const std::vector<Field<Owner>>& fields, Owner& owner,
                 const std::string& prefix, std::string_view shown_prefix) const {
        for (const auto& [key, node] : table) {
            const std::string name = prefix + std::string(key.str());
            if (shown_prefix.empty() && is_list(name)) continue;  // read by list()
            const auto field = std::find_if(fields.begin(), fields.end(),
                                            [&](const auto& f) { return f.name == name; });
            const std::string full = fmt::format("{}{}", shown_prefix, name);
            if (field != fields.end()) {
                if (Status s = assign(node, *field, owner, full); !s) return s;
                continue;
            }
            const bool section = std::any_of(fields.begin(), fields.end(), [&](const auto& f) {
                return f.name.starts_with(name + ".");
            });
            if (section && node.is_table()) {
                if (Status s =
                        this->table(*node.as_table(), fields, owner, name + ".", shown_prefix);
                    !s)
                    return s;
                continue;
            }
            return error(
                node, fmt::format("unknown key {}{}", full, nearest(name, fields, shown_prefix)));
        }
        return {};
    }

    // Names that keys and headers use: well formed, and of one table.
    template <class Names>
    Status check_name(const toml::node& at, std::string_view table, const std::string& name,
                      Names& before) const {
        if (!auth::valid_name(name))
            return error(at, fmt::format("{}.name is \"{}\", but must be 1 to 64 of [A-Za-z0-9._-]",
                                         table, name));
        if (!before.insert(name).second)
            return error(at, fmt::format("{0}.name is \"{1}\", but there is a [[{0}]] of that "
                                         "name already: make them one, or name them apart",
                                         table, name));
        return {};
    }

    // [[name]] tables; `needed` is the key that each must set. What a table does not set is as in
    // that of `presets` whose needed key is the same.
    template <class Owner, class Value>
    Status list(const toml::table& root, std::string_view name,
                const std::vector<Field<Owner>>& fields, Value Owner::* needed,
                std::string_view needed_name, std::vector<Owner>& out,
                const std::vector<Owner>& presets = {}) const {
        const toml::node* node = root.at_path(name).node();
        if (node == nullptr) return {};
        const toml::array* array = node->as_array();
        if (array == nullptr || !array->is_homogeneous(toml::node_type::table))
            return error(
                *node,
                fmt::format("{0}s are written as [[{0}]] tables, each with {1} = {2}", name,
                            needed_name, std::is_same_v<Value, std::string> ? "\"…\"" : "[\"…\"]"));
        using Less =
            std::conditional_t<std::is_same_v<Owner, LaneConfig>, LessIgnoringCase, std::less<>>;
        std::set<std::string, Less> names;
        for (const toml::node& item : *array) {
            Owner owner;
            const std::string prefix = fmt::format("{}.", name);
            if (Status s = table(*item.as_table(), fields, owner, "", prefix); !s) return s;
            if (const auto preset = std::ranges::find(presets, owner.*needed, needed);
                preset != presets.end()) {
                owner = *preset;
                if (Status s = table(*item.as_table(), fields, owner, "", prefix); !s) return s;
            }
            if ((owner.*needed).empty())
                return error(item, fmt::format("{}.{} is missing{}", name, needed_name,
                                               name == "model" ? ": name the GGUF file" : ""));
            if constexpr (requires { owner.name; })
                if (Status s = check_name(item, name, owner.name, names); !s) return s;
            out.push_back(std::move(owner));
        }
        return {};
    }

  private:
    static bool is_list(std::string_view name) {
        return name == "model" || name == "lane" || name == "workspace" || name == "cache.warmup" ||
               name == "cache.share";
    }
    static std::string unit_words(std::string_view unit) {
        return unit.empty() ? std::string() : fmt::format(" of {}", unit);
    }
    static bool is_choice(std::string_view value, std::string_view choices) {
        while (!choices.empty()) {
            const std::size_t bar = choices.find('|');
            if (choices.substr(0, bar) == value) return true;
            if (bar == std::string_view::npos) break;
            choices.remove_prefix(bar + 1);
        }
        return false;
    }

    std::string_view source_;
};

std::string value_as_toml(const FieldRef& ref) {
    if (bool* const* flag = std::get_if<bool*>(&ref)) return **flag ? "true" : "false";
    if (std::int64_t* const* number = std::get_if<std::int64_t*>(&ref))
        return fmt::format("{}", **number);
    if (double* const* real = std::get_if<double*>(&ref)) return fmt::format("{:#}", **real);
    if (std::string* const* text = std::get_if<std::string*>(&ref))
        return fmt::format("\"{}\"", **text);
    std::vector<std::string> quoted;
    for (const std::string& item : *std::get<std::vector<std::string>*>(ref))
        quoted.push_back(fmt::format("\"{}\"", item));
    return fmt::format("[{}]", fmt::join(quoted, ", "));
}

template <class Owner>
void describe(std::string& out, const Field<Owner>& field, Owner& owner, std::string_view leaf) {
    out += fmt::format("# {}", field.doc);
    if (!field.unit.empty()) out += fmt::format(" Unit: {}.", field.unit);
    if (!field.choices.empty()) out += fmt::format(" One of: {}.", field.choices);
    if (field.reloads) out += " `zerohop config reload` takes it up.";
    out += fmt::format("\n{} = {}\n", leaf, value_as_toml(field.ref(owner)));
}

// A commented [[name]] table.
template <class Owner>
void describe_list(std::string& out, const std::vector<Field<Owner>>& fields,
                   std::string_view intro, std::string_view name) {
    out += fmt::format("\n# {}\n# [[{}]]\n", intro, name);
    Owner owner;
    std::string lines;
    for (const Field<Owner>& field : fields) describe(lines, field, owner, field.name);
    for (std::size_t at = 0; at < lines.size();) {
        const std::size_t end = lines.find('\n', at);
        const std::string_view line = std::string_view(lines).substr(at, end - at);
        out += fmt::format("{}{}\n", line.starts_with('#') ? "#" : "# ", line);
        at = end + 1;
    }
}

}  // namespace

Result<Config> parse_config(std::string_view toml_text, std::string_view source_name) {
    toml::table root;
    try {
        root = toml::parse(toml_text, source_name);
    } catch (const toml::parse_error& e) {
        return fail(Code::kInvalidRequest, "config",
                    fmt::format("{}:{}: {}", source_name, e.source().begin.line, e.description()));
    }
    Config config;
    const Reader reader(source_name);
    if (Status s = reader.table(root, config_fields(), config, "", ""); !s)
        return std::unexpected(s.error());
    Status s = reader.list(root, "lane", lane_fields(), &LaneConfig::name, "name", config.lanes,
                           built_in_lanes());
    if (s)
        s = reader.list(root, "cache.warmup", warm_up_fields(), &WarmUpConfig::model, "model",
                        config.cache.warm_ups);
    if (s)
        s = reader.list(root, "cache.share", share_fields(), &ShareConfig::workspaces, "workspaces",
                        config.cache.shares);
    if (s)
        s = reader.list(root, "workspace", workspace_fields(), &WorkspaceConfig::name, "name",
                        config.workspaces);
    if (s)
        s = reader.list(root, "model", model_fields(), &ModelConfig::path, "path", config.models);
    if (!s) return std::unexpected(s.error());
    return config;
}

Result<Config> read_config(const std::string& path) {
    const Result<std::string> text = read_file(path, "config");
    if (!text) return std::unexpected(text.error());
    return parse_config(*text, path);
}

std::string documented_defaults() {
    std::string out =
        "# zerohop's configuration with every key at its default. None has to be set.\n"
        "# Use: zerohop serve --config zerohop.toml\n";
    Config config;
    std::string_view section;
    for (const Field<Config>& field : config_fields()) {
        const std::size_t dot = field.name.find('.');
        if (field.name.substr(0, dot) != section) {
            section = field.name.substr(0, dot);
            out += fmt::format("\n[{}]\n", section);
        }
        describe(out, field, config, field.name.substr(dot + 1));
    }
    describe_list(out, lane_fields(),
                  "One table per lane, \"default\" among them: the lanes are those listed here. "
                  "Without any there are default, low-latency (reserved_sequences = 1, ttft_p99_ms "
                  "= 150, beside_step_tokens = 64) and batch; a table of such a name starts from "
                  "these values.",
                  "lane");
    describe_list(out, warm_up_fields(),
                  "One table per prompt that is computed before the server is ready: model and one "
                  "of system, prompt and file.",
                  "cache.warmup");
    describe_list(out, share_fields(),
                  "One table per group of workspaces whose caches are one: each finds, sees and "
                  "forgets what the others' prompts and outputs left, and can tell by counters and "
                  "time that it was there. Without a table nothing is shared.",
                  "cache.share");
    describe_list(out, workspace_fields(),
                  "One table per workspace whose limits are not those of [quota].", "workspace");
    describe_list(out, model_fields(),
                  "One table per model; --model PATH=ID on the command line adds to them.",
                  "model");
    return out;
}

}  // namespace zerohop::app
