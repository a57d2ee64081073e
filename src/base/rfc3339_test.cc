#include "base/rfc3339.h"

#include <gtest/gtest.h>

namespace zerohop {
namespace {

TEST(Rfc3339, FormatsKnownInstants) {
    EXPECT_EQ(format_rfc3339(0), "1970-01-01T00:00:00Z");
    EXPECT_EQ(format_rfc3339(951'782'400 * kNsPerSec), "2000-02-29T00:00:00Z");
    EXPECT_EQ(format_rfc3339(1'767'323'045 * kNsPerSec + 999), "2026-01-02T03:04:05Z");
}

TEST(Rfc3339, ParseIsTheInverseOfFormat) {
    for (WallNs s = 0; s < 9'000'000'000; s += 7'654'321)
        ASSERT_EQ(parse_rfc3339(format_rfc3339(s * kNsPerSec)), s * kNsPerSec) << s;
}

TEST(Rfc3339, ReadsOffsetsAndFractions) {
    const WallNs noon = *parse_rfc3339("2022-01-01T12:00:00Z");
    EXPECT_EQ(parse_rfc3339("2022-01-01T12:00:00+00:00"), noon);
    EXPECT_EQ(parse_rfc3339("2022-01-01T14:00:00+02:00"), noon);
    EXPECT_EQ(parse_rfc3339("2022-01-01T06:30:00-05:30"), noon);
    EXPECT_EQ(parse_rfc3339("2022-01-01T12:00:00.123456Z"), noon);
}

TEST(Rfc3339, RefusesWhatIsNotADate) {
    for (const char* bad :
         {"", "2022-01-01", "2022-01-01T00:00:00", "2022-13-01T00:00:00Z", "2021-02-29T00:00:00Z",
          "2022-01-01T24:00:00Z", "2022-01-01T00:60:00Z", "2022-01-01T00:00:00.Z",
          "2022-01-01T00:00:00+0100", "2022-01-01T00:00:00Zx", "1969-12-31T23:59:59Z",
          "9999-01-01T00:00:00Z", "2O22-01-01T00:00:00Z"})
        EXPECT_FALSE(parse_rfc3339(bad)) << bad;
}

}  // namespace
}  // namespace zerohop
