"""Caches as a client sees them: counters, breakpoints, warm-ups, what is kept and for whom, volatile lines.

Every test has a system prompt of its own, so that none finds what another left.
"""
import itertools
import json
import os
import time
import urllib.request

import pytest

from lib import server as servers
from lib.server import MODEL, NULL, null_params, user
from lib.wire import headers_for, post, request, stream

FRONT_ONLY = os.environ.get("ZEROHOP_FRONT_ONLY") == "1"
KINDS = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
LINE = "x-anthropic-billing-header: cc_version=2.1; cch={}\n"
WARM = "You are the keeper of the lighthouse log. " + "Write down wind, waves and every ship that passes. " * 12
FIVE = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}
numbers = itertools.count(1)


def fresh(sentences=20):
    """A system prompt of a few hundred tokens that no other test has."""
    n = next(numbers)
    return f"Handbook number {n * 7919}. " + " ".join(
        f"Rule {i}: desk {n} answers letter {i * n + i} before noon." for i in range(sentences))


@pytest.fixture(scope="module")
def own():
    """The real model beside a scripted one; keys of an admin and of two workspaces; one prompt warmed up."""
    models = [servers.null_model()] if FRONT_ONLY else [servers.real_model(kv_tokens=16384), servers.null_model()]
    warm_ups = [] if FRONT_ONLY else [{"model": MODEL, "system": WARM, "workspace": "team-a"}]
    running = servers.Server(models, keys=(), start=False, warm_ups=warm_ups)
    running.keys = {"admin": running.create_key("ops", "--admin")["secret"],
                    "a": running.create_key("team-a")["secret"], "b": running.create_key("team-b")["secret"]}
    running.start()
    with running:
        yield running


@pytest.fixture
def cached(own):
    if FRONT_ONLY:
        pytest.skip("needs the real model")
    return own


def body_of(system, question="What is rule 3?", cache_control=None, **keys):
    block = {"type": "text", "text": system}
    if cache_control:
        block["cache_control"] = cache_control
    return {"model": MODEL, "max_tokens": 4, "temperature": 0, "system": [block], "messages": user(question), **keys}


def ask(server, body, who="a", **headers):
    answer = post(server, body, headers=headers_for(key=server.keys[who], **headers))
    assert answer.status == 200, answer.body
    return answer.json()


def usage(server, body, who="a"):
    return ask(server, body, who)["usage"]


def total(counts):
    creation = counts["cache_creation"]
    assert counts["cache_creation_input_tokens"] == sum(creation.values())
    return sum(counts[kind] for kind in KINDS)


def counted(server, body):
    prompt = {k: body[k] for k in ("model", "system", "messages")}
    answer = post(server, prompt, "/v1/messages/count_tokens", headers=headers_for(key=server.keys["a"]))
    return answer.json()["input_tokens"]


def warm_up(server, body, who="a", status=200, **headers):
    headers = {"x-api-key": server.keys[who], **{k.replace("_", "-"): v for k, v in headers.items()}}
    answer = request(server, "POST", "/v1/cache/warmup", body, headers)
    assert answer.status == status, answer.body
    return answer.json()


def listed(server, who="a"):
    answer = request(server, "GET", "/v1/cache", headers={"x-api-key": server.keys[who]})
    assert answer.status == 200, answer.body
    return answer.json()


def forget(server, id="", who="a", status=200):
    answer = request(server, "DELETE", "/v1/cache" + (f"/{id}" if id else ""), headers={"x-api-key": server.keys[who]})
    assert answer.status == status, answer.body
    return answer.json()


