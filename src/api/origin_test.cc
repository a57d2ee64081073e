// Names of this machine, whole origins against authorities.
#include "api/origin.h"

#include <gtest/gtest.h>

#include <string>

namespace zerohop::api {
namespace {

TEST(Origin, LoopbackNamesAndNothingThatLooksLikeThem) {
    for (const char* good :
         {"localhost", "LocalHost:8080", "127.0.0.1", "127.0.0.1:1", "127.9.8.7:80", "[::1]",
          "[::1]:8080", "[0:0:0:0:0:0:0:1]:1", "[::ffff:127.0.0.1]:80"})
        EXPECT_TRUE(is_loopback_host(host_of(good))) << good;
    for (const char* bad :
         {"", ":80", "evil.example", "localhost.evil.example:8080", "127.0.0.1.evil.example",
          "evil.example:127.0.0.1", "0.0.0.0:8080", "128.0.0.1", "127.1", "2130706433", "[::]",
          "[::2]:80", "::1", "[::1", "[::ffff:10.0.0.1]", "xlocalhost", "user@localhost"})
        EXPECT_FALSE(is_loopback_host(host_of(bad))) << bad;
    EXPECT_FALSE(is_loopback_host(std::string(100'000, '1')));
}

TEST(Origin, SameWhateverPortIsImplied) {
    EXPECT_TRUE(is_same_origin("http://a.example", "A.example:80"));
    EXPECT_TRUE(is_same_origin("https://a.example:443", "a.example"));
    EXPECT_TRUE(is_same_origin("https://a.example", "a.example"));
    EXPECT_TRUE(is_same_origin("http://[::1]:8080", "[::1]:8080"));
    for (const char* other : {"null", "", "http://", "http://b.example", "http://a.example:81",
                              "http://a.example:443", "a.example", "http://a.example.evil"})
        EXPECT_FALSE(is_same_origin(other, "a.example")) << other;
}

}  // namespace
}  // namespace zerohop::api
