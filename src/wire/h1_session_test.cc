// HTTP/1 sessions driven with bytes.
#include <gtest/gtest.h>

#include "wire/testing/echo.h"

namespace zerohop::wire {
namespace {

using testing::Driver;

std::size_t count(std::string_view text, std::string_view what) {
    std::size_t n = 0;
    for (auto at = text.find(what); at != std::string_view::npos; at = text.find(what, at + 1)) ++n;
    return n;
}

bool has(std::string_view text, std::string_view what) {
    return text.find(what) != std::string_view::npos;
}

TEST(H1, HandsOnTheHeadAndKeepsTheConnection) {
    Driver d(false);
    d.feed(
        "GET /hello?a=1 HTTP/1.1\r\nHost: x.test:80\r\nX-A:  b c \t\r\nConnection: "
        "keep-alive\r\n\r\n");
    ASSERT_EQ(d.echo.heads().size(), 1U);
    const RequestHead head = d.echo.heads()[0];
    EXPECT_EQ(head.method, "GET");
    EXPECT_EQ(head.target, "/hello?a=1");
    EXPECT_EQ(head.authority, "x.test:80");
    EXPECT_EQ(head.header("x-a"), "b c");
    EXPECT_FALSE(head.has("host"));
    EXPECT_FALSE(head.has("connection"));
    EXPECT_EQ(head.peer, "192.0.2.1");
    EXPECT_FALSE(head.has_body);
    EXPECT_GT(head.first_byte_ns, 0);
    EXPECT_GE(head.decoded_ns, head.first_byte_ns);
    EXPECT_TRUE(d.sent.starts_with("HTTP/1.1 200 OK\r\n")) << d.sent;
    EXPECT_TRUE(has(d.sent, "content-length: 5\r\n"));
    EXPECT_TRUE(d.sent.ends_with("\r\n\r\nhello"));
    EXPECT_EQ(d.closing(), Closing::kOpen);
    EXPECT_EQ(d.echo.live, 0);
    EXPECT_EQ(d.exchanges, 0);
    d.feed("GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_EQ(count(d.sent, "200 OK"), 2U);
    EXPECT_EQ(d.session->buffered(), 0U);
}

// RFC 9112 §3.2.2: the authority of the target counts, not the host header.
TEST(H1, ServesAbsoluteTargets) {
    const auto head_of = [](std::string_view target) {
        Driver d(false);
        d.feed("GET " + std::string(target) + " HTTP/1.1\r\nHost: other.test\r\n\r\n");
        return d.echo.heads().empty() ? RequestHead{} : d.echo.heads()[0];
    };
    const RequestHead plain = head_of("http://x.test:80/hello?a=http://y/");
    EXPECT_EQ(plain.target, "/hello?a=http://y/");
    EXPECT_EQ(plain.authority, "x.test:80");
    EXPECT_EQ(head_of("HTTPS://[::1]:8443/hello").authority, "[::1]:8443");
    EXPECT_EQ(head_of("http://x.test").target, "/");
    EXPECT_EQ(head_of("http://x.test?a").target, "/?a");
}

TEST(H1, TakesAnythingByteByByte) {
    Driver d(false);
    d.feed_slowly(
        "POST /collect HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nabcde"
        "POST /collect HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        "3;ext=1\r\nabc\r\n2\r\nde\r\n0\r\nTrailer: x\r\n\r\n"
        "\r\nGET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_EQ(d.echo.bodies(), (std::vector<std::string>{"abcde", "abcde"}));
    EXPECT_EQ(count(d.sent, "200 OK"), 3U) << d.sent;
    EXPECT_EQ(d.closing(), Closing::kOpen);
}

TEST(H1, StreamsInChunksWhenTheLengthIsUnknown) {
    Driver d(false);
    d.feed("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\n\r\nabc");
    EXPECT_TRUE(has(d.sent, "transfer-encoding: chunked\r\n")) << d.sent;
    EXPECT_TRUE(has(d.sent, "3\r\nabc\r\n"));
    d.feed("def");
    EXPECT_TRUE(d.sent.ends_with("3\r\ndef\r\n0\r\n\r\n"));
    EXPECT_EQ(d.closing(), Closing::kOpen);
}

TEST(H1, AnswersHeadWithoutBody) {
    Driver d(false);
    d.feed("HEAD /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_TRUE(has(d.sent, "content-length: 5\r\n"));
    EXPECT_TRUE(d.sent.ends_with("\r\n\r\n"));
}

TEST(H1, Http10Closes) {
    Driver d(false);
    d.feed("POST /echo HTTP/1.0\r\nHost: x\r\nContent-Length: 3\r\nConnection: keep-alive\r\n\r\n");
    d.feed("abc");
    EXPECT_FALSE(has(d.sent, "chunked"));
    EXPECT_TRUE(has(d.sent, "connection: close\r\n"));
    EXPECT_TRUE(d.sent.ends_with("\r\n\r\nabc"));
    EXPECT_EQ(d.closing(), Closing::kFlush);
}

TEST(H1, HonoursConnectionClose) {
    Driver d(false);
    d.feed(
        "GET /hello HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\nGET /hello HTTP/1.1\r\nHost: "
        "x\r\n\r\n");
    EXPECT_TRUE(has(d.sent, "connection: close\r\n"));
    EXPECT_EQ(count(d.sent, "200 OK"), 1U);
    EXPECT_EQ(d.closing(), Closing::kFlush);
}

TEST(H1, AnswersPipelinedRequestsInOrder) {
    Driver d(false);
    std::string many;
    for (int i = 0; i < 50; ++i)
        many += "POST /collect HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n" +
                std::to_string(10 + i);
    d.feed(many);
    EXPECT_EQ(count(d.sent, "200 OK"), 50U);
    std::size_t at = 0;
    for (int i = 0; i < 50; ++i) {
        at = d.sent.find("\r\n\r\n" + std::to_string(10 + i), at);
        ASSERT_NE(at, std::string::npos) << i;
    }
}

TEST(H1, BoundsWhatIsPipelinedBehindAnUnfinishedAnswer) {
    Driver d(false);
    const std::string one = "GET /never HTTP/1.1\r\nHost: x\r\n\r\n";
    d.feed(one);
    EXPECT_TRUE(d.session->wants_read());
    while (d.session->wants_read() && d.session->buffered() < 1024 * 1024) d.feed(one);
    EXPECT_LE(d.session->buffered(), d.limits.pipeline_bytes + one.size());
    EXPECT_EQ(d.echo.heads().size(), 1U);
    d.eof();
    EXPECT_EQ(d.echo.disconnects, 1);
}

TEST(H1, SendsContinueOnlyWhenAsked) {
    Driver d(false);
    d.feed(
        "POST /collect HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    EXPECT_EQ(d.sent, "HTTP/1.1 100 Continue\r\n\r\n");
    d.feed("ok");
    EXPECT_TRUE(has(d.sent, "200 OK"));
    EXPECT_EQ(d.closing(), Closing::kOpen);
}

TEST(H1, RefusedExpectationClosesBecauseTheBodyIsUncertain) {
    Driver d(false);
    d.feed("POST /early HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    EXPECT_FALSE(has(d.sent, "100 Continue"));
    EXPECT_TRUE(has(d.sent, "413 Content Too Large"));
    EXPECT_TRUE(has(d.sent, "connection: close"));
    EXPECT_EQ(d.closing(), Closing::kFlush);
}

TEST(H1, EarlyAnswerToALargeBodyIsSentAndTheRestDropped) {
    Driver d(false);
    d.feed("POST /early HTTP/1.1\r\nHost: x\r\nContent-Length: 34603008\r\n\r\n");
    EXPECT_TRUE(has(d.sent, "413 Content Too Large"));
    EXPECT_TRUE(has(d.sent, "connection: close\r\n"));
    EXPECT_EQ(d.closing(), Closing::kFlush);
    EXPECT_TRUE(d.session->wants_read());
    const std::size_t before = d.sent.size();
    for (int i = 0; i < 100; ++i) d.feed(std::string(64 * 1024, 'x'));
    EXPECT_EQ(d.sent.size(), before);
    EXPECT_EQ(d.session->buffered(), 0U);
    EXPECT_EQ(d.echo.live, 0);
}

TEST(H1, EarlyAnswerToASmallBodyKeepsTheConnection) {
    Driver d(false);
    d.feed("POST /early HTTP/1.1\r\nHost: x\r\nContent-Length: 2000\r\n\r\n");
    EXPECT_TRUE(has(d.sent, "413"));
    EXPECT_FALSE(has(d.sent, "connection: close"));
    d.feed(std::string(2000, 'x') + "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_TRUE(has(d.sent, "hello"));
    EXPECT_EQ(d.closing(), Closing::kOpen);
}

TEST(H1, EarlyAnswerWithTheWholeRequestInOneReadKeepsTheConnection) {
    Driver d(false);
    d.feed(
        "POST /early HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
        "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_FALSE(has(d.sent, "connection: close"));
    EXPECT_TRUE(d.sent.ends_with("hello"));
}

TEST(H1, IgnoresUpgrades) {
    Driver d(false);
    d.feed(
        "GET /hello HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
        "HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n");
    EXPECT_TRUE(has(d.sent, "200 OK"));
    EXPECT_FALSE(d.echo.heads()[0].has("upgrade"));
}

TEST(H1, FinAfterARequestCancelsIt) {
    Driver d(false);
    d.feed("GET /never HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_EQ(d.echo.live, 1);
    d.eof();
    EXPECT_EQ(d.echo.disconnects, 1);
    EXPECT_EQ(d.echo.live, 0);
    EXPECT_EQ(d.exchanges, 0);
}

TEST(H1, FinWithinABodyDisconnects) {
    Driver d(false);
    d.feed("POST /collect HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc");
    d.eof();
    EXPECT_EQ(d.echo.disconnects, 1);
    EXPECT_EQ(d.echo.completed, 0);
    EXPECT_NE(d.closing(), Closing::kOpen);
}

TEST(H1, FinAfterAFinishedAnswerStillDeliversIt) {
    Driver d(false);
    d.session->on_bytes("GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    d.session->on_eof();
    d.pump();
    EXPECT_TRUE(d.sent.ends_with("hello"));
    EXPECT_EQ(d.echo.disconnects, 0);
    EXPECT_EQ(d.closing(), Closing::kFlush);
}

TEST(H1, AbortResets) {
    Driver d(false);
    d.feed("GET /abort HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_EQ(d.closing(), Closing::kReset);
    EXPECT_EQ(d.echo.disconnects, 0);
    EXPECT_EQ(d.echo.live, 0);
}

TEST(H1, ProducerStopsWhileNothingIsTaken) {
    Driver d(false);
    d.keep_output = false;
    d.stop_after = 1024 * 1024;
    d.feed("GET /flood HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_TRUE(d.blocked);
    EXPECT_LT(d.echo.flooded, 1300U * 1024);
    EXPECT_LT(d.session->buffered(), 100U * 1024);
    d.session->on_disconnect();
    EXPECT_EQ(d.echo.disconnects, 1);
}

TEST(H1, SlowHeadIs408) {
    Driver d(false);
    d.feed("GET /hello HT");
    d.pass_ms(d.limits.head_ms - 1);
    EXPECT_EQ(d.closing(), Closing::kOpen);
    d.pass_ms(2);
    EXPECT_TRUE(has(d.sent, "408 Request Timeout"));
    EXPECT_EQ(d.closing(), Closing::kFlush);
}

TEST(H1, SlowBodyIs408AndDisconnects) {
    Driver d(false);
    d.feed("POST /collect HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n");
    for (int i = 0; i < 35 && d.closing() == Closing::kOpen; ++i) {
        d.feed("x");
        d.pass_ms(1000);  // 1 byte per second is below 256
    }
    EXPECT_TRUE(has(d.sent, "408 Request Timeout"));
    EXPECT_EQ(d.echo.disconnects, 1);
    EXPECT_EQ(d.closing(), Closing::kFlush);
}

// What came fast does not pay for what then trickles, nor does a steady rate for a body without
// end.
TEST(H1, ABodyIsBoundedInPaceAndTime) {
    const auto lasted_s = [](std::size_t at_once, std::size_t each_s) {
        Driver d(false);
        d.feed("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 30000000\r\n\r\n");
        d.feed(std::string(at_once, 'x'));
        int s = 0;
        for (; s < 1000 && d.closing() == Closing::kOpen && d.echo.disconnects == 0; ++s) {
            d.feed(std::string(each_s, 'x'));
            d.pass_ms(1000);
        }
        return s;
    };
    EXPECT_LE(lasted_s(20'000'000, 1), 32);
    EXPECT_LE(lasted_s(0, 128), 62);  // half the rate: twice the patience
    EXPECT_NEAR(lasted_s(0, 300), 120, 1);
    EXPECT_NEAR(lasted_s(20'000'000, 60'000), 120, 1);
}

TEST(H1, IdleConnectionCloses) {
    Driver d(false);
    d.feed("GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    d.pass_ms(360'000);
    EXPECT_EQ(d.closing(), Closing::kOpen);
    d.pass_ms(41'000);
    EXPECT_EQ(d.closing(), Closing::kFlush);
}

TEST(H1, DrainClosesIdleAndMarksTheLastAnswer) {
    Driver idle(false);
    idle.feed("GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    idle.session->drain();
    idle.pump();
    EXPECT_EQ(idle.closing(), Closing::kFlush);
    Driver fresh(false);
    fresh.session->drain();
    fresh.pump();
    EXPECT_EQ(fresh.closing(), Closing::kOpen);
    fresh.feed("GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_TRUE(has(fresh.sent, "connection: close\r\n"));
    EXPECT_EQ(fresh.closing(), Closing::kFlush);
    Driver busy(false);
    busy.feed("POST /collect HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n");
    busy.session->drain();
    busy.pump();
    EXPECT_EQ(busy.closing(), Closing::kOpen);
    busy.feed("ab");
    EXPECT_TRUE(has(busy.sent, "connection: close\r\n"));
    EXPECT_TRUE(busy.sent.ends_with("ab"));
    EXPECT_EQ(busy.closing(), Closing::kFlush);
}

TEST(H1, TheDispatcherSaysWhatTheWireRefuses) {
    Driver d(false);
    d.feed("GET /hello HTTP/1.1\r\n\r\n");
    EXPECT_TRUE(d.sent.starts_with("HTTP/1.1 400 Bad Request\r\n")) << d.sent;
    EXPECT_TRUE(has(d.sent, "x-refused: by the wire\r\n"));
    EXPECT_TRUE(d.sent.ends_with("\r\n\r\nThe host header is missing or empty."));
    EXPECT_EQ(d.closing(), Closing::kFlush);
    EXPECT_TRUE(d.echo.heads().empty());
}

struct Refused {
    const char* name;
    std::string bytes;
    const char* status;
};

class H1Refuses : public ::testing::TestWithParam<Refused> {};

// Whatever two parsers could read differently is refused before anything is handed on, and nothing
// behind it is taken for a request.
TEST_P(H1Refuses, AndClosesWithoutAnotherRequest) {
    const std::string smuggled = "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n";
    for (const std::size_t step : {std::size_t{1}, std::size_t{1000000}}) {
        Driver d(false);
        d.feed_slowly(GetParam().bytes + smuggled, step);
        EXPECT_TRUE(d.sent.starts_with(std::string("HTTP/1.1 ") + GetParam().status)) << d.sent;
        EXPECT_EQ(count(d.sent, "HTTP/1.1 "), 1U) << d.sent;
        EXPECT_EQ(d.closing(), Closing::kFlush);
        EXPECT_EQ(d.echo.live, 0);
        EXPECT_EQ(d.echo.completed, 0);
    }
}

const std::string kPost = "POST /collect HTTP/1.1\r\nHost: x\r\n";
INSTANTIATE_TEST_SUITE_P(
    Smuggling, H1Refuses,
    ::testing::Values(
        Refused{"two_lengths", kPost + "Content-Length: 5\r\nContent-Length: 6\r\n\r\n", "400"},
        Refused{"same_length_twice", kPost + "Content-Length: 5\r\nContent-Length: 5\r\n\r\n",
                "400"},
        Refused{"length_list", kPost + "Content-Length: 5, 5\r\n\r\n", "400"},
        Refused{"length_plus", kPost + "Content-Length: +5\r\n\r\n", "400"},
        Refused{"length_negative", kPost + "Content-Length: -5\r\n\r\n", "400"},
        Refused{"length_hex", kPost + "Content-Length: 0x5\r\n\r\n", "400"},
        Refused{"length_empty", kPost + "Content-Length: \r\n\r\n", "400"},
        Refused{"length_huge", kPost + "Content-Length: 99999999999999999999\r\n\r\n", "400"},
        Refused{"length_and_chunked",
                kPost + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", "400"},
        Refused{"chunked_and_length",
                kPost + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n", "400"},
        Refused{"coding_unknown", kPost + "Transfer-Encoding: xchunked\r\n\r\n", "501"},
        Refused{"coding_list", kPost + "Transfer-Encoding: gzip, chunked\r\n\r\n", "501"},
        Refused{"coding_chunked_first", kPost + "Transfer-Encoding: chunked, gzip\r\n\r\n", "501"},
        Refused{"coding_identity", kPost + "Transfer-Encoding: identity\r\n\r\n", "501"},
        Refused{"coding_tab",
                kPost + "Transfer-Encoding: \x0b"
                        "chunked\r\n\r\n",
                "400"},
        Refused{"coding_twice",
                kPost + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", "400"},
        Refused{"coding_http10",
                "POST /collect HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", "400"},
        Refused{"space_before_colon", kPost + "Content-Length : 5\r\n\r\n", "400"},
        Refused{"space_before_coding_colon", kPost + "Transfer-Encoding : chunked\r\n\r\n", "400"},
        Refused{"folded_line", kPost + "X-A: b\r\n c\r\n\r\n", "400"},
        Refused{"folded_coding", kPost + "Transfer-Encoding:\r\n chunked\r\n\r\n", "400"},
        Refused{"folded_first", "GET /hello HTTP/1.1\r\n Host: x\r\n\r\n", "400"},
        Refused{"bare_lf", "GET /hello HTTP/1.1\nHost: x\n\n", "400"},
        Refused{"bare_lf_in_field", kPost + "X-A: b\nContent-Length: 5\r\n\r\n", "400"},
        Refused{"bare_cr_in_field", kPost + "X-A: b\rContent-Length: 5\r\n\r\n", "400"},
        Refused{"nul", kPost + std::string("X-A: b\0c\r\n\r\n", 12), "400"},
        Refused{"no_colon", kPost + "X-A\r\n\r\n", "400"},
        Refused{"empty_name", kPost + ": x\r\n\r\n", "400"},
        Refused{"no_host", "GET /hello HTTP/1.1\r\n\r\n", "400"},
        Refused{"two_hosts", "GET /hello HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "400"},
        Refused{"empty_host", "GET /hello HTTP/1.1\r\nHost:\r\n\r\n", "400"},
        Refused{"host_with_path", "GET /hello HTTP/1.1\r\nHost: a/b\r\n\r\n", "400"},
        Refused{"absolute_without_host", "GET http://x/hello HTTP/1.1\r\n\r\n", "400"},
        Refused{"absolute_with_two_hosts",
                "GET http://x/hello HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n", "400"},
        Refused{"absolute_without_authority", "GET http:///hello HTTP/1.1\r\nHost: x\r\n\r\n",
                "400"},
        Refused{"absolute_with_user", "GET http://u:p@x/hello HTTP/1.1\r\nHost: x\r\n\r\n", "400"},
        Refused{"absolute_of_another_scheme", "GET ftp://x/hello HTTP/1.1\r\nHost: x\r\n\r\n",
                "400"},
        Refused{"authority_target", "CONNECT x:443 HTTP/1.1\r\nHost: x\r\n\r\n", "400"},
        Refused{"asterisk_target", "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", "400"},
        Refused{"space_in_target", "GET /a b HTTP/1.1\r\nHost: x\r\n\r\n", "400"},
        Refused{"high_byte_in_target", "GET /\xc3\xa9 HTTP/1.1\r\nHost: x\r\n\r\n", "400"},
        Refused{"fragment", "GET /a#b HTTP/1.1\r\nHost: x\r\n\r\n", "400"},
        Refused{"no_version", "GET /hello\r\nHost: x\r\n\r\n", "400"},
        Refused{"version_2", "GET /hello HTTP/2.0\r\nHost: x\r\n\r\n", "505"},
        Refused{"bad_method", "GE(T /hello HTTP/1.1\r\nHost: x\r\n\r\n", "400"},
        Refused{"chunk_not_hex", kPost + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", "400"},
        Refused{"chunk_negative", kPost + "Transfer-Encoding: chunked\r\n\r\n-1\r\n", "400"},
        Refused{"chunk_0x", kPost + "Transfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n", "400"},
        Refused{"chunk_overflow", kPost + "Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\n",
                "400"},
        Refused{"chunk_bare_lf", kPost + "Transfer-Encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n",
                "400"},
        Refused{"chunk_too_long",
                kPost + "Transfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n", "400"},
        Refused{"chunk_extension_lf",
                kPost + "Transfer-Encoding: chunked\r\n\r\n3;a\nb\r\nabc\r\n0\r\n\r\n", "400"},
        Refused{"trailer_length",
                kPost + "Transfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 5\r\n\r\n", "400"},
        Refused{"trailer_host_space",
                kPost + "Transfer-Encoding: chunked\r\n\r\n0\r\nX : 5\r\n\r\n", "400"},
        Refused{"chunk_extension_endless",
                kPost + "Transfer-Encoding: chunked\r\n\r\n3;" + std::string(20000, 'a'), "400"},
        Refused{"long_target", "GET /" + std::string(9000, 'a') + " HTTP/1.1\r\nHost: x\r\n\r\n",
                "414"},
        Refused{"long_target_unfinished", "GET /" + std::string(9000, 'a'), "414"},
        Refused{"long_head", kPost + "X-A: " + std::string(33000, 'a') + "\r\n\r\n", "431"},
        Refused{"many_fields",
                kPost +
                    [] {
                        std::string s;
                        for (int i = 0; i < 140; ++i) s += "X-A: b\r\n";
                        return s;
                    }() +
                    "\r\n",
                "431"}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace zerohop::wire
