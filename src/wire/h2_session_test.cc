// HTTP/2 sessions driven with bytes: an nghttp2 client for what is well-formed, raw frames for
// abuse.
#include <gtest/gtest.h>
#include <nghttp2/nghttp2.h>

#include <map>
#include <set>

#include "wire/testing/echo.h"

namespace zerohop::wire {
namespace {

using testing::Driver;

struct Answer {
    std::map<std::string, std::string> headers;
    std::string body;
    bool ended = false;
    bool closed = false;
    std::uint32_t error = 0;
    int continues = 0;
};

// A client on nghttp2, without automatic window updates when `keep_windows_shut`.
class Client {
  public:
    explicit Client(Driver& driver, std::uint32_t window = 65535, bool keep_windows_shut = false)
        : driver_(driver) {
        nghttp2_session_callbacks* callbacks = nullptr;
        nghttp2_session_callbacks_new(&callbacks);
        nghttp2_session_callbacks_set_on_header_callback(
            callbacks,
            [](nghttp2_session*, const nghttp2_frame* f, const std::uint8_t* n, std::size_t ns,
               const std::uint8_t* v, std::size_t vs, std::uint8_t, void* self) {
                const std::string name(reinterpret_cast<const char*>(n), ns);
                const std::string value(reinterpret_cast<const char*>(v), vs);
                Answer& a = static_cast<Client*>(self)->answers[f->hd.stream_id];
                if (name == ":status" && value == "100")
                    ++a.continues;
                else
                    a.headers[name] = value;
                return 0;
            });
        nghttp2_session_callbacks_set_on_data_chunk_recv_callback(
            callbacks, [](nghttp2_session*, std::uint8_t, std::int32_t id, const std::uint8_t* d,
                          std::size_t n, void* self) {
                static_cast<Client*>(self)->answers[id].body.append(
                    reinterpret_cast<const char*>(d), n);
                return 0;
            });
        nghttp2_session_callbacks_set_on_frame_recv_callback(
            callbacks, [](nghttp2_session*, const nghttp2_frame* f, void* user) {
                auto* self = static_cast<Client*>(user);
                if ((f->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0 &&
                    (f->hd.type == NGHTTP2_DATA || f->hd.type == NGHTTP2_HEADERS))
                    self->answers[f->hd.stream_id].ended = true;
                if (f->hd.type == NGHTTP2_GOAWAY) self->goaways.push_back(f->goaway.error_code);
                if (f->hd.type == NGHTTP2_GOAWAY) self->last_id = f->goaway.last_stream_id;
                if (f->hd.type == NGHTTP2_PING && (f->hd.flags & NGHTTP2_FLAG_ACK) != 0)
                    ++self->pongs;
                return 0;
            });
        nghttp2_session_callbacks_set_on_stream_close_callback(
            callbacks, [](nghttp2_session*, std::int32_t id, std::uint32_t code, void* self) {
                Answer& a = static_cast<Client*>(self)->answers[id];
                a.closed = true;
                a.error = code;
                return 0;
            });
        nghttp2_option* option = nullptr;
        nghttp2_option_new(&option);
        nghttp2_option_set_no_auto_window_update(option, keep_windows_shut ? 1 : 0);
        nghttp2_session_client_new2(&session, callbacks, this, option);
        nghttp2_option_del(option);
        nghttp2_session_callbacks_del(callbacks);
        const nghttp2_settings_entry setting{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, window};
        nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, &setting, 1);
        exchange();
    }
    ~Client() { nghttp2_session_del(session); }

