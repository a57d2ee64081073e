// Paging and filtering of the model list.
#include "api/models.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "api/testing/fakes.h"

namespace zerohop::api {
namespace {

using nlohmann::json;

std::string page_of(const std::string& text) {
    const json list = json::parse(text);
    std::string out;
    for (const auto& model : list["data"]) out += model["id"].get<std::string>() + " ";
    out += list["has_more"].get<bool>() ? "more " : "end ";
    out += list["first_id"].is_null() ? "null" : list["first_id"].get<std::string>();
    out += list["last_id"].is_null() ? " null" : " " + list["last_id"].get<std::string>();
    return out;
}

TEST(Models, Pages) {
    std::vector<std::unique_ptr<FakeEngine>> engines;
    std::vector<ServedModel> models;
    for (int i = 0; i < 5; ++i) {
        const std::string id(1, static_cast<char>('a' + i));
        engines.push_back(std::make_unique<FakeEngine>(id, i * kNsPerSec));
        models.push_back({.id = id, .engine = engines.back().get()});
    }
    const Catalog catalog(models);  // e d c b a
    const std::pair<const char*, const char*> rows[] = {
        {"", "e d more e d"},
        {"limit=1", "e more e e"},
        {"limit=5", "e d c b a end e a"},
        {"limit=1000", "e d c b a end e a"},
        {"after_id=d", "c b more c b"},
        {"after_id=b", "a end a a"},
        {"after_id=a", "end null null"},
        {"before_id=c", "e d end e d"},
        {"before_id=a&limit=1", "b more b b"},
        {"before_id=a", "c b more c b"},
        {"before_id=e", "end null null"},
        {"lifecycle%5B%5D=active", "e d more e d"},
        {"lifecycle%5B%5D=retired&lifecycle%5B%5D=active", "e d more e d"},
        {"lifecycle[]=retired", "end null null"},
        {"unknown=1", "e d more e d"},
    };
    for (const auto& [query, expected] : rows) {
        const auto body = list_models(catalog, query, 2, Admission());
        ASSERT_TRUE(body) << query;
        EXPECT_EQ(page_of(*body), expected) << query;
    }
    const std::pair<const char*, const char*> bad[] = {
        {"limit=0", "limit: must be an integer from 1 to 1000"},
        {"limit=1001", "limit: must be an integer from 1 to 1000"},
        {"limit=x", "limit: must be an integer from 1 to 1000"},
        {"limit=", "limit: must be an integer from 1 to 1000"},
        {"after_id=zz", "after_id: no model has the id 'zz'"},
        {"before_id=zz", "before_id: no model has the id 'zz'"},
        {"after_id=a&before_id=b", "before_id: give either after_id or before_id, not both"},
        {"lifecycle%5B%5D=old",
         "lifecycle: must be 'active', 'deprecated' or 'retired'; got 'old'"},
        {"a=%zz", "query: malformed percent-encoding or too many parameters"},
    };
    for (const auto& [query, message] : bad) {
        const auto body = list_models(catalog, query, 2, Admission());
        ASSERT_FALSE(body) << query;
        EXPECT_EQ(body.error().detail, message);
    }
}

struct Narrow final : Admission {
    bool may_use(std::string_view id) const override { return id == "a" || id == "c"; }
};

TEST(Models, ShowsOnlyWhatMayBeUsed) {
    std::vector<std::unique_ptr<FakeEngine>> engines;
    std::vector<ServedModel> models;
    for (int i = 0; i < 4; ++i) {
        const std::string id(1, static_cast<char>('a' + i));
        engines.push_back(std::make_unique<FakeEngine>(id, i * kNsPerSec));
        models.push_back({.id = id, .engine = engines.back().get(), .aliases = {"alias-" + id}});
    }
    const Catalog catalog(models);
    EXPECT_EQ(page_of(*list_models(catalog, "", 20, Narrow())), "c a end c a");
    EXPECT_EQ(page_of(*list_models(catalog, "limit=1", 20, Narrow())), "c more c c");
    EXPECT_EQ(page_of(*list_models(catalog, "after_id=c", 20, Narrow())), "a end a a");
    EXPECT_FALSE(list_models(catalog, "after_id=b", 20, Narrow()));
    EXPECT_TRUE(get_model(catalog, "a", Narrow()));
    EXPECT_TRUE(get_model(catalog, "alias-c", Narrow()));
    for (const char* hidden : {"b", "alias-b", "nothing"}) {
        const auto refused = get_model(catalog, hidden, Narrow());
        ASSERT_FALSE(refused) << hidden;
        EXPECT_EQ(refused.error().code, Code::kNotFound);
        EXPECT_TRUE(refused.error().detail.ends_with("served: 'c', 'a'")) << refused.error().detail;
    }
}

}  // namespace
}  // namespace zerohop::api
