// TokenizerPool: a few threads with large stacks that render and tokenize requests.
//
//     submit (any thread) --bounded queue--> pool thread --> stream: Prepared | Failed
//                                                       --> on_ready (generate only)
//
// Large requests have a queue and one thread of their own, of lower priority: they hold up neither
// small ones nor the steps of who decodes. In both queues workspaces take turns.
//
// Failures, all told through the stream: kOverloaded (queue full, or no memory left for the work,
// with retry_after_ms), kInvalidRequest (template refuses; prompt ≥ context, both numbers in the
// text), kUnavailable (stopped). A request whose stream is cancelled, or past its deadline, is not
// worked on any further: that is looked at between pieces of bounded work, as is stop().
// Counting has no bound but the body's: it gives the exact number beyond the context as well.
// Stacks: virtual memory, touched only as deep as a text needs (tokenizer.h).
#pragma once

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "base/stop_flag.h"
#include "base/turn_queue.h"
#include "engine/prompt.h"
#include "engine/sequence.h"
#include "engine/tokenizer.h"
#include "request/output_text.h"
#include "request/stream.h"

namespace zerohop::engine {

struct PreparedRequest {
    RequestPtr request;
    StreamPtr stream;
    std::vector<std::int32_t> tokens;
    std::vector<CacheMark> marks;  // of the request's breakpoints, in order
    OutputText output{{}};         // made here: the engine's thread has no time for it
    MonoNs ready_ns = 0;
};

class TokenizerPool {
  public:
    struct Limits {
        std::int32_t threads = 2;  // for small requests
        std::int32_t queue = 256;  // small requests, and as many large ones
        std::int32_t context_tokens = 0;
    };
    static constexpr std::size_t kLargeBytes = 256 * 1024;  // of text: some 50 ms of work
    static constexpr std::size_t kLargeTurns = 1024;
    // Copies of a large text that live at once while it is rendered and tokenized.
    static constexpr std::size_t kCopies = 5;
    using OnReady = std::function<void(PreparedRequest&&)>;  // on a pool thread

    TokenizerPool(const PromptRenderer& renderer, const Tokenizer& tokenizer, const Limits& limits,
                  OnReady on_ready);
    ~TokenizerPool();
    TokenizerPool(const TokenizerPool&) = delete;
    TokenizerPool& operator=(const TokenizerPool&) = delete;

    void submit(RequestPtr request, StreamPtr stream);
    void stop();  // blocks until the threads have ended; what is queued fails with kUnavailable

  private:
    struct Job {
        RequestPtr request;
        StreamPtr stream;
        bool large = false;
    };
    // One queue and who works on it.
    struct Side {
        explicit Side(std::size_t most) : queue(most) {}
        TurnQueue<Job> queue;  // guarded by mutex_
        std::condition_variable wake;
    };
    void start(Side& side, std::int32_t threads, bool background);
    void run(Side& side);
    void work(Job&& job);
    bool give_up(const Job& job) const;
    Result<PreparedRequest> prepare(const Job& job, const StopFlag& stop) const;
    Status check_size(const Request& request, std::size_t bytes) const;
    void mark(PreparedRequest& ready, const StopFlag& stop, Tokenizer::Seen& seen) const;

    const PromptRenderer& renderer_;
    const Tokenizer& tokenizer_;
    const Limits limits_;
    const OnReady on_ready_;
    std::mutex mutex_;
    Side small_, large_;
    std::atomic<bool> stopping_{false};  // set under mutex_
    std::vector<pthread_t> threads_;
};

}  // namespace zerohop::engine