    struct Body {
        std::string left;
        std::size_t at = 0;  // sent
        bool open = false;   // more comes later
    };
    std::int32_t request(const std::string& path, std::string method = "GET",
                         const std::string* body = nullptr,
                         std::vector<std::pair<std::string, std::string>> more = {},
                         bool open = false) {
        std::vector<std::pair<std::string, std::string>> fields = {{":method", std::move(method)},
                                                                   {":scheme", "http"},
                                                                   {":authority", "x"},
                                                                   {":path", path}};
        fields.insert(fields.end(), more.begin(), more.end());
        std::vector<nghttp2_nv> nva;
        for (auto& [n, v] : fields)
            nva.push_back({reinterpret_cast<std::uint8_t*>(n.data()),
                           reinterpret_cast<std::uint8_t*>(v.data()), n.size(), v.size(), 0});
        nghttp2_data_provider provider{};
        provider.read_callback = [](nghttp2_session*, std::int32_t id, std::uint8_t* to,
                                    std::size_t most, std::uint32_t* flags, nghttp2_data_source*,
                                    void* self) -> ssize_t {
            Body& b = static_cast<Client*>(self)->bodies[id];
            const std::size_t n = std::min(most, b.left.size() - b.at);
            std::copy_n(b.left.data() + b.at, n, reinterpret_cast<char*>(to));
            b.at += n;
            if (n == 0 && b.open) return NGHTTP2_ERR_DEFERRED;
            if (b.at == b.left.size() && !b.open) *flags |= NGHTTP2_DATA_FLAG_EOF;
            return static_cast<ssize_t>(n);
        };
        const std::int32_t id =
            nghttp2_submit_request(session, nullptr, nva.data(), nva.size(),
                                   body != nullptr ? &provider : nullptr, nullptr);
        if (body != nullptr) bodies[id] = {*body, 0, open};
        return id;
    }
    // Moves bytes both ways until nothing moves.
    void exchange() {
        bool moved = true;
        while (moved) {
            moved = false;
            const std::uint8_t* data = nullptr;
            for (ssize_t n = 0; (n = nghttp2_session_mem_send(session, &data)) > 0; moved = true)
                driver_.feed({reinterpret_cast<const char*>(data), static_cast<std::size_t>(n)});
            driver_.pump();
            if (driver_.sent.empty()) continue;
            const std::string got = std::exchange(driver_.sent, {});
            nghttp2_session_mem_recv(session, reinterpret_cast<const std::uint8_t*>(got.data()),
                                     got.size());
            moved = true;
        }
    }

