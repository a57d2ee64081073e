#include "api/messages_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <utility>

#include "api/cache_request.h"
#include "api/error_table.h"
#include "api/ids.h"
#include "base/log.h"

namespace zerohop::api {
namespace {

// One metric of a server-timing header: milliseconds with three decimals.
void append_timing(std::string& out, std::string_view name, MonoNs from, MonoNs to) {
    constexpr MonoNs kNsPerUs = 1'000;
    const MonoNs us = std::max<MonoNs>(to - from, 0) / kNsPerUs;
    fmt::format_to(std::back_inserter(out), "{}{};dur={}.{:03}", out.empty() ? "" : ", ", name,
                   us / 1000, us % 1000);
}

}  // namespace

// Outlives the exchange in the loop's inbox; the pointer is cleared and read on the loop's thread
// only.
class MessagesExchange::Wake final : public Ready {
  public:
    explicit Wake(MessagesExchange* owner) : owner_(owner) {}
    void on_ready() override {
        if (owner_ != nullptr) owner_->pump();
    }
    void detach() { owner_ = nullptr; }

  private:
    MessagesExchange* owner_;
};

// A large body on its way through a worker. The pointer to the exchange is used on the loop's
// thread only; the rest is the worker's until it signals.
class MessagesExchange::Reading final : public Ready {
  public:
    Reading(MessagesExchange* owner, std::unique_ptr<Body> body, ReadTerms terms)
        : owner_(owner), body_(std::move(body)), terms_(std::move(terms)) {
        terms_.stop = [this] { return unwanted_.load(std::memory_order_relaxed); };
    }
    void work() {
        result_ = read_messages(*body_, terms_);
        body_.reset();
    }
    void on_ready() override {
        if (owner_ != nullptr) std::exchange(owner_, nullptr)->take_read(std::move(result_));
    }
    void detach() {
        owner_ = nullptr;
        unwanted_.store(true, std::memory_order_relaxed);
    }

