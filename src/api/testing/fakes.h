// Fakes for api's tests: a loop whose clock the test steps, a responder that records, an engine
// whose events the test pushes. Test code only; single-threaded unless a test signals from its own
// thread.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/loop_inbox.h"
#include "request/engine_port.h"
#include "wire/http.h"

namespace zerohop::api {

class FakeLoop final : public Loop {
  public:
    void post(std::function<void()> fn) override { posted_.push_back(std::move(fn)); }
    void signal(Ready& ready) noexcept override { inbox_.push(ready); }
    TimerId after(std::int64_t delay_ms, std::function<void()> fn) override {
        const TimerId id = ++last_id_;
        timers_.emplace(std::pair(now_ + delay_ms * kNsPerMs, id), std::move(fn));
        return id;
    }
    void cancel(TimerId id) override {
        std::erase_if(timers_, [id](const auto& timer) { return timer.first.second == id; });
    }

    // Handles what was posted and signalled.
    void run() {
        inbox_.drain([](Ready& ready) { ready.on_ready(); });
        auto posted = std::exchange(posted_, {});
        for (auto& fn : posted) fn();
    }
    // Lets time pass; timers run at their moment, wake-ups after each.
    void advance_ms(std::int64_t ms) {
        const MonoNs end = now_ + ms * kNsPerMs;
        while (!timers_.empty() && timers_.begin()->first.first <= end) {
            auto node = timers_.extract(timers_.begin());
            now_ = std::max(now_, node.key().first);
            node.mapped()();
            run();
        }
        now_ = end;
        run();
    }
    MonoNs now() const { return now_; }
    std::size_t timers() const { return timers_.size(); }

  private:
    MonoNs now_ = kNsPerSec;
    TimerId last_id_ = 0;
    std::map<std::pair<MonoNs, TimerId>, std::function<void()>> timers_;
    std::vector<std::function<void()>> posted_;
    LoopInbox inbox_;
};

class FakeResponder final : public wire::Responder {
  public:
    explicit FakeResponder(FakeLoop& loop) : loop_(loop) {}
    Loop& loop() override { return loop_; }
    void send_continue() override { ++continues; }
    void send_head(const wire::ResponseHead& head_in) override {
        ++heads;
        head = head_in;
    }
    void send_body(std::string_view bytes) override {
        ++writes;
        body += bytes;
        if (hold) held += bytes.size();
    }
    void finish() override { finished = true; }
    void abort() override { aborted = true; }
    std::size_t buffered_bytes() const override { return held; }

    std::string header(std::string_view name) const {
        for (const wire::Header& h : head.headers)
            if (h.name == name) return h.value;
        return "(absent)";
    }

    wire::ResponseHead head;
    std::string body;
    int heads = 0, writes = 0, continues = 0;
    bool finished = false, aborted = false;
    bool hold = false;     // the client does not read
    std::size_t held = 0;  // bytes it has not read

  private:
    FakeLoop& loop_;
};

class FakeEngine final : public EnginePort {
  public:
    explicit FakeEngine(std::string id, WallNs created_ns = 0, std::int32_t context = 8192) {
        info_.id = std::move(id);
        info_.display_name = info_.id + " (fake)";
        info_.created_ns = created_ns;
        info_.context_tokens = context;
    }
    const ModelInfo& info() const override { return info_; }
    void submit(RequestPtr request_in, StreamPtr stream_in) override {
        ++submitted;
        request = std::move(request_in);
        stream = std::move(stream_in);
        stream->set_producer(this);
        if (at_once) stream->try_push(std::move(*at_once));
        at_once.reset();
    }
    EngineStats stats_approx() const override { return {}; }
    std::shared_ptr<const CacheList> cached_approx() const override { return cached; }
    void forget_cached(std::string_view workspace, std::uint64_t id) override {
        forgotten += std::string(workspace) + "/" + std::to_string(id) + " ";
    }
    void drain() override {}
    void stop() override {}
    void notify() noexcept override { ++notified; }

    ModelInfo info_;
    RequestPtr request;
    StreamPtr stream;
    std::unique_ptr<Event> at_once;  // the answer that comes before submit returns
    std::shared_ptr<const CacheList> cached;
    std::string forgotten;  // "workspace/id " of each call
    int submitted = 0, notified = 0;
};

inline Done done_event(StopReason reason, std::int32_t input, std::int32_t output,
                       std::int32_t cached = 0) {
    Done done;
    done.reason = reason;
    done.usage = {.input_tokens = input, .cache_read_tokens = cached, .output_tokens = output};
    return done;
}

}  // namespace zerohop::api
