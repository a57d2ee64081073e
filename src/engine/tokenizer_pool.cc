#include "engine/tokenizer_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace zerohop::engine {
namespace {

void refuse(Stream& stream, Code code, std::string detail) {
    Error error{.code = code, .detail = std::move(detail), .origin = "engine"};
    if (code == Code::kOverloaded) error.retry_after_ms = 1000;
    (void)stream.try_push(Failed{std::move(error)});
}

}  // namespace

TokenizerPool::TokenizerPool(const PromptRenderer& renderer, const Tokenizer& tokenizer,
                             const Limits& limits, OnReady on_ready)
    : renderer_(renderer), tokenizer_(tokenizer), limits_(limits), on_ready_(std::move(on_ready)) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, Tokenizer::kStackBytes);
    for (std::int32_t i = 0; i < std::max(limits_.threads, 1); ++i) {
        pthread_t thread{};
        if (pthread_create(&thread, &attributes, &TokenizerPool::thread_main, this) == 0)
            threads_.push_back(thread);
    }
    pthread_attr_destroy(&attributes);
    ZH_CHECK(!threads_.empty());
}

TokenizerPool::~TokenizerPool() { stop(); }

void* TokenizerPool::thread_main(void* self) {
    static_cast<TokenizerPool*>(self)->run();
    return nullptr;
}

void TokenizerPool::submit(RequestPtr request, StreamPtr stream) {
    bool full = false;
    {
        const std::lock_guard lock(mutex_);
        full = queue_.size() >= static_cast<std::size_t>(std::max(limits_.queue, 1));
        if (!full && !stopping_) {
            queue_.push_back({std::move(request), std::move(stream)});
            wake_.notify_one();
            return;
        }
    }
    if (full)
        return refuse(*stream, Code::kOverloaded,
                      fmt::format("overloaded: too many requests of model \"{}\" wait to be "
                                  "tokenized; try again in 1 s",
                                  request->model));
    refuse(*stream, Code::kUnavailable, "shutting down");
}

void TokenizerPool::stop() {
    std::deque<Job> left;
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
        left.swap(queue_);
    }
    wake_.notify_all();
    for (const Job& job : left) refuse(*job.stream, Code::kUnavailable, "shutting down");
    for (const pthread_t thread : std::exchange(threads_, {})) pthread_join(thread, nullptr);
}

void TokenizerPool::run() {
    while (true) {
        Job job;
        {
            std::unique_lock lock(mutex_);
            wake_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
            if (stopping_) return;
            job = std::move(queue_.front());
            queue_.pop_front();
        }
        work(std::move(job));
    }
}

void TokenizerPool::work(Job&& job) {
    Stream& stream = *job.stream;
    if (const CancelReason why = stream.cancelled(); why != CancelReason::kNone) {
        if (why == CancelReason::kDeadline) refuse(stream, Code::kTimeout, "deadline exceeded");
        if (why == CancelReason::kShutdown) refuse(stream, Code::kUnavailable, "shutting down");
        return;
    }
    if (job.request->deadline_ns != 0 && mono_now() >= job.request->deadline_ns)
        return refuse(stream, Code::kTimeout, "deadline exceeded");
    const auto context = static_cast<std::size_t>(limits_.context_tokens);
    const auto too_long = [&](std::string_view least, std::size_t tokens) {
        refuse(stream, Code::kInvalidRequest,
               fmt::format("prompt is {}{} tokens, the model's context is {}", least, tokens,
                           context));
    };
    // What cannot fit is refused before any work is put into it.
    std::size_t bytes = 0;
    for (const Turn& turn : job.request->turns)
        for (const std::string& part : turn.parts) bytes += part.size();
    if (const std::size_t least = bytes / tokenizer_.longest_token(); least >= context)
        return too_long("at least ", least);

    PreparedRequest ready;
    try {
        const Result<Prompt> prompt =
            renderer_.render(job.request->turns, job.request->continue_last);
        if (!prompt) {
            (void)stream.try_push(Failed{prompt.error()});
            return;
        }
        ready.tokens = tokenizer_.encode(*prompt);
        ready.request = job.request;
        if (job.request->work == Work::kGenerate) mark(ready);
    } catch (const std::exception& e) {
        return refuse(stream, Code::kInternal, fmt::format("tokenizing failed: {}", e.what()));
    }
    if (ready.tokens.size() >= context) return too_long("", ready.tokens.size());
    if (ready.tokens.empty())
        return refuse(stream, Code::kInvalidRequest, "messages: the prompt is empty");
    stream.set_queued(true);  // until something is computed for it
    (void)stream.try_push(Prepared{static_cast<std::int32_t>(ready.tokens.size())});
    if (job.request->work == Work::kCount) return;
    ready.stream = std::move(job.stream);
    ready.ready_ns = mono_now();
    on_ready_(std::move(ready));
}

// A breakpoint lies where the prompt stops being what the conversation up to there would give: that
// holds for any template, however it frames its turns.
void TokenizerPool::mark(PreparedRequest& ready) const {
    const Request& request = *ready.request;
    for (const CacheBreakpoint& point : request.breakpoints) {
        std::vector<Turn> turns(
            request.turns.begin(),
            request.turns.begin() +
                std::min<std::ptrdiff_t>(point.turn + 1, std::ssize(request.turns)));
        if (turns.empty()) continue;
        std::vector<std::string>& parts = turns.back().parts;
        parts.resize(std::min<std::size_t>(parts.size(), point.part + 1));
        const Result<Prompt> prompt = renderer_.render_beginning(turns);
        if (!prompt) continue;
        const std::vector<std::int32_t> tokens = tokenizer_.encode(*prompt);
        const auto [differs, unused] = std::ranges::mismatch(ready.tokens, tokens);
        const auto same = static_cast<std::int32_t>(differs - ready.tokens.begin());
        if (same > 0) ready.marks.push_back({.tokens = same, .ttl_ns = point.ttl_ns});
    }
}

}  // namespace zerohop::engine