    Driver& driver_;
    nghttp2_session* session = nullptr;
    std::map<std::int32_t, Answer> answers;
    std::map<std::int32_t, Body> bodies;
    std::vector<std::uint32_t> goaways;
    std::int32_t last_id = 0;
    int pongs = 0;
};

std::string frame(std::uint8_t type, std::uint8_t flags, std::uint32_t stream,
                  const std::string& payload) {
    std::string out;
    for (const int shift : {16, 8, 0}) out += static_cast<char>((payload.size() >> shift) & 0xff);
    out += static_cast<char>(type);
    out += static_cast<char>(flags);
    for (const int shift : {24, 16, 8, 0}) out += static_cast<char>((stream >> shift) & 0xff);
    return out + payload;
}
// :method GET, :scheme http, :path /, :authority x
std::string get_block(const std::string& path = "/never") {
    return std::string("\x82\x86\x41\1x\4") + static_cast<char>(path.size()) + path;
}
std::string hello() { return std::string(kH2Preface) + frame(4, 0, 0, ""); }
// The error codes of all GOAWAY frames in `bytes`.
std::vector<std::uint32_t> goaways(std::string_view bytes) {
    std::vector<std::uint32_t> codes;
    while (bytes.size() >= 9) {
        const auto at = [&](std::size_t i) { return static_cast<std::uint8_t>(bytes[i]); };
        const std::size_t size = std::size_t{at(0)} << 16 | std::size_t{at(1)} << 8 | at(2);
        if (bytes.size() < 9 + size) break;
        if (at(3) == 7)
            codes.push_back(std::uint32_t{at(13)} << 24 | std::uint32_t{at(14)} << 16 |
                            std::uint32_t{at(15)} << 8 | at(16));
        bytes.remove_prefix(9 + size);
    }
    return codes;
}

TEST(H2, AnswersAndKeepsTheConnection) {
    Driver d(true);
    Client c(d);
    const std::string body = "hello body";
    const std::int32_t a = c.request("/collect?q=1", "POST", &body,
                                     {{"x-a", "b"}, {"cookie", "a=1"}, {"cookie", "b=2"}});
    const std::int32_t b = c.request("/hello");
    const std::int32_t h = c.request("/hello", "HEAD");
    c.exchange();
    EXPECT_EQ(c.answers[a].headers[":status"], "200");
    EXPECT_EQ(c.answers[a].body, body);
    EXPECT_EQ(c.answers[b].body, "hello");
    EXPECT_EQ(c.answers[b].headers["content-length"], "5");
    EXPECT_EQ(c.answers[h].headers["content-length"], "5");
    EXPECT_TRUE(c.answers[h].ended && c.answers[h].body.empty());
    const RequestHead head = d.echo.heads().at(0);
    EXPECT_EQ(head.method, "POST");
    EXPECT_EQ(head.target, "/collect?q=1");
    EXPECT_EQ(head.authority, "x");
    EXPECT_EQ(head.header("cookie"), "a=1; b=2");
    EXPECT_EQ(head.protocol, Protocol::kHttp2);
    EXPECT_TRUE(head.has_body);
    EXPECT_FALSE(d.echo.heads().at(1).has_body);
    EXPECT_EQ(d.closing(), Closing::kOpen);
    EXPECT_EQ(d.echo.live, 0);
    EXPECT_EQ(d.exchanges, 0);
    EXPECT_EQ(d.session->buffered(), 0U);
}

TEST(H2, StreamsManyAtOnceWithoutHeadOfLineBlocking) {
    Driver d(true);
    Client c(d);
    const std::string part = "x";
    std::vector<std::int32_t> ids;
    for (int i = 0; i < 100; ++i) ids.push_back(c.request("/echo", "POST", &part, {}, true));
    c.exchange();
    for (const std::int32_t id : ids) EXPECT_EQ(c.answers[id].body, "x");
    for (auto it = ids.rbegin(); it != ids.rend(); ++it) {
        c.bodies[*it] = {"yz", 0, false};
        nghttp2_session_resume_data(c.session, *it);
        c.exchange();
        EXPECT_EQ(c.answers[*it].body, "xyz");
        EXPECT_TRUE(c.answers[*it].closed);
    }
    EXPECT_EQ(d.echo.live, 0);
}

TEST(H2, ALargeUploadNeverStallsOnWindows) {
    Driver d(true);
    Client c(d);
    const std::string body(32 * 1024 * 1024, 'u');
    const std::int32_t id = c.request("/collect", "POST", &body);
    d.limits.linger_bytes = 0;
    c.exchange();
    EXPECT_EQ(d.echo.received, body.size());
    EXPECT_EQ(c.answers[id].body.size(), body.size());
}

TEST(H2, EarlyAnswerComesWithEndStreamAndTheUploadIsDrained) {
    Driver d(true);
    Client c(d);
    const std::string body(33 * 1024 * 1024, 'u');
    const std::int32_t id = c.request("/early", "POST", &body);
    c.exchange();
    EXPECT_EQ(c.answers[id].headers[":status"], "413");
    EXPECT_TRUE(c.answers[id].ended);
    EXPECT_EQ(c.bodies[id].at, body.size());  // all of it could be sent
    EXPECT_EQ(d.echo.received, 0U);
    EXPECT_EQ(d.closing(), Closing::kOpen);
    const std::int32_t next = c.request("/hello");
    c.exchange();
    EXPECT_EQ(c.answers[next].body, "hello");
}

// Node resets a stream whose answer's headers come while it holds more than 10 MB unsent.
TEST(H2, EarlyAnswerToAGreatUploadWaitsUntilLittleIsOwed) {
    Driver d(true);
    Client c(d);
    const std::string body(33 * 1024 * 1024, 'u');
    const std::vector<std::pair<std::string, std::string>> length = {
        {"content-length", std::to_string(body.size())}};
    const std::int32_t sent = c.request("/early", "POST", &body, length);
    c.exchange();
    EXPECT_EQ(c.answers[sent].headers[":status"], "413");
    EXPECT_EQ(c.bodies[sent].at, body.size());

    const std::string first(1000, 'u');
    const std::int32_t stalled = c.request("/early", "POST", &first, length, true);
    c.exchange();
    EXPECT_TRUE(c.answers[stalled].headers.empty());
    d.pass_ms(d.limits.linger_idle_ms + 1);
    c.exchange();
    EXPECT_EQ(c.answers[stalled].headers[":status"], "413");  // better than never
    EXPECT_TRUE(c.answers[stalled].ended);
    d.pass_ms(1);
    c.exchange();
    EXPECT_TRUE(c.answers[stalled].closed);
    EXPECT_EQ(d.closing(), Closing::kOpen);
}

TEST(H2, EarlyAnswerToAStalledUploadEndsWithNoError) {
    Driver d(true);
    Client c(d);
    const std::string body(1000, 'u');
    const std::int32_t id = c.request("/early", "POST", &body, {}, true);
    c.exchange();
    EXPECT_TRUE(c.answers[id].ended);
    EXPECT_FALSE(c.answers[id].closed);
    d.pass_ms(d.limits.linger_idle_ms + 1);
    c.exchange();
    EXPECT_TRUE(c.answers[id].closed);
    EXPECT_EQ(c.answers[id].error, NGHTTP2_NO_ERROR);
    EXPECT_EQ(d.closing(), Closing::kOpen);
}

TEST(H2, ResetWithAnyCodeCancels) {
    for (const std::uint32_t code : {NGHTTP2_NO_ERROR, NGHTTP2_CANCEL, NGHTTP2_INTERNAL_ERROR}) {
        Driver d(true);
        Client c(d);
        const std::int32_t other = c.request("/never");
        const std::int32_t id = c.request("/never");
        c.exchange();
        EXPECT_EQ(d.echo.live, 2);
        nghttp2_submit_rst_stream(c.session, NGHTTP2_FLAG_NONE, id, code);
        c.exchange();
        EXPECT_EQ(d.echo.disconnects, 1) << code;
        EXPECT_EQ(d.echo.live, 1);
        EXPECT_FALSE(c.answers[other].closed);
    }
}

TEST(H2, AbortResetsTheStreamOnly) {
    Driver d(true);
    Client c(d);
    const std::int32_t id = c.request("/abort");
    c.exchange();
    EXPECT_EQ(c.answers[id].error, NGHTTP2_INTERNAL_ERROR);
    EXPECT_FALSE(c.answers[id].ended);
    EXPECT_EQ(d.echo.disconnects, 0);
    EXPECT_EQ(d.echo.live, 0);
    EXPECT_EQ(d.closing(), Closing::kOpen);
}

TEST(H2, ProducerStopsAtAShutWindowAndOthersGoOn) {
    Driver d(true);
    Client c(d, 65535, true);
    nghttp2_session_set_local_window_size(c.session, NGHTTP2_FLAG_NONE, 0, 1 << 30);
    c.request("/flood");
    c.exchange();
    EXPECT_LT(d.echo.flooded, 65535U + 100 * 1024);
    EXPECT_LT(d.session->buffered(), 100U * 1024);
    const std::int32_t other = c.request("/hello");
    c.exchange();
    EXPECT_EQ(c.answers[other].body, "hello");
    d.pass_ms(250);
    d.pass_ms(d.limits.write_stall_ms + 1);
    EXPECT_EQ(d.echo.disconnects, 0);  // it took some
    d.pass_ms(d.limits.write_stall_ms);
    c.exchange();
    EXPECT_EQ(d.echo.disconnects, 1);
    EXPECT_EQ(d.echo.live, 0);
    EXPECT_EQ(d.session->buffered(), 0U);
}

// How many seconds a stream lives whose window is opened by `step` bytes every `each_s` seconds.
int seconds_of_a_stream(std::int32_t step, int each_s) {
    Driver d(true);
    Client c(d, static_cast<std::uint32_t>(step > 1024 ? 65535 : 1024), true);
    nghttp2_session_set_local_window_size(c.session, NGHTTP2_FLAG_NONE, 0, 1 << 30);
    const std::int32_t id = c.request("/flood");
    c.exchange();
    for (int s = 1; s < 600; ++s) {
        if (s % each_s == 0) nghttp2_submit_window_update(c.session, NGHTTP2_FLAG_NONE, id, step);
        c.exchange();
        d.pass_ms(1000);
        c.exchange();
        if (d.echo.disconnects > 0) return s;
    }
    return 600;
}

TEST(H2, AStreamIsTakenAtTheRateOrReset) {
    EXPECT_NEAR(seconds_of_a_stream(1, 3), 65, 2);  // a byte now and then renews nothing
    EXPECT_LE(seconds_of_a_stream(128, 1), 135);    // half the rate: twice the patience
    EXPECT_LE(seconds_of_a_stream(8192, 100), 200);
    EXPECT_EQ(seconds_of_a_stream(300, 1), 600);
    EXPECT_EQ(seconds_of_a_stream(32'768, 100), 600);  // 328 per second, in an SDK's steps
}

// Nothing waits: the model is slow, not the client.
TEST(H2, ASlowAnswerIsNotASlowReader) {
    Driver d(true);
    Client c(d);
    const std::string body = "a";
    const std::int32_t id = c.request("/echo", "POST", &body, {}, true);
    c.exchange();
    for (int s = 0; s < 25; ++s) d.pass_ms(1000);
    EXPECT_EQ(d.echo.disconnects, 0);
    c.bodies[id] = {"b", 0, false};
    nghttp2_session_resume_data(c.session, id);
    c.exchange();
    EXPECT_EQ(c.answers[id].body, "ab");
}

TEST(H2, SendsContinueWhenAsked) {
    Driver d(true);
    Client c(d);
    const std::string body = "late";
    const std::int32_t id =
        c.request("/collect", "POST", &body, {{"expect", "100-continue"}}, true);
    c.exchange();
    EXPECT_EQ(c.answers[id].continues, 1);
    c.bodies[id] = {"x", 0, false};
    nghttp2_session_resume_data(c.session, id);
    c.exchange();
    EXPECT_EQ(c.answers[id].body, "latex");
}

TEST(H2, HeadsBeyondTheLimitsAre431And414) {
    Driver d(true);
    Client c(d);
    const std::int32_t big =
        c.request("/hello", "GET", nullptr,
                  {{"x-a", std::string(20000, 'a')}, {"x-b", std::string(20000, 'b')}});
    std::vector<std::pair<std::string, std::string>> many;
    for (int i = 0; i < 200; ++i) many.emplace_back("x-" + std::to_string(i), "v");
    const std::int32_t count = c.request("/hello", "GET", nullptr, many);
    const std::int32_t target = c.request("/" + std::string(9000, 'a'));
    const std::int32_t fine = c.request("/hello");
    c.exchange();
    EXPECT_EQ(c.answers[big].headers[":status"], "431");
    EXPECT_EQ(c.answers[count].headers[":status"], "431");
    EXPECT_EQ(c.answers[target].headers[":status"], "414");
    EXPECT_EQ(c.answers[target].headers["x-refused"], "by the wire");
    EXPECT_EQ(c.answers[fine].body, "hello");
    EXPECT_EQ(d.echo.heads().size(), 1U);
}

TEST(H2, RefusesWhatH1Refuses) {
    Driver d(true);
    Client c(d);
    const std::int32_t host = c.request("/hello", "GET", nullptr, {{"host", "other"}});
    const std::int32_t method = c.request("/hello", "BREW(");
    c.exchange();
    EXPECT_EQ(c.answers[host].headers[":status"], "400");
    EXPECT_TRUE(c.answers[method].closed && c.answers[method].headers[":status"] != "200");
    EXPECT_TRUE(d.echo.heads().empty());
}

TEST(H2, SlowBodyIs408) {
    Driver d(true);
    Client c(d);
    const std::string body = "u";
    const std::int32_t id = c.request("/collect", "POST", &body, {}, true);
    c.exchange();
    d.pass_ms(d.limits.body_idle_ms + 1);
    c.exchange();
    EXPECT_EQ(c.answers[id].headers[":status"], "408");
    EXPECT_EQ(d.echo.disconnects, 1);
    EXPECT_EQ(d.echo.live, 0);
}

// The answer began before its request's body stood still; what is rendered of it leaves after its
// exchange has gone.
TEST(H2, SlowBodyBehindABegunAnswerIsReset) {
    Driver d(true);
    Client c(d);
    const std::string body(2 * 16'384, 'u');
    const std::int32_t id = c.request("/echo", "POST", &body, {}, true);
    d.blocked = true;  // two whole frames: no room for the reset beside them
    c.exchange();
    EXPECT_EQ(d.echo.received, body.size());
    d.session->output();
    d.pass_ms(d.limits.body_idle_ms + 1);
    EXPECT_EQ(d.echo.disconnects, 1);
    EXPECT_EQ(d.echo.live, 0);
    d.blocked = false;
    c.exchange();
    EXPECT_TRUE(c.answers[id].closed);
    EXPECT_EQ(d.session->buffered(), 0U);
}

TEST(H2, AnswersPings) {
    Driver d(true);
    Client c(d);
    c.request("/never");
    nghttp2_submit_ping(c.session, NGHTTP2_FLAG_NONE, nullptr);
    c.exchange();
    EXPECT_EQ(c.pongs, 1);
}

TEST(H2, DrainFinishesWhatRunsAndRefusesTheRest) {
    Driver d(true);
    Client c(d);
    const std::string part = "x";
    const std::int32_t id = c.request("/echo", "POST", &part, {}, true);
    c.exchange();
    d.session->drain();
    c.exchange();
    ASSERT_EQ(c.goaways.size(), 1U);
    EXPECT_EQ(c.last_id, 0x7fffffff);
    d.pass_ms(600);
    c.exchange();
    ASSERT_EQ(c.goaways.size(), 2U);
    EXPECT_EQ(c.last_id, id);
    EXPECT_EQ(d.closing(), Closing::kOpen);
    c.bodies[id] = {"y", 0, false};
    nghttp2_session_resume_data(c.session, id);
    c.exchange();
    EXPECT_EQ(c.answers[id].body, "xy");
    d.pass_ms(1);
    EXPECT_EQ(d.closing(), Closing::kFlush);
}

TEST(H2, IdleConnectionSaysGoaway) {
    Driver d(true);
    Client c(d);
    c.request("/hello");
    c.exchange();
    d.pass_ms(360'000);
    EXPECT_EQ(d.closing(), Closing::kOpen);
    d.pass_ms(41'000);
    c.exchange();
    EXPECT_EQ(c.goaways, (std::vector<std::uint32_t>{NGHTTP2_NO_ERROR}));
    EXPECT_EQ(d.closing(), Closing::kFlush);
}

TEST(H2, BadPrefaceAndMissingSettingsClose) {
    Driver bad(true);
    bad.feed("PRI * HTTP/2.0\r\n\r\nSM\r\n\rX" + frame(4, 0, 0, ""));
    EXPECT_EQ(bad.closing(), Closing::kFlush);
    Driver silent(true);
    silent.feed(kH2Preface);
    silent.pass_ms(silent.limits.head_ms + 1);
    EXPECT_EQ(silent.closing(), Closing::kFlush);
    Driver open_block(true);
    open_block.feed(hello() + frame(1, 0, 1, get_block()));  // no END_HEADERS
    open_block.pass_ms(open_block.limits.head_ms + 1);
    EXPECT_EQ(open_block.closing(), Closing::kFlush);
}

// Feeds `piece(i)` until the session gives up; returns how many it took.
template <class Fn>
int flood(Driver& d, Fn&& piece, int most = 200'000) {
    d.feed(hello());
    for (int i = 0; i < most; ++i) {
        if (d.closing() != Closing::kOpen) return i;
        d.feed(piece(i));
    }
    return most;
}

void expect_calm(const Driver& d, int taken) {
    EXPECT_LT(taken, 10'000);
    EXPECT_EQ(d.closing(), Closing::kFlush);
    const auto codes = goaways(d.sent);
    ASSERT_FALSE(codes.empty());
    EXPECT_EQ(codes.back(), NGHTTP2_ENHANCE_YOUR_CALM);
    EXPECT_EQ(d.echo.live, 0);
}

TEST(H2Flood, Ping) {
    Driver d(true);
    expect_calm(d, flood(d, [](int) { return frame(6, 0, 0, "12345678"); }));
}
TEST(H2Flood, Settings) {
    Driver d(true);
    expect_calm(d, flood(d, [](int) { return frame(4, 0, 0, ""); }));
}
TEST(H2Flood, EmptyData) {
    Driver d(true);
    expect_calm(d, flood(d, [](int i) {
                    return i == 0 ? frame(1, 4, 1, get_block("/collect")) : frame(0, 0, 1, "");
                }));
}
TEST(H2Flood, Priority) {
    Driver d(true);
    expect_calm(d, flood(d, [](int i) {
                    return frame(2, 0, static_cast<std::uint32_t>(2 * i + 1),
                                 std::string("\0\0\0\0\1", 5));
                }));
}
TEST(H2Flood, WindowUpdate) {
    Driver d(true);
    expect_calm(d, flood(d, [](int) { return frame(8, 0, 0, std::string("\0\0\0\1", 4)); }));
}
TEST(H2Flood, UnknownFrames) {
    Driver d(true);
    expect_calm(d, flood(d, [](int) { return frame(0x77, 0, 0, ""); }));
}
TEST(H2Flood, RapidReset) {
    Driver d(true);
    const int taken = flood(d, [](int i) {
        const auto id = static_cast<std::uint32_t>(2 * i + 1);
        return frame(1, 5, id, get_block()) + frame(3, 0, id, std::string("\0\0\0\x8", 4));
    });
    EXPECT_LT(taken, 2000);
    EXPECT_EQ(d.closing(), Closing::kFlush);
    EXPECT_EQ(d.echo.live, 0);
    EXPECT_FALSE(goaways(d.sent).empty());
}
TEST(H2Flood, Continuation) {
    Driver d(true);
    d.feed(hello() + frame(1, 0, 1, get_block()));
    int taken = 0;
    for (; taken < 1000 && d.closing() == Closing::kOpen; ++taken)
        d.feed(frame(9, 0, 1, std::string(100, '\x82')));
    EXPECT_LT(taken, 50);
    EXPECT_EQ(d.closing(), Closing::kFlush);
}
TEST(H2Flood, HeaderBombIsCutOff) {
    Driver d(true);
    // One 3,800-byte field into the dynamic table, then references to it, one byte each.
    std::string block = get_block("/hello");
    block +=
        std::string("\x40\1a\x7f\xd9\x1c", 6) + std::string(3800, 'v') + std::string(12000, '\xbe');
    d.feed(hello() + frame(1, 5, 1, block));
    EXPECT_TRUE(d.echo.heads().empty());
    EXPECT_LT(d.session->buffered(), 1000U);
    EXPECT_EQ(d.echo.live, 0);
}
TEST(H2Flood, HonestLoadIsNotTakenForOne) {
    Driver d(true);
    Client c(d);
    const std::string body = "0123456789012345678901234567890123456789";
    for (int i = 0; i < 20'000; ++i) {
        c.request("/collect", "POST", &body);
        if (i % 50 == 0) nghttp2_submit_ping(c.session, NGHTTP2_FLAG_NONE, nullptr);
        if (i % 20 == 0) c.exchange();
    }
    c.exchange();
    EXPECT_EQ(d.closing(), Closing::kOpen);
    EXPECT_EQ(d.echo.completed, 20'000);
}

TEST(H2, FramesOnStreamsThatAreOverEndTheConnection) {
    for (const std::string& late : {frame(1, 5, 1, get_block()), frame(0, 1, 1, "x")}) {
        Driver d(true);
        d.feed(hello() + frame(1, 5, 1, get_block("/hello")));
        d.feed(late);
        EXPECT_EQ(goaways(d.sent), (std::vector<std::uint32_t>{NGHTTP2_STREAM_CLOSED}));
        EXPECT_EQ(d.closing(), Closing::kFlush);
    }
    Driver smaller(true);
    smaller.feed(hello() + frame(1, 5, 5, get_block("/hello")) +
                 frame(1, 5, 3, get_block("/hello")));
    EXPECT_EQ(goaways(smaller.sent), (std::vector<std::uint32_t>{NGHTTP2_PROTOCOL_ERROR}));
    Driver ours(true);  // what was on its way when we reset the stream is dropped
    ours.feed(hello() + frame(1, 4, 1, get_block("/abort")));
    ours.feed(frame(0, 0, 1, "x") + frame(0, 1, 1, "y"));
    EXPECT_TRUE(goaways(ours.sent).empty());
    EXPECT_EQ(ours.closing(), Closing::kOpen);
}

TEST(H2, RefusesStreamsBeyondTheLimit) {
    Driver d(true);
    d.feed(hello() + frame(4, 1, 0, ""));
    for (std::uint32_t i = 0; i < 300; ++i) d.feed(frame(1, 5, 2 * i + 1, get_block()));
    EXPECT_LE(d.echo.live, 256);
}

TEST(H2, TakesAnythingByteByByteAndWritesByteByByte) {
    Driver d(true);
    d.write_step = 1;
    Client c(d);
    const std::string body(3000, 'b');
    const std::int32_t id = c.request("/echo", "POST", &body);
    const std::uint8_t* data = nullptr;
    for (ssize_t n = 0; (n = nghttp2_session_mem_send(c.session, &data)) > 0;)
        d.feed_slowly({reinterpret_cast<const char*>(data), static_cast<std::size_t>(n)});
    c.exchange();
    EXPECT_EQ(c.answers[id].body, body);
}

}  // namespace
}  // namespace zerohop::wire
