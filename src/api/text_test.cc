// json_text, url, ids, error_table, gzip and body: the small pieces.
#include <gtest/gtest.h>

#include <set>

#include "api/body.h"
#include "api/error_table.h"
#include "api/gzip.h"
#include "api/ids.h"
#include "api/json_text.h"
#include "api/url.h"

namespace zerohop::api {
namespace {

std::string escaped(std::string_view text) {
    std::string out;
    append_json_string(out, text);
    return out;
}

TEST(JsonText, EscapesWhatJsonAndSseNeed) {
    EXPECT_EQ(escaped(""), R"("")");
    EXPECT_EQ(escaped("plain"), R"("plain")");
    EXPECT_EQ(escaped("a\"b\\c/"), R"("a\"b\\c/")");
    EXPECT_EQ(escaped("\n\r\t\b\f"), R"("\n\r\t\b\f")");
    EXPECT_EQ(escaped(std::string_view("\0\x1f\x7f", 3)), "\"\\u0000\\u001f\x7f\"");
    EXPECT_EQ(escaped("é漢😀"), "\"é漢😀\"");
    EXPECT_EQ(escaped("a\u0085b\u2028c\u2029d"), R"("a\u0085b\u2028c\u2029d")");
    EXPECT_EQ(escaped("\u20ac\u00a9…"), "\"\u20ac\u00a9…\"");  // same first bytes, kept
}

TEST(JsonText, QuotesAndCutsAtACodePoint) {
    EXPECT_EQ(in_quotes("x"), "'x'");
    EXPECT_EQ(in_quotes("a\xff\xc3z"),
              "'a?"
              "?z'");
    std::string long_text(63, 'a');
    long_text += "漢漢";
    EXPECT_EQ(in_quotes(long_text), "'" + std::string(63, 'a') + "…'");
}

TEST(Url, DecodesPercent) {
    EXPECT_EQ(percent_decode("org%2Fname%20x:y"), "org/name x:y");
    EXPECT_EQ(percent_decode("%e6%BC%a2"), "漢");
    for (const char* bad : {"%", "%2", "a%zz", "%2g", "%%20"})
        EXPECT_EQ(percent_decode(bad), std::nullopt) << bad;
}

TEST(Url, ParsesQueries) {
    const auto pairs =
        parse_query("limit=1&lifecycle%5B%5D=active&lifecycle%5B%5D=a+b&&beta&x=y=z");
    ASSERT_TRUE(pairs);
    const QueryPairs expected = {{"limit", "1"},
                                 {"lifecycle[]", "active"},
                                 {"lifecycle[]", "a b"},
                                 {"beta", ""},
                                 {"x", "y=z"}};
    EXPECT_EQ(*pairs, expected);
    EXPECT_EQ(parse_query("a=%"), std::nullopt);
    std::string many;
    for (int i = 0; i < 300; ++i) many += "a=1&";
    EXPECT_EQ(parse_query(many), std::nullopt);
}

TEST(Ids, AreUniqueAndWellFormed) {
    std::set<std::string> seen;
    for (int i = 0; i < 1000; ++i) {
        const std::string id = new_id("req_");
        EXPECT_EQ(id.size(), 28U);
        EXPECT_TRUE(id.starts_with("req_"));
        EXPECT_EQ(id.find_first_not_of(
                      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", 4),
                  std::string::npos);
        EXPECT_TRUE(seen.insert(id).second);
        const std::string trace = new_trace_id();
        EXPECT_EQ(trace.size(), 32U);
        EXPECT_EQ(trace.find_first_not_of("0123456789abcdef"), std::string::npos);
        EXPECT_TRUE(seen.insert(trace).second);
    }
}

TEST(ErrorTable, HasEveryCode) {
    const struct {
        Code code;
        int status;
        std::string_view type;
    } rows[] = {
        {Code::kInvalidRequest, 400, "invalid_request_error"},
        {Code::kAuthentication, 401, "authentication_error"},
        {Code::kPermission, 403, "permission_error"},
        {Code::kNotFound, 404, "not_found_error"},
        {Code::kMethodNotAllowed, 405, "invalid_request_error"},
        {Code::kRequestTimeout, 408, "timeout_error"},
        {Code::kConflict, 409, "conflict_error"},
        {Code::kTooLarge, 413, "request_too_large"},
        {Code::kUnsupportedMedia, 415, "invalid_request_error"},
        {Code::kMisdirected, 421, "invalid_request_error"},
        {Code::kRateLimited, 429, "rate_limit_error"},
        {Code::kHeadersTooLarge, 431, "invalid_request_error"},
        {Code::kInternal, 500, "api_error"},
        {Code::kUnavailable, 503, "api_error"},
        {Code::kTimeout, 504, "timeout_error"},
        {Code::kOverloaded, 529, "overloaded_error"},
        {Code::kCancelled, 499, "api_error"},
    };
    for (const auto& row : rows) {
        EXPECT_EQ(error_row(row.code).status, row.status);
        EXPECT_EQ(error_row(row.code).type, row.type);
    }
}

TEST(ErrorTable, RendersBodies) {
    const Error plain{.code = Code::kInvalidRequest, .detail = "a \"b\"", .origin = "api"};
    EXPECT_EQ(error_body(plain, "req_1"),
              R"({"type":"error","error":{"type":"invalid_request_error","message":"a \"b\""},)"
              R"("request_id":"req_1"})");
    Error coded = plain;
    coded.error_code = "some_code";
    EXPECT_EQ(error_body(coded, "req_1"),
              R"({"type":"error","error":{"type":"invalid_request_error","message":"a \"b\"",)"
              R"("details":{"error_code":"some_code"}},"request_id":"req_1"})");
    coded.error_code = "thread_unsupported_request";
    EXPECT_NE(
        error_body(coded, "r")
            .find(R"("details":{"error_code":"thread_unsupported_request","unsupported":[]})"),
        std::string::npos);
    EXPECT_EQ(error_event(plain, "req_1"),
              "event: error\ndata: " + error_body(plain, "req_1") + "\n\n");
}

