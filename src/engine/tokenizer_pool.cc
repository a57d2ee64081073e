#include "engine/tokenizer_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <memory>
#include <utility>

#include "base/background.h"
#include "base/check.h"
#include "engine/too_long.h"

namespace zerohop::engine {
namespace {

std::unexpected<Error> refused(Code code, std::string detail) {
    Error error{.code = code, .detail = std::move(detail), .origin = "engine"};
    if (code == Code::kOverloaded) error.retry_after_ms = 1000;
    return std::unexpected(std::move(error));
}

void refuse(Stream& stream, Code code, std::string detail) {
    (void)stream.try_push(Failed{refused(code, std::move(detail)).error()});
}

std::unexpected<Error> too_long(std::string_view least, std::size_t tokens, std::size_t context) {
    return refused(Code::kInvalidRequest, too_long_text(least, tokens, context));
}

std::size_t bytes_of(const Request& request) {
    std::size_t bytes = 0;
    for (const Turn& turn : request.turns)
        for (const std::string& part : turn.parts) bytes += part.size() + kBetweenParts.size();
    return bytes;
}

}  // namespace

TokenizerPool::TokenizerPool(const PromptRenderer& renderer, const Tokenizer& tokenizer,
                             const Limits& limits, OnReady on_ready)
    : renderer_(renderer),
      tokenizer_(tokenizer),
      limits_(limits),
      on_ready_(std::move(on_ready)),
      small_(static_cast<std::size_t>(std::max(limits.queue, 1))),
      large_(static_cast<std::size_t>(std::max(limits.queue, 1))) {
    start(small_, std::max(limits_.threads, 1), false);
    start(large_, 1, true);
}

void TokenizerPool::start(Side& side, std::int32_t threads, bool background) {
    struct Main {
        TokenizerPool& pool;
        Side& side;
        bool background;
    };
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, Tokenizer::kStackBytes);
    std::int32_t started = 0;
    for (std::int32_t i = 0; i < threads; ++i) {
        auto main = std::make_unique<Main>(Main{*this, side, background});
        const auto entry = [](void* arg) -> void* {
            const std::unique_ptr<Main> mine(static_cast<Main*>(arg));
            if (mine->background) give_way_to_others();
            mine->pool.run(mine->side);
            return nullptr;
        };
        pthread_t thread{};
        if (pthread_create(&thread, &attributes, entry, main.get()) != 0) continue;
        (void)main.release();  // the thread's now
        threads_.push_back(thread);
        ++started;
    }
    pthread_attr_destroy(&attributes);
    ZH_CHECK(started > 0);
}

TokenizerPool::~TokenizerPool() { stop(); }

void TokenizerPool::submit(RequestPtr request, StreamPtr stream) {
    const bool large = request->turns.size() > kLargeTurns || bytes_of(*request) > kLargeBytes;
    const std::string model = request->model;
    const std::string workspace = request->principal.workspace;
    Side& side = large ? large_ : small_;
    Job job{.request = std::move(request), .stream = std::move(stream), .large = large};
    {
        const std::lock_guard lock(mutex_);
        if (!stopping_ && side.queue.push(workspace, std::move(job))) return side.wake.notify_one();
    }
    if (stopping_) return refuse(*job.stream, Code::kUnavailable, "shutting down");
    refuse(*job.stream, Code::kOverloaded,
           fmt::format("overloaded: too many requests of model \"{}\" wait to be tokenized; try "
                       "again in 1 s",
                       model));
}

void TokenizerPool::stop() {
    std::vector<Job> left;
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
        for (Side* side : {&small_, &large_})
            while (!side->queue.empty()) left.push_back(side->queue.pop());
    }
    small_.wake.notify_all();
    large_.wake.notify_all();
    for (const Job& job : left) refuse(*job.stream, Code::kUnavailable, "shutting down");
    for (const pthread_t thread : std::exchange(threads_, {})) pthread_join(thread, nullptr);
}

void TokenizerPool::run(Side& side) {
    while (true) {
        std::unique_lock lock(mutex_);
        side.wake.wait(lock, [&] { return stopping_ || !side.queue.empty(); });
        if (stopping_) return;
        Job job = side.queue.pop();
        lock.unlock();
        work(std::move(job));
    }
}

bool TokenizerPool::give_up(const Job& job) const {
    const MonoNs deadline = job.request->deadline_ns;
    return stopping_.load(std::memory_order_relaxed) ||
           job.stream->cancelled() != CancelReason::kNone ||
           (deadline != 0 && mono_now() >= deadline);
}

