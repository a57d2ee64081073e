// MessagesExchange: one POST /v1/messages, /v1/messages/count_tokens or /v1/cache/warmup, from its
// head to its last byte.
//
//     collecting the body -> reading it -> waiting for the first event -> streaming -> ended
//
// Owning thread: the connection's I/O thread; only Stream's ring and its wake-up cross to the
// engine, and a large body to a worker and back. The exchange owns its stream's consumer side:
// however it ends, the stream is cancelled if the engine may still be working. Errors before the
// head are HTTP errors; after it, in-stream `error` events or a reset, never a clean end without
// message_stop.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "api/answer.h"
#include "api/body.h"
#include "api/head_policy.h"
#include "api/messages_read.h"
#include "api/messages_render.h"
#include "api/options.h"
#include "api/skeleton_step.h"
#include "api/worker_pool.h"
#include "request/stream.h"
#include "wire/http.h"

namespace zerohop::api {

// What the head decided.
struct MessagesHead {
    Endpoint endpoint = Endpoint::kMessages;
    Version version = Version::k2026_10_21;
    AnswerContext answer;
    Principal principal;
    AccessRecord* record = nullptr;        // to fill in, outlives the exchange; null: nobody asks
    std::unique_ptr<Admission> admission;  // never null
    SkeletonStep* skeleton = nullptr;
    WorkerPool* workers = nullptr;
    bool debug_skeleton = false;   // x-anthropic-debug: skeleton
    bool strict_skeleton = false;  // x-anthropic-skeleton: strict
    std::string content_encoding;
    std::int64_t content_length = -1;
    MonoNs received_ns = 0;
};

class MessagesExchange final : public wire::Exchange {
  public:
    // A slow reader's stream is not popped beyond this; then the ring fills and the engine pauses
    // it.
    static constexpr std::size_t kMaxBuffered = 64 * 1024;
    // With stream buffering on, text waits for more of it, up to these.
    static constexpr std::size_t kMergeBytes = 1024;
    static constexpr std::int64_t kMergeMs = 40;

    // options and catalog outlive the exchange.
    MessagesExchange(const ServiceOptions& options, const Catalog& catalog,
                     wire::Responder& responder, MessagesHead head);
    ~MessagesExchange() override;

    void on_body(std::string_view bytes) override;
    void on_body_end() override;
    void on_writable() override;
    void on_disconnect() override;

  private:
    enum class Phase : std::uint8_t { kCollecting, kReading, kWaiting, kStreaming, kEnded };
    enum class Mode : std::uint8_t { kWhole, kStream, kCount, kWarmUp };
    class Wake;
    class Reading;
    // Of the request's life in the engine, mono ns; 0: not there yet, or never.
    struct Stamps {
        MonoNs admitted_ns = 0, prefill_done_ns = 0, first_token_ns = 0;
    };

    ReadTerms read_terms() const;
    void read_elsewhere();
    void take_read(Result<ReadMessages>&& read);
    void note_done(const Done& done);
    void submit(ParsedMessages parsed);
    bool retry_warm_up(const Error& error);
    void start_timers();
    void refresh_rate_limits();
    Status check_total_cap(std::int32_t input_tokens) const;
    void send_merged();
    void pump();
    bool may_pop() const;
    void handle(Event& event);
    void handle_prepared(const Prepared& event);
    void handle_text(const Text& event);
    void handle_done(const Done& event);
    void handle_failed(const Error& error);

    void begin_stream(const Stamps& stamps);
    void begin_whole_early();
    void finish_whole(std::string body, const std::vector<wire::Header>& extra = {});
    void flush();
    void on_tick();
    void on_deadline();
    void fail_with(const Error& error);
    void end(CancelReason why);
    static Stamps stamps_of(const Done& done);
    wire::Header server_timing(const Stamps& stamps, bool ended) const;

    const ServiceOptions& options_;
    const Catalog& catalog_;
    wire::Responder& responder_;
    MessagesHead head_;
    std::unique_ptr<Body> body_;
    Phase phase_ = Phase::kCollecting;
    Mode mode_ = Mode::kWhole;
    bool pumping_ = false;
    bool finished_ = false;     // the engine has said its last word
    bool whole_begun_ = false;  // a non-streamed 200 left early

    std::shared_ptr<Reading> reading_;
    std::shared_ptr<Wake> wake_;
    StreamPtr stream_;
    MessageFrame frame_;
    EnginePort* engine_ = nullptr;
    std::uint32_t dropped_lines_ = 0;  // of the system prompt
    std::string skeleton_key_;         // warm-ups
    RequestPtr warm_up_;               // until it was tried with a user turn
    std::unique_ptr<SseMessage> sse_;
    std::string text_;                // non-streamed answers
    std::string out_;                 // bytes of this wake-up
    std::int32_t input_tokens_ = -1;  // -1: not Prepared yet
    std::int32_t output_tokens_ = 0;  // sampled, as far as told
    std::int32_t cache_read_tokens_ = 0;
    std::int32_t max_tokens_ = 0;
    std::int32_t max_total_tokens_ = 0;
    MonoNs submitted_ns_ = 0;
    MonoNs last_write_ns_ = 0;
    TimerId tick_ = 0;
    TimerId deadline_ = 0;
    bool merge_ = false;  // small pieces of text leave together
    std::string merged_;  // text that waits for more of it
    TimerId merge_timer_ = 0;
};

}  // namespace zerohop::api
