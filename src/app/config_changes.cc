#include "app/config_changes.h"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>
#include <variant>

#include "app/topology_config.h"

namespace zerohop::app {
namespace {

bool equal(const FieldRef& a, const FieldRef& b) {
    return std::visit(
        [&b](const auto* value) {
            using Value = std::remove_const_t<std::remove_pointer_t<decltype(value)>>;
            return *value == *std::get<Value*>(b);
        },
        a);
}

// The fields that differ and are not taken up. `whose` follows their name.
template <class Owner>
void compare(const std::vector<Field<Owner>>& fields, Owner& running, Owner& fresh,
             std::string_view prefix, const std::string& whose, std::vector<std::string>& out) {
    for (const Field<Owner>& field : fields)
        if (!field.reloads && !equal(field.ref(running), field.ref(fresh)))
            out.push_back(fmt::format("{}{}{}", prefix, field.name, whose));
}

// Tables without a name of their own: named as a whole.
template <class Owner>
void compare_whole(const std::vector<Field<Owner>>& fields, std::vector<Owner>& running,
                   std::vector<Owner>& fresh, std::string_view name,
                   std::vector<std::string>& out) {
    std::vector<std::string> differ;
    for (std::size_t i = 0; i < std::min(running.size(), fresh.size()); ++i)
        compare(fields, running[i], fresh[i], "", "", differ);
    if (running.size() != fresh.size() || !differ.empty()) out.emplace_back(name);
}

template <class Owner>
void compare_named(const std::vector<Field<Owner>>& fields, std::vector<Owner>& running,
                   std::vector<Owner>& fresh, std::string Owner::* name, std::string_view table,
                   std::vector<std::string>& out) {
    if (!std::ranges::equal(running, fresh, {}, name, name)) {
        out.push_back(fmt::format("the set or order of [[{}]]", table));
        return;
    }
    for (std::size_t i = 0; i < running.size(); ++i)
        compare(fields, running[i], fresh[i], fmt::format("{}.", table),
                fmt::format(" of \"{}\"", running[i].*name), out);
}

// A file without [[lane]] has those out of the box.
void fill_lanes(Config& config) {
    if (config.lanes.empty()) config.lanes = built_in_lanes();
}

}  // namespace

std::vector<std::string> needs_restart(Config running, Config fresh) {
    std::vector<std::string> out;
    compare(config_fields(), running, fresh, "", "", out);
    fill_lanes(running);
    fill_lanes(fresh);
    compare_named(lane_fields(), running.lanes, fresh.lanes, &LaneConfig::name, "lane", out);
    compare_whole(warm_up_fields(), running.cache.warm_ups, fresh.cache.warm_ups, "cache.warmup",
                  out);
    compare_whole(share_fields(), running.cache.shares, fresh.cache.shares, "cache.share", out);
    compare_named(model_fields(), running.models, fresh.models, &ModelConfig::id, "model", out);
    return out;
}

}  // namespace zerohop::app
