#include "api/catalog.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "api/testing/fakes.h"

namespace zerohop::api {
namespace {

TEST(Catalog, AliasesAreReplacedWhileOthersLookUp) {
    FakeEngine old_one("old", 1), new_one("new", 2);
    Catalog catalog({{.id = "old", .engine = &old_one, .aliases = {"a", "b"}},
                     {.id = "new", .engine = &new_one}});
    const ServedModel* model = catalog.find("old");
    EXPECT_EQ(catalog.find("a"), model);
    std::atomic<bool> done{false};
    std::thread reader([&] {
        while (!done) EXPECT_EQ(catalog.find("b"), model);
    });
    for (int i = 0; i < 100; ++i) catalog.set_names({{"old", {"b", "c"}}, {"new", {"a"}}}, "");
    done = true;
    reader.join();
    EXPECT_EQ(catalog.find("a")->id, "new");
    EXPECT_EQ(catalog.find("c"), model);
    catalog.set_names({{"new", {"cl*"}}}, "old");
    EXPECT_EQ(catalog.find("Claude")->id, "new");
    EXPECT_EQ(catalog.find("NEW")->id, "new");
    EXPECT_EQ(catalog.find("gpt"), model);
    catalog.set_names({}, "");
    EXPECT_EQ(catalog.find("a"), nullptr);
    EXPECT_EQ(catalog.find("old"), model);
}

}  // namespace
}  // namespace zerohop::api
