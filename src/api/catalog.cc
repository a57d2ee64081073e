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

std::string Catalog::names(const std::function<bool(std::string_view)>& shown) const {
    constexpr std::size_t kShown = 8;
    std::string out;
    std::size_t count = 0;
    for (const ServedModel& model : models_) {
        if (shown && !shown(model.id)) continue;
        if (++count > kShown) return out + ", …";
        out += (out.empty() ? "" : ", ") + in_quotes(model.id);
    }
    return out;
}

std::int32_t max_output_limit(const ServedModel& model) {
    if (model.max_output_tokens > 0) return model.max_output_tokens;
    return std::max(model.engine->info().context_tokens, Catalog::kDefaultMaxOutput);
}

}  // namespace zerohop::api