void TokenizerPool::work(Job&& job) {
    Stream& stream = *job.stream;
    const StopFlag stop = [this, &job] { return give_up(job); };
    Result<PreparedRequest> ready = refused(Code::kCancelled, "cancelled");
    if (!stop()) {
        try {
            ready = prepare(job, stop);
        } catch (const std::exception& e) {
            ready = refused(Code::kInternal, fmt::format("tokenizing failed: {}", e.what()));
        }
    }
    if (stop()) {  // whatever came of it
        const CancelReason why = stream.cancelled();
        if (stopping_) return refuse(stream, Code::kUnavailable, "shutting down");
        if (why == CancelReason::kDisconnect) return;
        return refuse(stream, Code::kTimeout, "deadline exceeded");
    }
    if (!ready) return (void)stream.try_push(Failed{std::move(ready.error())});
    drop_turns(*job.request);
    const bool counted = job.request->work == Work::kCount;
    if (!counted) stream.set_queued(true);  // until something is computed for it
    (void)stream.try_push(Prepared{static_cast<std::int32_t>(ready->tokens.size())});
    if (counted) return;
    ready->request = std::move(job.request);
    ready->stream = std::move(job.stream);
    ready->ready_ns = mono_now();
    on_ready_(std::move(*ready));
}

// What cannot fit is refused before any work is put into it: no template makes less than a token of
// a turn.
Status TokenizerPool::check_size(const Request& request, std::size_t bytes) const {
    if (request.work == Work::kCount) return {};
    const auto context = static_cast<std::size_t>(limits_.context_tokens);
    const std::size_t least = std::max(request.turns.size(), bytes / tokenizer_.longest_token());
    if (least >= context) return too_long("at least ", least, context);
    return {};
}

Result<PreparedRequest> TokenizerPool::prepare(const Job& job, const StopFlag& stop) const {
    const Request& request = *job.request;
    const std::size_t bytes = bytes_of(request);
    if (Status fits = check_size(request, bytes); !fits) return std::unexpected(fits.error());
    MemoryCharge copies = request.memory ? request.memory->for_a_moment() : MemoryCharge();
    if (job.large && !copies.resize(kCopies * bytes))
        return refused(Code::kOverloaded,
                       "overloaded: the prompts being read fill their memory; try again in 1 s");
    PreparedRequest ready;
    ready.request = job.request;
    Tokenizer::Seen seen;
    Tokenizer::Seen* const keep = request.breakpoints.empty() ? nullptr : &seen;
    {
        const Result<Prompt> prompt = renderer_.render(request.turns, request.continue_last, stop);
        if (!prompt) return std::unexpected(prompt.error());
        ready.tokens = tokenizer_.encode(*prompt, stop, keep);
    }
    if (stop()) return refused(Code::kCancelled, "cancelled");
    if (ready.tokens.empty())
        return refused(Code::kInvalidRequest, "messages: the prompt is empty");
    if (request.work == Work::kCount) return ready;
    const auto context = static_cast<std::size_t>(limits_.context_tokens);
    if (ready.tokens.size() >= context) return too_long("", ready.tokens.size(), context);
    mark(ready, stop, seen);
    ready.output = OutputText(request.stop_sequences, request.stop_rule);
    return ready;
}

// A breakpoint lies where the prompt stops being what the conversation up to there would give: that
// holds for any template, however it frames its turns.
void TokenizerPool::mark(PreparedRequest& ready, const StopFlag& stop,
                         Tokenizer::Seen& seen) const {
    const Request& request = *ready.request;
    for (const CacheBreakpoint& point : request.breakpoints) {
        std::vector<Turn> turns(
            request.turns.begin(),
            request.turns.begin() +
                std::min<std::ptrdiff_t>(point.turn + 1, std::ssize(request.turns)));
        if (turns.empty()) continue;
        std::vector<std::string>& parts = turns.back().parts;
        parts.resize(std::min<std::size_t>(parts.size(), point.part + 1));
        const Result<Prompt> prompt = renderer_.render_beginning(turns, stop);
        if (!prompt) continue;
        const std::vector<std::int32_t> tokens = tokenizer_.encode(*prompt, stop, &seen);
        const auto [differs, unused] = std::ranges::mismatch(ready.tokens, tokens);
        const auto same = static_cast<std::int32_t>(differs - ready.tokens.begin());
        if (same > 0) ready.marks.push_back({.tokens = same, .ttl_ns = point.ttl_ns});
    }
}

}  // namespace zerohop::engine