def until(condition, within_s=3):
    """The list of entries may be a second old."""
    deadline = time.monotonic() + within_s
    while not (found := condition()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert found
    return found


# --- counters and breakpoints --------------------------------------------------------------------
@pytest.mark.check(40)
def test_five_breakpoints(own):
    block = {"type": "text", "text": "x", "cache_control": FIVE}
    body = null_params("tokens=1")
    body["messages"] = [{"role": "user", "content": [block] * 5}]
    answer = post(own, body, headers=headers_for(key=own.keys["a"]))
    assert answer.status == 400 and "4 cache breakpoints" in answer.error["message"]
    body["messages"] = [{"role": "user", "content": [block] * 4}]
    assert post(own, body, headers=headers_for(key=own.keys["a"])).status == 200


@pytest.mark.check(41)
def test_counters(cached):
    body = body_of(fresh(), cache_control=FIVE)
    first, second = ask(cached, body), ask(cached, body)
    assert first["usage"]["cache_creation"]["ephemeral_5m_input_tokens"] > 100
    assert first["usage"]["cache_read_input_tokens"] < 50  # the template's own beginning at most
    assert second["usage"]["cache_read_input_tokens"] > 100
    assert total(first["usage"]) == total(second["usage"]) == counted(cached, body)
    assert first["content"] == second["content"]


@pytest.mark.check(41)
def test_counters_of_a_stream(cached):
    body = body_of(fresh(), cache_control=FIVE)
    first = usage(cached, body)
    _, _, events = stream(cached, body, headers=headers_for(key=cached.keys["a"]))
    start = next(e.data["message"]["usage"] for e in events if e.name == "message_start")
    end = next(e.data["usage"] for e in events if e.name == "message_delta")
    assert total(start) == total(end) == total(first) and end["cache_read_input_tokens"] > 100
    assert {kind: start[kind] for kind in KINDS} == {kind: end[kind] for kind in KINDS}


@pytest.mark.check(41)
def test_counters_in_the_sdk(cached, fleet):
    body = body_of(fresh(), cache_control=FIVE)
    usage(cached, body)
    result = fleet.get("ts-1.14@node20").call(cached, "stream_final", params=body, key=cached.keys["a"])
    counts = result["message"]["usage"]
    assert counts["cache_read_input_tokens"] > 100
    assert sum(counts[kind] for kind in KINDS) == counted(cached, body)


def test_cached_without_any_breakpoint(cached):
    body = body_of(fresh())
    first, second = usage(cached, body), usage(cached, body_of(body["system"][0]["text"], "And rule 4?"))
    assert first["cache_creation_input_tokens"] == second["cache_creation_input_tokens"] == 0
    assert second["cache_read_input_tokens"] > 100


@pytest.mark.check(42)
def test_one_hour(cached):
    creation = usage(cached, body_of(fresh(), cache_control=HOUR))["cache_creation"]
    assert creation["ephemeral_1h_input_tokens"] > 100 and creation["ephemeral_5m_input_tokens"] == 0


@pytest.mark.check(42)
def test_both_times(cached):
    body = body_of(fresh(), cache_control=HOUR)
    body["messages"] = [{"role": "user", "content": [{"type": "text", "text": fresh(), "cache_control": FIVE}]}]
    counts = usage(cached, body)
    assert min(counts["cache_creation"].values()) > 100 and total(counts) == counted(cached, body)


def test_automatic_breakpoint(cached):
    body = body_of(fresh()) | {"cache_control": FIVE}
    counts = usage(cached, body)
    assert counts["cache_creation"]["ephemeral_5m_input_tokens"] > 100
    assert total(counts) == counted(cached, body)


def test_no_token_fills_the_cache(cached):
    body = body_of(fresh(), cache_control=FIVE)
    message = ask(cached, body | {"max_tokens": 0})
    assert (message["content"], message["stop_reason"]) == ([], "max_tokens")
    assert message["usage"]["output_tokens"] == 0 and message["usage"]["cache_creation_input_tokens"] > 100
    assert usage(cached, body)["cache_read_input_tokens"] > 100


def test_counters_of_the_process(cached):
    def stats():
        with urllib.request.urlopen(f"{cached.base}/readyz") as answer:
            return next(m for m in json.load(answer)["models"] if m["id"] == MODEL)
    body = body_of(fresh())
    usage(cached, body)
    before = stats()
    usage(cached, body)
    after = until(lambda: (s := stats())["block_hits"] > before["block_hits"] and s)
    needs, hits = (after[k] - before[k] for k in ("block_needs", "block_hits"))
    assert needs >= hits > needs * 0.8
    assert after["pool_tokens"] > 100
    assert after["prompt_tokens_computed"] - before["prompt_tokens_computed"] < 32


# --- volatile lines ------------------------------------------------------------------------------
def test_volatile_lines_do_not_count(own):
    """Scripted: they never reach the engine."""
    body = {"model": NULL, "max_tokens": 200, "messages": user("null: echo=1 tokens=40"),
            "system": [{"type": "text", "text": LINE.format(1)}, {"type": "text", "text": "a\n" + LINE.format(2) + "b"}]}
    answer = post(own, body, headers=headers_for(key=own.keys["a"], x_anthropic_debug="skeleton"))
    assert answer.headers["x-anthropic-skeleton"].endswith(";dropped=2")
    assert "[system]a\nb" in answer.json()["content"][0]["text"] and "billing" not in answer.body.decode()
    body["system"] = "a\nb"
    answer = post(own, body, headers=headers_for(key=own.keys["a"], x_anthropic_debug="skeleton"))
    assert answer.headers["x-anthropic-skeleton"].endswith(";dropped=0")


def test_rotating_line(cached):
    system = fresh()
    seen = [ask(cached, body_of(LINE.format(n) + system)) for n in ("a", "bb", "ccc")]
    assert len({total(m["usage"]) for m in seen}) == 1 and seen[0]["content"] == seen[1]["content"]
    assert all(m["usage"]["cache_read_input_tokens"] > 100 for m in seen[1:])
    assert counted(cached, body_of(LINE.format("d") + system)) == counted(cached, body_of(system))


# --- warm-ups ------------------------------------------------------------------------------------
def test_warm_up_of_the_scripted_engine(own):
    """It caches nothing, and says so."""
    answer = warm_up(own, {"model": NULL, "prompt": "plain text", "ttl": "1h"})
    assert answer["cached_tokens"] == answer["kv_blocks"] == 0 and answer["expires_at"] is None
    assert len(answer["skeleton"]) == 32
    assert listed(own, "b")["totals"]["entries"] == 0 and forget(own, who="b") == {"deleted": 0}


def test_warm_up_as_the_article_has_it(cached):
    system = fresh().replace("'", "")
    answer = warm_up(cached, f'{{"prompt":"<system>{system}</system>"}}'.encode(),
                     x_anthropic_early_hint=f"model={MODEL}", content_type="application/x-www-form-urlencoded")
    assert answer["cached_tokens"] > 100 and answer["kv_blocks"] == -(-answer["cached_tokens"] // 16)
    left = time.mktime(time.strptime(answer["expires_at"], "%Y-%m-%dT%H:%M:%SZ")) - time.timezone - time.time()
    assert 290 <= left <= 301
    assert usage(cached, body_of(system))["cache_read_input_tokens"] >= answer["cached_tokens"] - 2


def test_warm_up_with_messages(cached):
    body = body_of(fresh())
    first = warm_up(cached, {k: body[k] for k in ("model", "system")} | {"messages": []})
    again = warm_up(cached, {k: body[k] for k in ("model", "system", "messages")} | {"ttl": "1h"})
    assert again["cached_tokens"] > first["cached_tokens"] > 100
    assert usage(cached, body)["cache_read_input_tokens"] >= again["cached_tokens"] - 2


def test_warm_up_refusals(own):
    assert "model" in warm_up(own, {"prompt": "x"}, status=400)["error"]["message"]
    assert "ttl" in warm_up(own, {"model": NULL, "prompt": "x", "ttl": "9m"}, status=400)["error"]["message"]
    assert "warm" in warm_up(own, {"model": NULL, "messages": []}, status=400)["error"]["message"]
    warm_up(own, {"model": "nobody", "prompt": "x"}, status=404)
    assert request(own, "POST", "/v1/cache/warmup", {"model": NULL, "prompt": "x"}, {}).status == 401
    assert request(own, "GET", "/v1/cache", headers={}).status == 401
    assert request(own, "GET", "/v1/cache/warmup", headers={"x-api-key": own.keys["a"]}).status == 405
    assert request(own, "DELETE", "/v1/cache/0-999999", headers={"x-api-key": own.keys["a"]}).status == 404


def test_configured_warm_up(cached):
    """Computed before the server was ready, for the workspace it names."""
    body = body_of(WARM)
    assert usage(cached, body, "b")["cache_read_input_tokens"] < 50
    assert usage(cached, body, "a")["cache_read_input_tokens"] > 100


def test_a_configured_warm_up_that_fails_is_not_fatal():
    warm_ups = [{"model": NULL, "file": "no-such-prompt.txt"}, {"model": NULL, "prompt": "x " * 50000}]
    with servers.Server([servers.null_model(context=1000)], warm_ups=warm_ups, tls=False) as running:
        assert post(running, null_params("tokens=1", max_tokens=1)).status == 200
        log = running.log_path.read_text()
        assert "no-such-prompt.txt: cannot be read" in log and log.count("computed when it is asked for") == 2


# --- whose it is ---------------------------------------------------------------------------------
def test_workspaces_do_not_see_each_other(cached):
    body = body_of(fresh(), cache_control=FIVE)
    first = usage(cached, body, "a")
    entry = until(lambda: next((e for e in listed(cached, "a")["data"] if e["pinned_until"]
                                and e["tokens"] >= first["cache_creation_input_tokens"]), None))
    assert entry["workspace"] == "team-a" and entry["model"] == MODEL and entry["tier"] in ("kv", "host")
    assert entry["blocks"] == -(-entry["tokens"] // 16)
    assert usage(cached, body, "b") == first, "another workspace's counters are those of a first call"
    assert {e["workspace"] for e in listed(cached, "b")["data"]} <= {"team-b"}
    assert until(lambda: {e["workspace"] for e in listed(cached, "admin")["data"]} >= {"team-a", "team-b"})
    forget(cached, entry["id"], "b", status=404)
    assert usage(cached, body, "a")["cache_read_input_tokens"] > 100


def test_forgetting(cached):
    body = body_of(fresh(), cache_control=HOUR)
    usage(cached, body, "a")
    usage(cached, body, "b")
    until(lambda: listed(cached, "a")["data"])
    assert forget(cached, who="a")["deleted"] >= 1
    assert usage(cached, body, "a")["cache_read_input_tokens"] < 50
    assert usage(cached, body, "b")["cache_read_input_tokens"] > 100
    time.sleep(1.2)  # the list may be a second old
    for entry in listed(cached, "b")["data"]:
        forget(cached, entry["id"], "admin")
    assert usage(cached, body, "b")["cache_read_input_tokens"] < 50


def test_workspaces_share_what_is_configured():
    """team-a and team-b are a group, team-c and the admin are not."""
    if FRONT_ONLY:
        pytest.skip("needs the real model")
    warm_ups = [{"model": MODEL, "system": WARM, "workspace": "team-b"}]
    running = servers.Server([servers.real_model()], keys=(), tls=False, start=False, warm_ups=warm_ups,
                             shares=[{"workspaces": ["team-a", "team-b"]}])
    running.keys = {who: running.create_key(f"team-{who}")["secret"] for who in "abc"}
    running.keys["admin"] = running.create_key("ops", "--admin")["secret"]
    running.start()
    with running:
        body = body_of(fresh(), cache_control=FIVE)
        first = usage(running, body, "a")
        assert first["cache_read_input_tokens"] < 50
        assert usage(running, body, "c") == first, "outside the group nothing is there"
        assert usage(running, body, "b")["cache_read_input_tokens"] > 100
        assert usage(running, body_of(WARM), "a")["cache_read_input_tokens"] > 100
        assert usage(running, body_of(WARM), "c")["cache_read_input_tokens"] < 50
        entry = until(lambda: next((e for e in listed(running, "a")["data"] if e["pinned_until"]
                                    and e["tokens"] >= first["cache_creation_input_tokens"]), None))
        assert entry["workspace"] == "team-a+team-b"
        assert entry["id"] in {e["id"] for e in listed(running, "b")["data"]}
        assert until(lambda: {e["workspace"] for e in listed(running, "c")["data"]}) == {"team-c"}
        forget(running, entry["id"], "c", status=404)
        forget(running, who="c")
        assert usage(running, body, "a")["cache_read_input_tokens"] > 100
        assert until(lambda: {e["workspace"] for e in listed(running, "admin")["data"]} >= {"team-a+team-b"})
        assert forget(running, who="b")["deleted"] >= 1
        assert usage(running, body, "a")["cache_read_input_tokens"] < 50


def test_users_are_kept_apart_when_configured():
    if FRONT_ONLY:
        pytest.skip("needs the real model")
    with servers.Server([servers.real_model()], {"cache.isolate": "user"}, tls=False) as running:
        running.keys = {"a": servers.KEY}
        body = body_of(fresh(), cache_control=FIVE)
        one, other = ({"metadata": {"user_id": name}} for name in ("one", "other"))
        first = usage(running, body | one)
        assert usage(running, body | other) == first
        assert usage(running, body | one)["cache_read_input_tokens"] > 100


def test_switched_off():
    if FRONT_ONLY:
        pytest.skip("needs the real model")
    with servers.Server([servers.real_model()], {"cache.prefix": False, "cache.drafts": False}, tls=False) as running:
        running.keys = {"a": servers.KEY}
        body = body_of(fresh(), cache_control=FIVE)
        first, second = ask(running, body), ask(running, body)
        assert first["usage"] == second["usage"] and first["content"] == second["content"]
        assert second["usage"]["cache_read_input_tokens"] == second["usage"]["cache_creation_input_tokens"] == 0