TEST(ErrorTable, SaysWhatTheWireRefuses) {
    const auto type_of = [](int status) {
        const wire::WireAnswer answer = wire_refusal({status, "No \"."});
        EXPECT_EQ(answer.head.status, status);
        EXPECT_EQ(answer.head.content_length, static_cast<std::int64_t>(answer.body.size()));
        EXPECT_EQ(answer.head.headers.at(0).value, "application/json");
        const std::string& id = answer.head.headers.at(1).value;
        EXPECT_TRUE(id.starts_with("req_"));
        const std::string begin = R"({"type":"error","error":{"type":")";
        EXPECT_TRUE(answer.body.starts_with(begin)) << answer.body;
        EXPECT_TRUE(answer.body.ends_with(R"(","message":"No \"."},"request_id":")" + id + "\"}"))
            << answer.body;
        return answer.body.substr(begin.size(), answer.body.find('"', begin.size()) - begin.size());
    };
    EXPECT_EQ(type_of(400), "invalid_request_error");
    EXPECT_EQ(type_of(408), "invalid_request_error");
    EXPECT_EQ(type_of(413), "request_too_large");
    EXPECT_EQ(type_of(500), "api_error");
    EXPECT_EQ(type_of(501), "invalid_request_error");
}

std::string retry_headers(Code code, std::optional<std::int64_t> retry_ms) {
    std::vector<wire::Header> headers;
    append_error_headers(Error{.code = code, .origin = "api", .retry_after_ms = retry_ms}, headers);
    std::string out;
    for (const auto& h : headers) out += h.name + "=" + h.value + ";";
    return out;
}

TEST(ErrorTable, TellsWhenToRetry) {
    EXPECT_EQ(retry_headers(Code::kOverloaded, 1500),
              "retry-after=2;retry-after-ms=1500;x-should-retry=true;");
    EXPECT_EQ(retry_headers(Code::kRateLimited, 1),
              "retry-after=1;retry-after-ms=1;x-should-retry=true;");
    EXPECT_EQ(retry_headers(Code::kUnavailable, std::nullopt),
              "retry-after=1;retry-after-ms=1000;x-should-retry=true;");
    EXPECT_EQ(retry_headers(Code::kAuthentication, std::nullopt),
              "www-authenticate=Bearer;retry-after-ms=1;");
    EXPECT_EQ(retry_headers(Code::kInvalidRequest, std::nullopt), "");
    EXPECT_EQ(retry_headers(Code::kInternal, std::nullopt), "");
}

TEST(Gzip, ReadsAcceptEncoding) {
    for (const char* yes : {"gzip", "gzip, deflate", "deflate , GZip;q=0.5", "br,gzip;q=1.0"})
        EXPECT_TRUE(accepts_gzip(yes)) << yes;
    for (const char* no : {"", "deflate", "gzip;q=0", "gzip; q=0.000", "identity", "xgzip", "*"})
        EXPECT_FALSE(accepts_gzip(no)) << no;
}

std::string text_of(std::size_t size) {
    std::string text;
    for (std::size_t i = 0; text.size() < size; ++i)
        text += "line " + std::to_string(i * 7919) + "\n";
    text.resize(size);
    return text;
}

