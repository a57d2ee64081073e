// TokenizerPool: a few threads with large stacks that render and tokenize requests.
//
//     submit (any thread) --bounded queue--> pool thread --> stream: Prepared | Failed
//                                                       --> on_ready (generate only)
//
// Failures, all told through the stream: kOverloaded (queue full, with retry_after_ms),
// kInvalidRequest (template refuses; prompt ≥ context, both numbers in the text), kUnavailable
// (stopped). A request whose stream is cancelled, or past its deadline, is not worked on.
// Stacks: virtual memory, touched only as deep as a text needs (tokenizer.h).
#pragma once

#include <pthread.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <vector>

#include "engine/prompt.h"
#include "engine/sequence.h"
#include "engine/tokenizer.h"
#include "request/stream.h"

namespace zerohop::engine {

struct PreparedRequest {
    RequestPtr request;
    StreamPtr stream;
    std::vector<std::int32_t> tokens;
    std::vector<CacheMark> marks;  // of the request's breakpoints, in order
    MonoNs ready_ns = 0;
};

class TokenizerPool {
  public:
    struct Limits {
        std::int32_t threads = 2;
        std::int32_t queue = 256;  // requests
        std::int32_t context_tokens = 0;
    };
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
    };
    static void* thread_main(void* self);
    void run();
    void work(Job&& job);
    void mark(PreparedRequest& ready) const;

    const PromptRenderer& renderer_;
    const Tokenizer& tokenizer_;
    const Limits limits_;
    const OnReady on_ready_;
    std::mutex mutex_;
    std::condition_variable wake_;
    std::deque<Job> queue_;  // guarded by mutex_
    bool stopping_ = false;  // guarded by mutex_
    std::vector<pthread_t> threads_;
};

}  // namespace zerohop::engine
