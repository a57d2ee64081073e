// Catalog: the models this process serves, by public id and alias, in the order lists show them.
//
// Immutable after construction, so any thread may read it. Does not own the engines: they outlive
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "request/engine_port.h"

namespace zerohop::api {

struct ServedModel {
    std::string id;  // public id; what answers name
    EnginePort* engine = nullptr;
    std::vector<std::string> aliases;
    // Largest max_tokens a request may ask for. 0: the context size, but at least
    // kDefaultMaxOutput, because agents send 32000 whatever the model; the context then ends the
    // output.
    std::int32_t max_output_tokens = 0;
};

class Catalog {
  public:
    static constexpr std::int32_t kDefaultMaxOutput = 131072;

    // Newest first, then by id (wire-contract §1.4). Of two equal names the first model keeps it.
    explicit Catalog(std::vector<ServedModel> models);

    const std::vector<ServedModel>& models() const { return models_; }

    // By id or alias; nullptr when nothing is served under that name.
    const ServedModel* find(std::string_view name) const;

    // "'a', 'b'" for messages; the first eight of those that are to be shown (empty: all).
    std::string names(const std::function<bool(std::string_view id)>& shown = {}) const;

  private:
    struct Hash {
        using is_transparent = void;
        std::size_t operator()(std::string_view s) const {
            return std::hash<std::string_view>{}(s);
        }
    };
    std::vector<ServedModel> models_;
    std::unordered_map<std::string, std::size_t, Hash, std::equal_to<>> by_name_;
};

// The cap a request's max_tokens is held to.
std::int32_t max_output_limit(const ServedModel& model);

}  // namespace zerohop::api