TEST(Body, CollectsInPiecesAndPads) {
    const std::string text = text_of(100'000);
    for (const std::int64_t expected : {-1L, 100'000L, 5L}) {
        Body body(1 << 20, expected);
        ASSERT_TRUE(body.set_encoding(""));
        for (std::size_t at = 0; at < text.size(); at += 777)
            ASSERT_TRUE(body.append(std::string_view(text).substr(at, 777)));
        ASSERT_TRUE(body.finish());
        EXPECT_EQ(body.bytes(), text);
        for (std::size_t i = 0; i < Body::kPadding; ++i)
            EXPECT_EQ(body.bytes().data()[text.size() + i], 0);
    }
    Body empty(10, -1);
    EXPECT_EQ(empty.bytes(), "");
    EXPECT_EQ(empty.bytes().data()[0], 0);
}

TEST(Body, HoldsToTheCap) {
    Body body(10, -1);
    EXPECT_TRUE(body.append("0123456789"));
    const Status over = body.append("x");
    ASSERT_FALSE(over);
    EXPECT_EQ(over.error().code, Code::kTooLarge);
}

TEST(Body, DrawsOnTheBudgetOfAllAndGivesItBack) {
    MemoryBudget budget(200'000, 160'000);
    {
        Body one(150'000, 150'000, &budget);
        ASSERT_TRUE(one.append("x"));
        EXPECT_LE(budget.used_bytes(), 65'536);  // a length that was only declared costs little
        ASSERT_TRUE(one.append(std::string(149'999, 'x')));
        EXPECT_EQ(budget.used_bytes(), 150'000);
        EXPECT_EQ(one.bytes().size(), 150'000U);
        EXPECT_FALSE(budget.has_room_for(0, 20'001));

        Body other(150'000, -1, &budget, 1);
        ASSERT_TRUE(other.append(std::string(10'000, 'y')));
        const Status refused = other.append(std::string(80'000, 'y'));
        ASSERT_FALSE(refused);
        EXPECT_EQ(refused.error().code, Code::kOverloaded);
        other.clear();
        EXPECT_EQ(budget.used_bytes(), 150'000);

        // Room for others, but this workspace has had its share.
        Body greedy(150'000, -1, &budget);
        EXPECT_FALSE(greedy.append(std::string(20'001, 'z')));
        EXPECT_TRUE(budget.has_room_for(1, 20'000));
        ASSERT_TRUE(other.append(std::string(20'000, 'y')));
    }
    EXPECT_EQ(budget.used_bytes(), 0);
    EXPECT_TRUE(budget.has_room_for(0, 160'000));
    EXPECT_FALSE(budget.has_room_for(0, 160'001));
}

TEST(Body, UndoesGzipInAnySplit) {
    const std::string text = text_of(60'000);
    const std::string packed = gzip_compress(text).value();
    EXPECT_LT(packed.size(), text.size());
    for (const std::size_t piece : {std::size_t{1}, std::size_t{100}, packed.size()}) {
        Body body(1 << 20, static_cast<std::int64_t>(packed.size()));
        ASSERT_TRUE(body.set_encoding("gzip"));
        for (std::size_t at = 0; at < packed.size(); at += piece)
            ASSERT_TRUE(body.append(std::string_view(packed).substr(at, piece)));
        ASSERT_TRUE(body.finish());
        EXPECT_EQ(body.bytes(), text);
    }
    Body two(1 << 20, -1);  // members may follow one another (RFC 1952 §2.2)
    ASSERT_TRUE(two.set_encoding("gzip"));
    ASSERT_TRUE(two.append(gzip_compress("ab").value() + gzip_compress("cd").value()));
    ASSERT_TRUE(two.finish());
    EXPECT_EQ(two.bytes(), "abcd");
}

TEST(Body, NamesEncodingErrors) {
    Body unsupported(100, -1);
    const Status br = unsupported.set_encoding("br");
    ASSERT_FALSE(br);
    EXPECT_EQ(br.error().code, Code::kInvalidRequest);
    EXPECT_EQ(br.error().error_code, "request_body_encoding_unsupported");

    Body garbage(100, -1);
    ASSERT_TRUE(garbage.set_encoding("gzip"));
    const Status bad = garbage.append("this is no gzip");
    ASSERT_FALSE(bad);
    EXPECT_EQ(bad.error().error_code, "request_body_encoding_invalid");

    const std::string packed = gzip_compress(text_of(5000)).value();
    Body cut(10'000, -1);
    ASSERT_TRUE(cut.set_encoding("gzip"));
    ASSERT_TRUE(cut.append(std::string_view(packed).substr(0, packed.size() - 4)));
    const Status early = cut.finish();
    ASSERT_FALSE(early);
    EXPECT_EQ(early.error().error_code, "request_body_encoding_invalid");

    Body trailing(10'000, -1);
    ASSERT_TRUE(trailing.set_encoding("gzip"));
    EXPECT_FALSE(trailing.append(packed + "junk") && trailing.finish());

    Body bomb(10'000, -1);
    ASSERT_TRUE(bomb.set_encoding("gzip"));
    const Status large = bomb.append(gzip_compress(std::string(1 << 20, ' ')).value());
    ASSERT_FALSE(large);
    EXPECT_EQ(large.error().code, Code::kTooLarge);
    EXPECT_EQ(large.error().error_code, "request_body_too_large_after_decoding");
}

}  // namespace
}  // namespace zerohop::api
