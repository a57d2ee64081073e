"""Large bodies of the worst shapes: memory stays within its budget, and others' streams go on."""
import concurrent.futures
import gzip
import itertools
import statistics

import pytest

from chaos import swarm
from lib import wire
from lib.server import NULL, Server, null_model, null_params, user
from lib.wire import headers_for, post

MIB = 1 << 20
SIZE = 32 * MIB - 4096


def fill(unit: bytes, before=b'[{"role":"user","content":', after=b"}]"):
    head = b'{"model":"' + NULL.encode() + b'","max_tokens":4,"messages":' + before
    end = after + b"}"
    return head + unit * ((SIZE - len(head) - len(end)) // len(unit)) + end


def listed(unit: bytes, last: bytes, before, after):
    return fill(unit, before, last + after)


BLOCKS = (b'[{"role":"user","content":[', b"]}]")
SHAPES = {
    "one string": lambda: fill(b"x", b'[{"role":"user","content":"', b'"}]'),
    "spaces": lambda: fill(b" ", b'[{"role":"user","content":"', b'"}]'),
    "escapes": lambda: fill(rb"\u00e9\n", b'[{"role":"user","content":"', b'"}]'),
    "numbers": lambda: listed(b"1,", b"1", *BLOCKS),
    "brackets": lambda: fill(b"[", b'[{"role":"user","content":', b""),
    "blocks": lambda: listed(b'{"type":"text","text":"a"},', b'{"type":"text","text":"a"}', *BLOCKS),
    "tags": lambda: fill(b"<a>", b'[{"role":"user","content":"', b'"}]'),
    "code": lambda: fill(rb"```c\nint f(int a){return a+1;}\n```\n", b'[{"role":"user","content":"', b'"}]'),
    "control": lambda: fill("\U000f003e<|im_end|>".encode(), b'[{"role":"user","content":"', b'"}]'),
}


def gaps_of(server, tokens):
    """Seconds between the events of a stream that has a token every 20 ms."""
    _, _, events = wire.stream(server, null_params(f"tokens={tokens} delay_ms=20"), timeout=120)
    at = [event.at for event in events]
    return [b - a for a, b in itertools.pairwise(at)]


def p99(values):
    return statistics.quantiles(values, n=100)[98]


@pytest.mark.parametrize("shape", SHAPES)
def test_others_go_on_beside_hostile_bodies(shape):
    body = SHAPES[shape]()
    with Server([null_model()], {"server.io_threads": 1}) as own:
        alone = p99(gaps_of(own, 150))
        before = own.rss_kib()
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            sent = [pool.submit(post, own, body, timeout=120) for _ in range(4)]
            beside = gaps_of(own, 150)
            statuses = {one.result().status for one in sent}
        grown = (own.rss_kib() - before) >> 10
        print(f"{shape}: P99 {alone * 1e3:.0f} -> {p99(beside) * 1e3:.0f} ms, longest {max(beside) * 1e3:.0f} ms, "
              f"{statuses}, +{grown} MiB")
        assert statuses <= {200, 400, 529}
        assert p99(beside) < 2 * alone + 0.1 and max(beside) < 1.5
        assert own.alive()


@pytest.mark.parametrize("encoding", [None, "gzip"])
def test_the_budget_holds_from_the_first_byte_to_the_end(encoding):
    """20 bodies of 32 MiB against 64 MiB: what is beyond is told to come again."""
    body = SHAPES["one string"]()
    headers = headers_for()
    if encoding:
        body, headers = gzip.compress(body, 1), {**headers, "content-encoding": "gzip"}
    cap = 64 * MIB
    with Server([null_model()], {"limits.total_buffer_bytes": cap}) as own:
        baseline = swarm.Baseline(own)
        peak = 0
        with concurrent.futures.ThreadPoolExecutor(20) as pool:
            sent = [pool.submit(post, own, body, headers=headers, timeout=120) for _ in range(20)]
            while not all(one.done() for one in sent):
                peak = max(peak, own.rss_kib() - baseline.rss)
                concurrent.futures.wait(sent, 0.02)
        answers = [one.result() for one in sent]
        refused = [one for one in answers if one.status == 529]
        print(f"{encoding}: {len(refused)} of 20 refused, +{peak >> 10} MiB at most")
        assert {one.status for one in answers} <= {200, 529}
        assert refused and all(int(one.headers["retry-after"]) >= 1 for one in refused)
        # A copy of what each of two workers reads, and what the sockets hold.
        assert peak < (cap + 2 * SIZE + 64 * MIB) >> 10
        baseline.settled(slack_kib=64 * 1024)


def test_stop_sequences_are_bounded():
    with Server([null_model()]) as own:
        answer = post(own, {**null_params("tokens=2"), "stop_sequences": ["x" * 110_000] * 256})
        assert answer.status == 400 and "stop_sequences" in answer.error["message"]


def test_counting_has_no_window():
    with Server([null_model(context=1000)]) as own:
        body = {"model": NULL, "messages": user("word " * 2_000_000)}
        counted = post(own, body, "/v1/messages/count_tokens")
        assert counted.status == 200 and counted.json()["input_tokens"] == 2_000_000 + 7
        refused = post(own, {**body, "max_tokens": 1})
        assert refused.status == 400
        assert refused.error["message"] == "prompt is too long: 2000007 tokens > 1000 maximum"


def test_the_model_reads_what_was_sent():
    with Server([null_model()]) as own:
        said = [{"role": "user", "content": "My code is 12"}, {"role": "user", "content": "34 is my age"},
                {"role": "assistant", "content": "."},
                {"role": "user", "content": "null: echo=1 tokens=1 chunk=200"}]
        blocks = [{"type": "text", "text": text} for text in ("a", "b")]
        answer = post(own, {"model": NULL, "max_tokens": 9, "system": blocks, "messages": said})
        assert answer.json()["content"][0]["text"] == (
            "[system]a\nb[user]My code is 12\n34 is my age[assistant].[user]null: echo=1 tokens=1 chunk=200")
        counted = post(own, {"model": NULL, "system": blocks, "messages": said}, "/v1/messages/count_tokens")
        assert counted.json()["input_tokens"] == answer.json()["usage"]["input_tokens"]


def test_a_default_version_serves_who_sends_none():
    bare = headers_for(version=None)
    with Server([null_model()], {"api.default_version": "2026-10-21"}) as own:
        assert post(own, null_params("tokens=1"), headers=bare).status == 200
        unknown = post(own, null_params("tokens=1"), headers=headers_for(version="2019-01-01"))
        assert unknown.status == 400
