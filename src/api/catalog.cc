#include "api/catalog.h"

#include <algorithm>

#include "api/json_text.h"
#include "base/check.h"

namespace zerohop::api {

Catalog::Catalog(std::vector<ServedModel> models) : models_(std::move(models)) {
    for (const ServedModel& model : models_) ZH_CHECK(model.engine != nullptr);
    std::ranges::sort(models_, [](const ServedModel& a, const ServedModel& b) {
        const WallNs x = a.engine->info().created_ns;
        const WallNs y = b.engine->info().created_ns;
        return x != y ? x > y : a.id < b.id;
    });
    for (std::size_t i = 0; i < models_.size(); ++i) by_name_.emplace(models_[i].id, i);
    for (std::size_t i = 0; i < models_.size(); ++i)
        for (const std::string& alias : models_[i].aliases) by_name_.emplace(alias, i);
}

const ServedModel* Catalog::find(std::string_view name) const {
    const auto it = by_name_.find(name);
    return it == by_name_.end() ? nullptr : &models_[it->second];
}

std::optional<std::size_t> Catalog::position(std::string_view id) const {
    const auto it = by_name_.find(id);
    if (it == by_name_.end() || models_[it->second].id != id) return std::nullopt;
    return it->second;
}

std::string Catalog::names() const {
    constexpr std::size_t kShown = 8;
    std::string out;
    for (std::size_t i = 0; i < models_.size() && i < kShown; ++i) {
        if (i > 0) out += ", ";
        out += in_quotes(models_[i].id);
    }
    if (models_.size() > kShown) out += ", …";
    return out;
}

std::int32_t max_output_limit(const ServedModel& model) {
    if (model.max_output_tokens > 0) return model.max_output_tokens;
    return std::max(model.engine->info().context_tokens, Catalog::kDefaultMaxOutput);
}

}  // namespace zerohop::api