  private:
    MessagesExchange* owner_;
    std::atomic<bool> unwanted_{false};
    std::unique_ptr<Body> body_;
    ReadTerms terms_;
    Result<ReadMessages> result_ = fail(Code::kCancelled, "api", "cancelled");
};

MessagesExchange::MessagesExchange(const ServiceOptions& options, const Catalog& catalog,
                                   wire::Responder& responder, MessagesHead head)
    : options_(options),
      catalog_(catalog),
      responder_(responder),
      head_(std::move(head)),
      body_(std::make_unique<Body>(options.body_cap_bytes, head_.content_length,
                                   options.body_budget,
                                   MemoryBudget::slot_of(head_.principal.workspace))) {
    if (head_.record != nullptr) {  // known even when no answer is ever begun
        head_.record->request_id = head_.answer.request_id;
        head_.record->trace_id = head_.answer.trace_id;
    }
    if (auto ok = body_->set_encoding(head_.content_encoding); !ok) {
        fail_with(ok.error());
        return;
    }
    responder_.send_continue();
}

MessagesExchange::~MessagesExchange() { end(CancelReason::kDisconnect); }

// --- the request
// ----------------------------------------------------------------------------------

void MessagesExchange::on_body(std::string_view bytes) {
    if (phase_ != Phase::kCollecting) return;
    head_.admission->on_body_bytes(options_.now());
    if (auto ok = body_->append(bytes); !ok) fail_with(ok.error());
}

void MessagesExchange::on_body_end() {
    if (phase_ != Phase::kCollecting) return;
    if (auto ok = body_->finish(); !ok) {
        fail_with(ok.error());
        return;
    }
    phase_ = Phase::kReading;
    if (body_->bytes().size() > kLargeBody && head_.workers != nullptr) return read_elsewhere();
    ReadTerms terms = read_terms();
    terms.parse.known_models = [this] {
        return catalog_.names([this](std::string_view id) { return head_.admission->may_use(id); });
    };
    take_read(read_messages(*body_, terms));
}

ReadTerms MessagesExchange::read_terms() const {
    return {.parse = {.version = head_.version,
                      .sampling = options_.sampling_params,
                      .endpoint = head_.endpoint,
                      .catalog = &catalog_,
                      .hinted_model = std::string(head_.admission->hinted_model())},
            .options = &options_,
            .skeleton = head_.skeleton,
            .request_id = head_.answer.request_id,
            .strict_skeleton = head_.strict_skeleton,
            .stop = {}};
}

void MessagesExchange::read_elsewhere() {
    ReadTerms terms = read_terms();
    std::string names =
        catalog_.names([this](std::string_view id) { return head_.admission->may_use(id); });
    terms.parse.known_models = [names = std::move(names)] { return names; };
    reading_ = std::make_shared<Reading>(this, std::move(body_), std::move(terms));
    const bool taken = head_.workers->submit(head_.principal.workspace,
                                             [&loop = responder_.loop(), reading = reading_] {
                                                 reading->work();
                                                 loop.signal(*reading);
                                             });
    if (!taken) fail_with(bodies_full());
}

void MessagesExchange::take_read(Result<ReadMessages>&& read) {
    if (!read) return fail_with(read.error());
    if (auto ok = head_.admission->check_model(read->parsed.model->id); !ok)
        return fail_with(ok.error());
    if (head_.endpoint == Endpoint::kWarmUp) skeleton_key_ = read->skeleton.whole.hex();
    if (head_.debug_skeleton)
        head_.answer.headers.push_back(
            {"x-anthropic-skeleton",
             fmt::format("{};dropped={}", read->skeleton.header, read->dropped_lines)});
    dropped_lines_ = read->dropped_lines;
    submit(std::move(read->parsed));
}

void MessagesExchange::submit(ParsedMessages parsed) {
    mode_ = head_.endpoint == Endpoint::kCountTokens ? Mode::kCount
            : head_.endpoint == Endpoint::kWarmUp    ? Mode::kWarmUp
            : parsed.stream                          ? Mode::kStream
                                                     : Mode::kWhole;
    frame_ = MessageFrame{.id = new_id("msg_"),
                          .model = parsed.request.model,
                          .context_management = parsed.context_management};
    auto request = std::make_shared<Request>(std::move(parsed.request));
    request->trace_id = head_.answer.trace_id;
    request->principal = head_.principal;
    head_.admission->on_structure(request->structure);
    const Admission::Terms terms = head_.admission->terms();
    request->lane = terms.lane;
    request->priority = terms.priority;
    request->promise = terms.promise;
    request->expected_output = std::min(terms.expected_output, request->max_tokens);
    request->trace_parent = head_.answer.trace_parent;
    max_tokens_ = request->max_tokens;
    max_total_tokens_ = request->max_total_tokens;
    merge_ = terms.buffering.value_or(head_.version == Version::k2024_07_15);
    request->received_ns = head_.received_ns;
    if (options_.deadline_ms > 0)
        request->deadline_ns = head_.received_ns + options_.deadline_ms * kNsPerMs;

    if (head_.record != nullptr) head_.record->model = frame_.model;
    phase_ = Phase::kWaiting;
    submitted_ns_ = last_write_ns_ = options_.now();
    if (mode_ == Mode::kStream) sse_ = std::make_unique<SseMessage>(frame_);
    wake_ = std::make_shared<Wake>(this);
    stream_ = std::make_shared<Stream>(&responder_.loop(), wake_);
    start_timers();
    engine_ = parsed.model->engine;
    if (mode_ == Mode::kWarmUp) warm_up_ = request;
    engine_->submit(std::move(request), stream_);
}

// Some templates refuse a prompt without a user: then an empty one stands behind it.
bool MessagesExchange::retry_warm_up(const Error& error) {
    if (!warm_up_ || error.code != Code::kInvalidRequest) return false;
    const RequestPtr request = std::exchange(warm_up_, nullptr);
    if (request->turns.empty() || !add_user_turn(*request))
        return false;  // or it was not the template
    finished_ = false;
    stream_ = std::make_shared<Stream>(&responder_.loop(), wake_);
    engine_->submit(request, stream_);
    return true;
}

// --- time
// -----------------------------------------------------------------------------------------

void MessagesExchange::start_timers() {
    if (options_.deadline_ms > 0) {
        const MonoNs left = head_.received_ns + options_.deadline_ms * kNsPerMs - submitted_ns_;
        deadline_ = responder_.loop().after(std::max<std::int64_t>(left / kNsPerMs, 0),
                                            [this] { deadline_ = 0, on_deadline(); });
    }
    const bool stream = mode_ == Mode::kStream;
    const std::int64_t first =
        stream ? std::max<std::int64_t>(options_.header_delay_ms, 0) : options_.whole_keepalive_ms;
    if (stream || first > 0)
        tick_ = responder_.loop().after(first, [this] { tick_ = 0, on_tick(); });
}

// Streams: the head at the latest now, then a ping per interval of silence. Others: white space.
// One timer that looks at the time of the last write, so that a token costs no timer.
void MessagesExchange::on_tick() {
    const std::int64_t interval = std::max<std::int64_t>(options_.ping_interval_ms, 1);
    std::int64_t next = interval;
    if (mode_ != Mode::kStream) {
        if (!whole_begun_) begin_whole_early();
        if (responder_.buffered_bytes() == 0) out_ += ' ';
    } else if (phase_ == Phase::kWaiting) {
        begin_stream({});
        SseMessage::ping(out_);
    } else {
        const std::int64_t silent = (options_.now() - last_write_ns_) / kNsPerMs;
        if (silent < interval) {
            next = interval - silent;
        } else if (responder_.buffered_bytes() == 0) {  // else it is the client who does not read
            SseMessage::ping(out_);
        }
    }
    flush();
    if (phase_ == Phase::kEnded) return;
    tick_ = responder_.loop().after(next, [this] { tick_ = 0, on_tick(); });
}

void MessagesExchange::on_deadline() {
    if (stream_) stream_->cancel(CancelReason::kDeadline);
    fail_with(
        Error{.code = Code::kTimeout,
              .detail = fmt::format("the request took longer than {} ms", options_.deadline_ms),
              .origin = "api"});
}

// --- events
// ---------------------------------------------------------------------------------------

void MessagesExchange::on_writable() { pump(); }

bool MessagesExchange::may_pop() const {
    return mode_ != Mode::kStream || responder_.buffered_bytes() + out_.size() <= kMaxBuffered;
}

// Everything that is there leaves in one write; what a slow client leaves no room for stays in the
// ring.
void MessagesExchange::pump() {
    if (pumping_ || phase_ == Phase::kEnded || !stream_) return;
    pumping_ = true;
    Event event;
    for (bool popped = true; popped;) {
        popped = false;
        while (phase_ != Phase::kEnded && may_pop() && stream_->try_pop(event)) {
            popped = true;
            handle(event);
        }
        flush();
    }
    pumping_ = false;
}

void MessagesExchange::handle(Event& event) {
    if (const auto* prepared = std::get_if<Prepared>(&event)) {
        handle_prepared(*prepared);
    } else if (const auto* text = std::get_if<Text>(&event)) {
        handle_text(*text);
    } else if (const auto* done = std::get_if<Done>(&event)) {
        finished_ = true;
        handle_done(*done);
    } else if (const auto* failed = std::get_if<Failed>(&event)) {
        finished_ = true;
        handle_failed(failed->error);
    }
}

void MessagesExchange::handle_prepared(const Prepared& event) {
    input_tokens_ = event.input_tokens;
    if (head_.record != nullptr) head_.record->input_tokens = event.input_tokens;
    if (mode_ == Mode::kCount) {
        finished_ = true;  // counting never goes further
        finish_whole(render_count(event.input_tokens, frame_.context_management));
        end(CancelReason::kNone);
        return;
    }
    auto ok = check_total_cap(input_tokens_);
    if (ok) ok = head_.admission->charge(input_tokens_, max_tokens_, options_.now(), wall_now());
    if (!ok) {
        input_tokens_ = -1;  // nothing to settle
        fail_with(ok.error());
        return;
    }
    refresh_rate_limits();
}

Status MessagesExchange::check_total_cap(std::int32_t input_tokens) const {
    if (max_total_tokens_ == 0 || input_tokens < max_total_tokens_) return {};
    return fail(Code::kInvalidRequest, "api",
                fmt::format("max_tokens: {} caps input and output together under anthropic-version "
                            "{}, and the input alone is {} tokens",
                            max_total_tokens_, version_name(head_.version), input_tokens));
}

// For a head that is still to be sent: what is left now, not what was when the request came.
void MessagesExchange::refresh_rate_limits() {
    std::vector<wire::Header> fresh;
    head_.admission->append_rate_limits(options_.now(), wall_now(), fresh);
    if (fresh.empty()) return;
    std::erase_if(head_.answer.headers,
                  [](const wire::Header& h) { return h.name.starts_with("anthropic-ratelimit-"); });
    std::ranges::move(fresh, std::back_inserter(head_.answer.headers));
}

void MessagesExchange::handle_text(const Text& event) {
    if (head_.record != nullptr) {
        if (head_.record->first_token_ns == 0) head_.record->first_token_ns = options_.now();
        head_.record->output_tokens = event.output_tokens;
    }
    output_tokens_ = event.output_tokens;
    cache_read_tokens_ = event.usage.cache_read_tokens;
    if (mode_ == Mode::kWhole) {
        text_ += event.delta;
        return;
    }
    if (mode_ != Mode::kStream) return;
    if (phase_ == Phase::kWaiting)
        begin_stream({.admitted_ns = event.admitted_ns,
                      .prefill_done_ns = event.prefill_done_ns,
                      .first_token_ns = options_.now()});
    // Not before: what the caches hold of the prompt is known once it was computed.
    Usage prompt = event.usage;
    prompt.input_tokens = std::max(input_tokens_, 0);
    sse_->start(out_, prompt);
    if (!merge_) return sse_->text(out_, event.delta);
    merged_ += event.delta;
    if (merged_.size() >= kMergeBytes)
        send_merged();
    else if (merge_timer_ == 0)
        merge_timer_ = responder_.loop().after(kMergeMs, [this] {
            merge_timer_ = 0;
            send_merged();
            flush();
        });
}

// To out_; the caller flushes.
void MessagesExchange::send_merged() {
    if (merge_timer_ != 0) responder_.loop().cancel(merge_timer_);
    merge_timer_ = 0;
    if (merged_.empty()) return;
    sse_->text(out_, merged_);
    merged_.clear();
}

void MessagesExchange::note_done(const Done& done) {
    if (head_.record == nullptr) return;
    head_.record->input_tokens = done.usage.input_tokens;
    head_.record->output_tokens = done.usage.output_tokens;
    if (done.first_token_ns != 0) head_.record->first_token_ns = done.first_token_ns;
}

void MessagesExchange::handle_done(const Done& event) {
    note_done(event);
    // What was to generate nothing says nothing about the length of answers.
    head_.admission->settle(event.usage, max_tokens_ > 0, options_.now());
    refresh_rate_limits();
    if (mode_ == Mode::kStream) {
        if (phase_ == Phase::kWaiting) begin_stream(stamps_of(event));
        send_merged();
        sse_->done(out_, event);
        flush();
        responder_.finish();
    } else {
        finish_whole(mode_ == Mode::kWarmUp
                         ? render_warm_up(skeleton_key_, event, options_.now(), wall_now())
                         : render_message(frame_, text_, event),
                     {server_timing(stamps_of(event), true)});
    }
    end(CancelReason::kNone);
}

void MessagesExchange::handle_failed(const Error& error) {
    if (retry_warm_up(error)) return;
    if (error.code == Code::kInternal)
        log_error("api", "{} failed: {} ({})", head_.answer.request_id, error.detail, error.origin);
    // Turned away before it ran: it used nothing.
    const bool turned_away = error.code == Code::kOverloaded || error.code == Code::kUnavailable ||
                             error.code == Code::kRateLimited;
    if (turned_away && output_tokens_ == 0) head_.admission->settle({}, false, options_.now());
    fail_with(error);
}

// --- the answer
// -----------------------------------------------------------------------------------

void MessagesExchange::begin_stream(const Stamps& stamps) {
    phase_ = Phase::kStreaming;
    wire::ResponseHead head = make_head(head_.answer, 200, "text/event-stream; charset=utf-8");
    head.headers.push_back({"cache-control", "no-cache"});
    head.headers.push_back({"x-accel-buffering", "no"});  // a proxy in between must not collect it
    head.headers.push_back(server_timing(stamps, false));
    responder_.send_head(head);
    last_write_ns_ = options_.now();
}

void MessagesExchange::begin_whole_early() {
    whole_begun_ = true;
    phase_ = Phase::kStreaming;
    responder_.send_head(make_head(head_.answer, 200, "application/json"));
}

void MessagesExchange::finish_whole(std::string body, const std::vector<wire::Header>& extra) {
    if (!whole_begun_) return answer_json(responder_, head_.answer, 200, std::move(body), extra);
    out_ += body;
    flush();
    responder_.finish();
}

void MessagesExchange::flush() {
    if (out_.empty() || phase_ == Phase::kEnded) return;
    std::string bytes;
    bytes.swap(out_);
    responder_.send_body(bytes);
    last_write_ns_ = options_.now();
    bytes.clear();
    if (out_.empty()) out_.swap(bytes);  // keeps the allocation for the next token
}

// The one way an exchange ends badly: by what the client has already seen.
void MessagesExchange::fail_with(const Error& error) {
    if (phase_ == Phase::kEnded) return;
    if (blames_the_request(error.code)) {
        head_.admission->refund_request(options_.now());
        refresh_rate_limits();
    }
    if (phase_ != Phase::kStreaming) {
        answer_error(responder_, head_.answer, error);
    } else if (mode_ == Mode::kStream) {
        send_merged();
        out_ += error_event(error, head_.answer.request_id);
        flush();
        responder_.finish();
    } else {
        // 200 is out and no error can follow it: cutting the connection is the only honest answer.
        responder_.abort();
    }
    end(CancelReason::kDisconnect);
}

void MessagesExchange::on_disconnect() { end(CancelReason::kDisconnect); }

void MessagesExchange::end(CancelReason why) {
    phase_ = Phase::kEnded;
    // An answer that was cut short pays for what it used, which is nothing while it waited for its
    // turn; one that ended is settled already.
    const bool computed = stream_ && !stream_->queued_approx();
    head_.admission->settle({.input_tokens = computed ? std::max(input_tokens_, 0) : 0,
                             .cache_read_tokens = cache_read_tokens_,
                             .output_tokens = output_tokens_},
                            false, options_.now());
    if (wake_) wake_->detach();
    if (stream_ && !finished_ && why != CancelReason::kNone) stream_->cancel(why);
    if (tick_ != 0) responder_.loop().cancel(tick_);
    if (deadline_ != 0) responder_.loop().cancel(deadline_);
    if (merge_timer_ != 0) responder_.loop().cancel(merge_timer_);
    tick_ = deadline_ = merge_timer_ = 0;
    if (reading_) reading_->detach();
    reading_.reset();
    body_.reset();
}

MessagesExchange::Stamps MessagesExchange::stamps_of(const Done& done) {
    return {.admitted_ns = done.admitted_ns,
            .prefill_done_ns = done.prefill_done_ns,
            .first_token_ns = done.first_token_ns};
}

// What is known when a head leaves; the total only of an answer that has ended.
wire::Header MessagesExchange::server_timing(const Stamps& stamps, bool ended) const {
    std::string value;
    append_timing(value, "dispatch", head_.received_ns, submitted_ns_);
    if (stamps.admitted_ns != 0) append_timing(value, "queue", submitted_ns_, stamps.admitted_ns);
    if (stamps.admitted_ns != 0 && stamps.prefill_done_ns != 0)
        append_timing(value, "prefill", stamps.admitted_ns, stamps.prefill_done_ns);
    if (stamps.first_token_ns != 0)
        append_timing(value, "ttft", head_.received_ns, stamps.first_token_ns);
    if (ended) append_timing(value, "total", head_.received_ns, options_.now());
    if (dropped_lines_ > 0) value += fmt::format(", dropped-lines;desc=\"{}\"", dropped_lines_);
    return {"server-timing", std::move(value)};
}

}  // namespace zerohop::api
