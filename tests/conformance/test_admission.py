"""What the head of a request decides, against the real binary: keys, short-lived tokens, quotas, hints, lanes."""
import concurrent.futures
import contextlib
import json
import re
import signal
import threading
import time

import pytest

from lib import server as servers
from lib import wire
from lib.keys import as_key, new_key, take_up
from lib.server import NULL, null_model, null_params, user
from lib.wire import headers_for, post, request, stream

SMALL = {"model": NULL, "max_tokens": 4, "messages": user("hello there")}


@pytest.fixture(scope="module")
def own():
    """A server whose keys are all from its key file."""
    running = servers.Server([null_model(), null_model("other")],
                             {"topology.region": "here", "topology.regions": ["eu=https://eu.example.com"]},
                             keys=(), start=False)
    running.admin = running.create_key("ops", "--admin", "--priority-max", "high", "--lanes", "*")
    running.plain = running.create_key("team-a")
    running.start()
    with running:
        yield running


def token_of(server, key, wish=None, status=200):
    answer = request(server, "POST", "/v1/auth/token", wish, headers={"x-api-key": key["secret"]})
    assert answer.status == status, answer.body
    return answer.json()


# --- keys ----------------------------------------------------------------------------------------
def test_key_is_taken_up_and_revoked_without_restart(own):
    key = new_key(own, "team-b")
    listed = json.loads(own.command("key", "list", "--json").stdout)
    assert key["id"] in [k["id"] for k in listed["keys"]] and key["secret"] not in json.dumps(listed)
    own.command("key", "revoke", key["id"])
    refused = take_up(own, key["secret"], 401)
    assert refused.error["type"] == "authentication_error"


def test_revoked_during_a_stream(own):
    """The stream ends normally, the next request is refused."""
    key = new_key(own, "team-b")
    seen = []
    running = threading.Thread(target=lambda: seen.append(stream(
        own, {**null_params("tokens=30 delay_ms=60"), "stream": True}, headers=as_key(key))))
    running.start()
    time.sleep(0.3)
    own.command("key", "revoke", key["id"])
    take_up(own, key["secret"], 401)
    assert running.is_alive()
    running.join()
    assert b"message_stop" in repr(seen).encode()


def test_broken_key_file_changes_nothing(own):
    good = own.key_file.read_bytes()
    try:
        own.key_file.write_bytes(good[:-20])
        own.process.send_signal(signal.SIGHUP)
        time.sleep(0.7)
        assert post(own, SMALL, headers=as_key(own.plain)).status == 200
        assert "not re-read" in own.log_tail(60)
    finally:
        own.key_file.write_bytes(good)
    time.sleep(0.7)
    assert post(own, SMALL, headers=as_key(own.plain)).status == 200


def test_reload_tells_of_a_broken_key_file_each_time(own):
    """Also when the server noticed before anybody asked."""
    def reload():
        return own.command("config", "reload", "--url", own.base, "--key", own.admin["secret"], check=False)
    good = own.key_file.read_bytes()
    try:
        own.key_file.write_bytes(good[:200])
        time.sleep(0.8)
        for outcome in (reload(), reload()):
            assert outcome.returncode == 1 and str(own.key_file) in outcome.stderr, outcome.stdout
        own.key_file.unlink()
        time.sleep(0.8)
        gone = reload()
        assert gone.returncode == 1 and "has no keys any more" in gone.stderr
        assert post(own, SMALL, headers=as_key(own.plain)).status == 200
        log = own.log_path.read_text()
        assert log.count("has no keys any more; restart") == 2, log  # one by the key store, one by the reload
    finally:
        own.key_file.write_bytes(good)
        own.key_file.chmod(0o600)
    assert reload().returncode == 0


def test_listener_beyond_loopback_needs_a_key():
    server = servers.Server([null_model()], {"server.listen": [f"0.0.0.0:{servers.free_port()}"]}, keys=(),
                            tls=False, start=False)
    outcome = server.command("serve", "--config", server.config_path, check=False)
    assert outcome.returncode == 2 and "zerohop key create" in outcome.stderr
    server.close()


def test_topology_is_for_admins(own):
    answer = request(own, "GET", "/v1/topology", headers=as_key(own.admin))
    assert answer.status == 200
    assert {m["id"] for m in answer.json()["models"]} == {NULL, "other"}
    assert [lane["name"] for lane in answer.json()["lanes"]] == ["default", "low-latency", "batch"]
    refused = request(own, "GET", "/v1/topology", headers=as_key(own.plain))
    assert refused.status == 403 and own.plain["id"] in refused.error["message"]
    assert request(own, "GET", "/v1/topology", headers={}).status == 401
    assert request(own, "POST", "/v1/topology", {}, headers=as_key(own.admin)).status == 405


# --- tokens --------------------------------------------------------------------------------------
def test_token_narrows_and_works(own):
    issued = token_of(own, own.plain, {"model_scope": [NULL], "rate_limit_quota": {"requests": 100}})
    assert issued["token_type"] == "Bearer" and issued["expires_in"] == 300
    assert abs(issued["expires_at"] - time.time() - 300) < 5
    assert issued["claims"] == {"model_scope": [NULL], "region_hint": None, "rate_limit_quota": {"requests": 100}}
    assert issued["access_token"].startswith("v4.local.")
    bearer = {**headers_for(key=None), "authorization": f"Bearer {issued['access_token']}"}
    answer = post(own, SMALL, headers=bearer)
    assert answer.status == 200 and answer.headers["anthropic-ratelimit-requests-limit"] == "100"
    beyond = post(own, {**SMALL, "model": "other"}, headers=bearer)
    assert beyond.status == 403 and "model_scope" in beyond.error["message"]
    again = request(own, "POST", "/v1/auth/token", headers=bearer)
    assert again.status == 403


def test_a_token_costs_one_request_of_its_key(own):
    key = new_key(own, "team-s", "--rpm", 2)
    token = token_of(own, key)["access_token"]
    assert post(own, SMALL, headers=headers_for(key=token)).status == 200
    refused = request(own, "POST", "/v1/auth/token", headers={"x-api-key": key["secret"]})
    assert refused.status == 429 and "2 requests per minute" in refused.error["message"]
    assert int(refused.headers["retry-after"]) >= 1 and quotas(refused)["requests-remaining"] == "0"


def test_a_tokens_region_is_not_for_the_head_to_change(own):
    for region, hint, status in (("eu", None, 421), ("eu", "region=eu", 421), ("eu", "region=here", 403),
                                 ("here", None, 200), ("here", "region=HERE", 200), ("here", "region=eu", 403)):
        token = token_of(own, own.plain, {"region_hint": region})["access_token"]
        more = {"x_anthropic_early_hint": hint} if hint else {}
        answer = post(own, SMALL, headers=headers_for(key=token, **more))
        assert answer.status == status, (region, hint, answer.body)
        if status == 403:
            assert answer.error["type"] == "permission_error" and f'for region "{region}"' in answer.error["message"]


def test_model_lists_show_what_may_be_used(own):
    """A key's models and a token's scope narrow the lists; the rest is as if it were not served."""
    def shown(secret):
        return [m["id"] for m in request(own, "GET", "/v1/models", headers=headers_for(key=secret)).json()["data"]]
    key = new_key(own, "team-l", "--models", "other")
    assert sorted(shown(own.plain["secret"])) == sorted([NULL, "other"]) and shown(key["secret"]) == ["other"]
    token = token_of(own, own.plain, {"model_scope": [NULL]})["access_token"]
    assert shown(token) == [NULL]
    for secret, seen, hidden in ((key["secret"], "other", NULL), (token, NULL, "other")):
        assert request(own, "GET", f"/v1/models/{seen}", headers=headers_for(key=secret)).status == 200
        answer = request(own, "GET", f"/v1/models/{hidden}", headers=headers_for(key=secret))
        assert answer.status == 404 and f"served: '{seen}'" in answer.error["message"]
        unknown = post(own, {**SMALL, "model": "no-such"}, headers=headers_for(key=secret))
        assert unknown.status == 404 and hidden not in unknown.error["message"].split("served:")[1]


@pytest.mark.parametrize("wish, status, names", [
    ({"model_scope": "x"}, 400, "model_scope"), ({"model_scope": ["nothing"]}, 404, "model_scope"),
    ({"rate_limit_quota": {"cows": 1}}, 400, "rate_limit_quota.cows"), ({"region_hint": "mars"}, 400, "region_hint"),
    ({"wish": 1}, 400, "wish"), (b"{", 400, "JSON"), (b"[" * 1000, 400, "nested"),
    (b" " * 70_000, 413, ""),
])
def test_token_wishes_that_cannot_be(own, wish, status, names):
    answer = request(own, "POST", "/v1/auth/token", wish, headers=as_key(own.plain))
    assert answer.status == status and names in answer.error["message"], answer.body
    assert answer.headers["request-id"].startswith("req_")


def test_tokens_end_with_their_key(own):
    key = new_key(own, "team-c")
    token = token_of(own, key)["access_token"]
    take_up(own, token)
    own.command("key", "revoke", key["id"])
    refused = take_up(own, token, 401)
    assert refused.headers["retry-after-ms"] == "1" and refused.headers["request-id"]


def test_damaged_tokens(own):
    token = token_of(own, own.plain)["access_token"]
    for bad in (token[:-1], token[:40] + ("A" if token[40] != "A" else "B") + token[41:], "v4.local.", "v4.local.AA",
                token + ".AAAA", "v4.public." + token[9:]):
        answer = request(own, "GET", "/v1/models", headers=headers_for(key=bad))
        assert answer.status == 401, bad


@pytest.mark.check(74)
def test_401_asks_for_a_quick_retry(own):
    answer = post(own, SMALL, headers=headers_for(key="v4.local.not-a-token-of-ours"))
    assert answer.status == 401 and answer.headers["retry-after-ms"] == "1"
    assert answer.headers["request-id"].startswith("req_")


@pytest.mark.check(71)
@pytest.mark.parametrize("name", ["ts-1.14@node20", "ts-1.10@node26"])
def test_credentials_provider(own, fleet, name):
    result = fleet.get(name).call(own, "credentials", key=own.plain["secret"], params=SMALL, calls=3)
    assert [r["message"]["type"] for r in result["results"]] == ["message"] * 3
    assert result["fetches"] == 1
    assert all("oauth-2025-04-20" in a["headers"]["anthropic-beta"] for a in result["attempts"])


@pytest.mark.check(72)
@pytest.mark.check(74)
def test_revocation_in_flight(own, fleet):
    """Its tokens' generation ends; five calls at once share one new token, fetched at once. On a busy machine a
    straggler's 401 may come after the others have fetched: the SDK then fetches again, so there are three tries."""
    fetches = []
    for attempt in range(3):
        key = new_key(own, f"team-d{attempt}")
        sdk = fleet.get("ts-1.14@node20")
        call = sdk.start(own, "credentials", key=key["secret"], params=SMALL, calls=1, parallel=5, wait_ms=3000)
        time.sleep(1.2)
        # Tokens of the old secret end now; the key itself goes on.
        own.command("key", "rotate-secret", "--overlap", "0")
        result = call.result(60)["result"]
        assert "error" not in result and not [r for r in result["parallel"] if "error" in r], result
        retried = [a for a in result["attempts"] if a["status"] == 401]
        assert len(retried) == 5
        fetches.append(result["fetches"])
        if fetches[-1] == 2:
            break
    assert fetches[-1] == 2, fetches


@pytest.mark.check(73)
def test_api_key_function(own, fleet):
    result = fleet.get("ts-1.14@node20").call(own, "key_function", key=own.plain["secret"],
                                              params=null_params("fail=overloaded retry_after_ms=1"))
    assert result["asked"] == len(result["attempts"]) == 3
    good = fleet.get("ts-1.14@node20").call(own, "key_function", key=own.plain["secret"], params=SMALL)
    assert good["asked"] == 1 and good["message"]["type"] == "message"


# --- quotas --------------------------------------------------------------------------------------
RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")


def quotas(answer):
    return {name.removeprefix("anthropic-ratelimit-"): value for name, value in answer.headers.items()
            if name.startswith("anthropic-ratelimit-")}


@pytest.mark.check(58)
def test_rate_limit_headers(own):
    key = new_key(own, "team-e", "--rpm", 50, "--input-tpm", 10_000, "--output-tpm", 20_000)
    seen = []
    for streamed in (False, True, False):
        answer = post(own, {**SMALL, "stream": streamed}, headers=as_key(key))
        assert answer.status == 200
        seen.append(quotas(answer))
    for headers in seen:
        assert len(headers) == 12
        for quota in ("requests", "tokens", "input-tokens", "output-tokens"):
            assert 0 <= int(headers[f"{quota}-remaining"]) <= int(headers[f"{quota}-limit"])
            assert RFC3339.match(headers[f"{quota}-reset"])
    assert [int(h["requests-limit"]) for h in seen] == [50] * 3
    left = [int(h["requests-remaining"]) for h in seen]
    assert left[0] > left[1] > left[2]
    assert int(seen[2]["input-tokens-remaining"]) < int(seen[0]["input-tokens-remaining"]) < 10_000
    assert not quotas(post(own, SMALL, headers=as_key(own.plain)))


@pytest.mark.check(57)
def test_request_quota(own):
    key = new_key(own, "team-f", "--rpm", 2)
    answers = [post(own, SMALL, headers=as_key(key)) for _ in range(3)]
    assert [a.status for a in answers] == [200, 200, 429]
    refused = answers[2]
    assert refused.error["type"] == "rate_limit_error"
    assert "2 requests per minute" in refused.error["message"] and key["id"] in refused.error["message"]
    assert 1 <= int(refused.headers["retry-after"]) <= 30
    assert quotas(refused)["requests-remaining"] == "0" and RFC3339.match(quotas(refused)["requests-reset"])
    assert sum(h.startswith("anthropic-ratelimit-requests-limit") for h in refused.headers) == 1


def test_burst_is_what_comes_at_once(own):
    key = new_key(own, "team-r", "--rpm", 60, "--burst", 3)
    began = time.monotonic()
    status = [post(own, SMALL, headers=as_key(key)).status for _ in range(8)]
    assert 3 <= status.count(200) <= 3 + int(time.monotonic() - began) + 1 and status[:3] == [200] * 3, status
    listed = json.loads(own.command("key", "list", "--json").stdout)["keys"]
    assert next(k for k in listed if k["id"] == key["id"])["burst"]["requests"] == 3
    refused = own.command("key", "create", "-w", "team-r", "--burst", "3", check=False)
    assert refused.returncode == 2 and "limit" in refused.stderr


@pytest.mark.check(57)
@pytest.mark.parametrize("streamed", [False, True])
def test_token_quota(own, streamed):
    key = new_key(own, "team-g", "--input-tpm", 100)
    body = {**SMALL, "messages": user("word " * 60), "stream": streamed}
    assert post(own, body, headers=as_key(key)).status == 200
    refused = post(own, body, headers=as_key(key))
    assert refused.status == 429 and "100 input tokens per minute" in refused.error["message"]
    assert refused.headers["content-type"] == "application/json" and int(refused.headers["retry-after"]) >= 1
    never = post(own, {**body, "messages": user("word " * 600)}, headers=as_key(key))
    assert never.status == 429 and never.headers["x-should-retry"] == "false"


def test_settled_at_the_end(own):
    """What was reserved for a long answer comes back; a cancelled one pays for what it used."""
    key = new_key(own, "team-h", "--output-tpm", 1000)
    hint = as_key(key, x_anthropic_rate_hint="tokens=600")
    assert post(own, null_params("tokens=10"), headers=hint).status == 200
    left = int(quotas(post(own, null_params("tokens=1"), headers=hint))["output-tokens-remaining"])
    assert left >= 985
    with wire.Http1(own) as connection:
        connection.send_request("POST", "/v1/messages", hint,
                                json.dumps({**null_params("tokens=900 delay_ms=10"), "stream": True}).encode())
        connection.read_head()
        time.sleep(0.5)
    time.sleep(0.2)
    left = int(quotas(post(own, null_params("tokens=1"), headers=hint))["output-tokens-remaining"])
    assert 850 <= left <= 990


def test_cancelled_while_it_waited_pays_nothing(busy):
    key = new_key(busy, "team-q", "--input-tpm", 1000, "--output-tpm", 10_000)
    blocker = threading.Thread(target=post, args=(busy, null_params("tokens=60 delay_ms=20")),
                               kwargs={"headers": as_key(busy.keys["a"])})
    blocker.start()
    time.sleep(0.3)
    with wire.Http1(busy) as connection:
        connection.send_request("POST", "/v1/messages", as_key(key),
                                json.dumps({**SMALL, "messages": user("word " * 500), "stream": True}).encode())
        time.sleep(0.3)
        waiting = quotas(post(busy, {**SMALL, "messages": user("word " * 900)}, headers=as_key(key)))
        assert int(waiting["input-tokens-remaining"]) < 600  # charged while it waits: there is no room for another
    time.sleep(0.3)
    blocker.join()
    after = quotas(post(busy, SMALL, headers=as_key(key)))
    assert int(after["input-tokens-remaining"]) > 950 and int(after["output-tokens-remaining"]) > 9_900


def test_requests_in_parallel_are_counted_exactly(own):
    key = new_key(own, "team-i", "--rpm", 40)
    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        status = list(pool.map(lambda _: post(own, SMALL, headers=as_key(key)).status, range(80)))
    refilled = int((time.monotonic() - began) * 40 / 60)
    assert 40 <= status.count(200) <= 40 + refilled + 1 and status.count(200) + status.count(429) == 80


# --- hints ---------------------------------------------------------------------------------------
def hinted(server, key, body=SMALL, **hints):
    return post(server, body, headers=as_key(key, **hints))


def test_good_hints(own):
    for hints in ({"x_anthropic_early_hint": f"model={NULL};region=here"},
                  {"x_anthropic_early_hint": f" MODEL = {NULL.upper()} ; region=HERE "},
                  {"x_zerohop_early_hint": f"model={NULL};colour=blue"},
                  {"x_anthropic_rate_hint": "tokens=128;priority=low", "x_zerohop_rate_hint": "tokens=128;priority=low"},
                  {"x_anthropic_rate_hint": ""}, {"x_anthropic_rate_hint": "tokens=x;" + "y" * 257},
                  {"x_anthropic_cuda_stream": "Batch"}, {"x_anthropic_debug": "skeleton"},
                  {"x_anthropic_stream_buffering": "on"}):
        answer = hinted(own, own.plain, **hints)
        assert answer.status == 200, (hints, answer.body)


@pytest.mark.parametrize("hints, status, words", [
    ({"x_anthropic_early_hint": "model=nothing"}, 404, ["nothing"]),
    ({"x_anthropic_early_hint": "model=other"}, 400, ["early-hint", "other"]),
    ({"x_anthropic_early_hint": "region=mars"}, 421, ["mars", "here"]),
    ({"x_anthropic_early_hint": "region=eu"}, 421, ["eu", "https://eu.example.com"]),
    ({"x_anthropic_early_hint": "model="}, 400, ["x-anthropic-early-hint", "model"]),
    ({"x_anthropic_rate_hint": "tokens=many"}, 400, ["x-anthropic-rate-hint", "tokens", "many"]),
    ({"x_anthropic_rate_hint": "tokens=-1"}, 400, ["x-anthropic-rate-hint", "tokens"]),
    ({"x_zerohop_rate_hint": "priority=urgent"}, 400, ["x-zerohop-rate-hint", "priority", "urgent"]),
    ({"x_anthropic_rate_hint": "tokens=1", "x_zerohop_rate_hint": "tokens=2"}, 400, ["rate-hint"]),
    ({"x_anthropic_rate_hint": "priority=high"}, 403, ["priority"]),
    ({"x_anthropic_early_hint": 'model="x"'}, 400, ["x-anthropic-early-hint", "model", "a quote"]),
    ({"x_anthropic_cuda_stream": "fast"}, 400, ["cuda-stream", "low-latency"]),
    ({"x_anthropic_cuda_stream": "\u00fc"}, 400, ["cuda-stream", "low-latency"]),
    ({"x_anthropic_cuda_stream": "low-latency"}, 403, ["low-latency", "default"]),
    ({"x_anthropic_debug": "everything"}, 400, ["x-anthropic-debug", "everything"]),
    ({"x_anthropic_stream_buffering": "maybe"}, 400, ["x-anthropic-stream-buffering", "maybe"]),
])
def test_bad_hints(own, hints, status, words):
    answer = hinted(own, own.plain, **hints)
    assert answer.status == status, answer.body
    for word in words:
        assert word in answer.error["message"]
    if "eu" in str(hints.values()) and status == 421 and "eu" in words:
        assert answer.headers["location"] == "https://eu.example.com/v1/messages"


def test_head_answers_before_the_body(own):
    """Refused while the body is still to come."""
    for headers, status in ((headers_for(key="wrong"), 401),
                            (as_key(own.plain, x_anthropic_early_hint="model=nothing"), 404),
                            (as_key(own.plain, x_anthropic_early_hint="region=eu"), 421),
                            (as_key(own.plain, x_anthropic_cuda_stream="low-latency"), 403),
                            ({**as_key(own.plain), "content-length": str(40 << 20)}, 413)):
        with wire.Http2(own) as connection:
            stream_id = connection.send_head(headers=headers)
            connection.flush()
            assert connection.finish(stream_id).status == status


def head_alone(server, headers):
    """The answer to a head whose body never comes."""
    with wire.Http2(server) as connection:
        stream_id = connection.send_head(headers=headers)
        connection.flush()
        return connection.finish(stream_id)


@pytest.mark.check(57)
def test_quota_answers_before_the_body(own):
    key = new_key(own, "team-r", "--rpm", 1)
    assert post(own, SMALL, headers=as_key(key)).status == 200
    refused = head_alone(own, as_key(key))
    assert refused.status == 429 and "1 requests per minute" in refused.error["message"]
    assert int(refused.headers["retry-after"]) >= 1 and quotas(refused)["requests-remaining"] == "0"


@pytest.mark.check(56)
def test_full_queue_answers_before_the_body_and_after():
    with contextlib.ExitStack() as held:
        server = held.enter_context(servers.Server([null_model(slots=1, queue=1)]))
        for waiting in (0, 1):
            connection = held.enter_context(wire.Http1(server))
            body = {**null_params("tokens=1000 delay_ms=50"), "stream": True}
            connection.send_request("POST", "/v1/messages", headers_for(), json.dumps(body).encode())
            deadline = time.monotonic() + 10
            while request(server, "GET", "/readyz").json()["models"][0]["waiting" if waiting else "running"] != 1:
                assert time.monotonic() < deadline
                time.sleep(0.02)
        for refused in (head_alone(server, headers_for(x_anthropic_early_hint=f"model={NULL}")), post(server, SMALL)):
            assert refused.status == 529 and refused.error["type"] == "overloaded_error"
            assert f'the queue of model "{NULL}" is full' in refused.error["message"]
            assert "try again in 1 s" in refused.error["message"] and refused.headers["retry-after"] == "1"


def with_lines(server, *lines, body=b"{}"):
    """A request with header lines that no dictionary could hold; SMALL's answer otherwise."""
    with wire.Http1(server) as connection:
        all_lines = [f"{k}: {v}" for k, v in as_key(server.plain).items()] + [*lines, f"content-length: {len(body)}"]
        connection.send(("POST /v1/messages HTTP/1.1\r\nhost: x\r\n" + "\r\n".join(all_lines) + "\r\n\r\n").encode() + body)
        return connection.read_answer()


def test_a_hint_in_two_headers_of_one_name(own):
    assert with_lines(own, "x-anthropic-rate-hint: tokens=1", "x-anthropic-rate-hint: tokens=2").status == 400


@pytest.mark.parametrize("lines", [["anthropic-version: 2024-07-15"], ["content-type: text/plain"],
                                   ["content-encoding: identity", "content-encoding: gzip"]])
def test_a_header_of_one_value_said_twice(own, lines):
    name = lines[0].split(":")[0]
    refused = with_lines(own, *lines)
    assert refused.status == 400 and name in refused.error["message"] and "twice" in refused.error["message"]
    same = f"{name}: {as_key(own.plain)[name]}" if name in as_key(own.plain) else lines[0]
    assert with_lines(own, same, same, body=json.dumps(SMALL).encode()).status == 200


def test_trace_context(own):
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    answer = hinted(own, own.plain, traceparent=parent)
    trace = answer.headers["x-anthropic-trace-id"]
    assert re.fullmatch(rf"00-{trace}-[0-9a-f]{{16}}-01", answer.headers["traceparent"])
    assert trace != parent[3:35]
    ignored = hinted(own, own.plain, traceparent="00-zz")
    assert ignored.status == 200 and "traceparent" not in ignored.headers
    two = with_lines(own, f"traceparent: {parent}", f"traceparent: {parent[:-1]}0", body=json.dumps(SMALL).encode())
    assert two.status == 200 and "traceparent" not in two.headers


@pytest.mark.parametrize("ask, status", [
    (lambda s, h: request(s, "GET", "/v1/models", headers=h), 200),
    (lambda s, h: request(s, "GET", "/v1/nowhere", headers=h), 404),
    (lambda s, h: request(s, "GET", "/v1/messages", headers=h), 405),
    (lambda s, h: post(s, SMALL, headers={**h, "x-api-key": "wrong"}), 401),
    (lambda s, h: post(s, SMALL, headers={**h, "x-anthropic-rate-hint": "tokens=x"}), 400),
    (lambda s, h: post(s, {**SMALL, "max_tokens": -1}, headers=h), 400),
    (lambda s, h: post(s, {**SMALL, "model": "nothing"}, headers=h), 404),
    (lambda s, h: post(s, null_params("fail=overloaded"), headers=h), 529),
    (lambda s, h: request(s, "POST", "/v1/auth/token", headers=h), 200),
])
def test_every_answer_continues_the_callers_trace(own, ask, status):
    answer = ask(own, as_key(own.plain, traceparent="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"))
    assert answer.status == status
    trace = answer.headers["x-anthropic-trace-id"]
    assert re.fullmatch(rf"00-{trace}-[0-9a-f]{{16}}-00", answer.headers["traceparent"])


@pytest.mark.parametrize("streamed, ends", [(False, ["total"]), (True, [])])
def test_server_timing(own, streamed, ends):
    answer = post(own, {**null_params("tokens=2 prefill_ms=20"), "stream": streamed}, headers=as_key(own.plain))
    timing = dict(part.split(";dur=") for part in answer.headers["server-timing"].split(", "))
    assert list(timing) == ["dispatch", "queue", "prefill", "ttft", *ends]
    assert 20 <= float(timing["prefill"]) <= float(timing["ttft"])


# --- order ---------------------------------------------------------------------------------------
@pytest.fixture
def busy():
    """One slot, so that the order in which waiting requests start is the order of their ends."""
    running = servers.Server([null_model(slots=1)], keys=(), start=False)
    running.keys = {name: running.create_key(name, "--priority-max", "high", "--lanes", "*") for name in "ab"}
    running.start()
    with running:
        yield running


def in_order(server, calls):
    """Sends each call while one request runs, in this order; returns their names in the order they ended."""
    ended, lock = [], threading.Lock()

    def one(name, key, hints):
        answer = hinted(server, server.keys[key], null_params("tokens=4 delay_ms=10"), **hints)
        assert answer.status == 200, answer.body
        with lock:
            ended.append(name)
    threads = [threading.Thread(target=one, args=("first", "a", {}))]
    threads[0].start()
    blocker = threading.Thread(target=post, args=(server, null_params("tokens=100 delay_ms=10")),
                               kwargs={"headers": as_key(server.keys["a"])})
    threads[0].join()
    blocker.start()
    time.sleep(0.2)
    for name, key, hints in calls:
        threads.append(threading.Thread(target=one, args=(name, key, hints)))
        threads[-1].start()
        time.sleep(0.02)
    for thread in threads:
        thread.join()
    blocker.join()
    return ended[1:]


def test_high_goes_first(busy):
    low, high = {"x_anthropic_rate_hint": "priority=low"}, {"x_anthropic_rate_hint": "priority=high"}
    assert in_order(busy, [("low", "a", low), ("normal", "a", {}), ("high", "a", high)])[0] == "high"


def test_low_waits_a_little(busy):
    low = {"x_anthropic_rate_hint": "priority=low"}
    assert in_order(busy, [("low", "a", low), ("normal", "a", {})]) == ["normal", "low"]


def test_one_workspace_does_not_hold_up_the_other(busy):
    hint = {"x_anthropic_rate_hint": "tokens=2000"}
    order = in_order(busy, [(f"a{i}", "a", hint) for i in range(8)] + [("b", "b", hint)])
    assert order.index("b") <= 2


# --- one request under the three versions --------------------------------------------------------
VERSIONS = ["2023-06-01", "2026-10-21", "2024-07-15"]


def under(server, version, body, **more):
    return post(server, body, headers=headers_for(key=server.plain["secret"], version=version, **more))


@pytest.mark.parametrize("version", VERSIONS)
def test_versions_cap(own, version):
    counted = under(own, version, {"model": NULL, "messages": user("null: tokens=500")})
    old = version == "2024-07-15"
    assert counted.status == 400 and "max_tokens" in counted.error["message"]
    body = {"model": NULL, "max_tokens": 30, "messages": user("null: tokens=500")}
    usage = under(own, version, body).json()["usage"]
    assert usage["output_tokens"] == (30 - usage["input_tokens"] if old else 30)
    long_input = {**body, "messages": user("null: tokens=500 text=" + "word " * 50)}
    refused = under(own, version, long_input)
    assert refused.status == (400 if old else 200)
    if old:
        assert "30" in refused.error["message"] and re.search(r"is \d\d tokens", refused.error["message"])
    capped = under(own, version, {**body, "max_tokens": 200, "max_output_tokens": 7})
    assert capped.status == (200 if old else 400)
    if old:
        assert capped.json()["usage"]["output_tokens"] == 7
        assert under(own, version, {"model": NULL, "max_output_tokens": 7,
                                    "messages": user("null: tokens=500")}).status == 200
    else:
        assert "max_output_tokens" in capped.error["message"]


@pytest.mark.parametrize("version", VERSIONS)
def test_versions_stop(own, version):
    old = version == "2024-07-15"
    body = {"model": NULL, "max_tokens": 100, "stop_sequences": ["our"],
            "messages": user("null: tokens=9 text=one two three fourteen five")}
    answer = under(own, version, body).json()
    assert answer["stop_reason"] == "stop_sequence" and answer["stop_sequence"] == "our"
    assert answer["content"][0]["text"] == ("one two three fourteen" if old else "one two three f")
    objects = under(own, version, {**body, "stop_sequences": [{"type": "text", "text": "our"}]})
    assert objects.status == (200 if old else 400)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("hint", [None, "on", "off"])
def test_versions_buffering(own, version, hint):
    more = {"x_anthropic_stream_buffering": hint} if hint else {}
    _, _, events = stream(own, {**null_params("tokens=30 delay_ms=3"), "stream": True},
                    headers=headers_for(key=own.plain["secret"], version=version, **more))
    deltas = [e for e in events if e.name == "content_block_delta"]
    merged = hint == "on" or (hint is None and version == "2024-07-15")
    assert (len(deltas) < 15) if merged else (len(deltas) == 30)


# --- configuration -------------------------------------------------------------------------------
def test_reload_of_quotas():
    """SIGHUP: new limits hold at once, without a restart; a broken file changes nothing."""
    with servers.Server([null_model()], keys=(servers.KEY,), tls=False) as server:
        assert not quotas(post(server, SMALL))
        good = server.config_path.read_text()
        for text, limit, log in ((good + "[quota]\nworkspace_requests = 50\n", "50", "quotas reloaded"),
                                 (good + "[quota]\nworkspace_requests = \"many\"\n", "50", "not reloaded"),
                                 (good + "[quota]\nworkspace_requests = 50\n[[workspace]]\nname = \"default\"\n"
                                  "requests = 70\n", "70", "quotas reloaded")):
            server.config_path.write_text(text)
            server.process.send_signal(signal.SIGHUP)
            time.sleep(0.3)
            assert quotas(post(server, SMALL))["requests-limit"] == limit
            assert log in server.log_tail(3)



def test_config_reload_command():
    """`zerohop config reload` says how it went: a broken file is its error and changes nothing."""
    server = servers.Server([null_model()], keys=(), tls=False, start=False)
    admin, plain = server.create_key("ops", "--admin"), server.create_key("team-a")

    def reload(key=admin):
        return server.command("config", "reload", "--url", server.base, "--key", key["secret"], check=False)

    def limit():
        return quotas(post(server, SMALL, headers=as_key(plain))).get("requests-limit")
    with server.start():
        good = server.config_path.read_text()
        server.config_path.write_text(good + "[quota]\nworkspace_requests = 50\n")
        done = reload()
        assert done.returncode == 0 and "reloaded" in done.stdout and limit() == "50", done.stderr
        server.config_path.write_text(good + "[quota]\nworkspace_requests = \"many\"\n")
        line = server.config_path.read_text().splitlines().index('workspace_requests = "many"') + 1
        broken = reload()
        assert broken.returncode == 1 and "workspace_requests" in broken.stderr and f":{line}" in broken.stderr
        assert limit() == "50" and "not reloaded" in server.log_tail(3)
        server.config_path.write_text(good)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:  # all are answered, each with a reload of its own or shared
            assert {d.returncode for d in pool.map(lambda _: reload(), range(8))} == {0}
        assert limit() is None
        refused = reload(plain)
        assert refused.returncode == 1 and "admin" in refused.stderr
        assert request(server, "POST", "/v1/config/reload", {}, headers={}).status == 401
        assert request(server, "GET", "/v1/config/reload", headers=as_key(admin)).status == 405
        seen = []
        running = threading.Thread(target=lambda: seen.append(stream(
            server, {**null_params("tokens=30 delay_ms=20"), "stream": True}, headers=as_key(plain))))
        running.start()
        time.sleep(0.2)
        assert reload().returncode == 0 and running.is_alive()
        running.join()
        assert b"message_stop" in repr(seen).encode()
    gone = reload()
    assert gone.returncode == 1 and gone.stderr


def test_reload_takes_up_the_topology_and_names_what_it_cannot():
    """Aliases and promises of lanes hold at once; the rest is named, there and in the log, and stays as it was."""
    server = servers.Server([{"id": NULL, "path": "null:prefill_ms=20", "aliases": ["old-name"]}], keys=(), tls=False,
                            start=False)
    admin = server.create_key("ops", "--admin", "--priority-max", "high", "--lanes", "*")
    good = server.config_path.read_text()
    lanes = '[[lane]]\nname = "default"\n[[lane]]\nname = "fast"\nreserved_sequences = 1\nttft_p99_ms = %d\n'
    server.config_path.write_text(good + lanes % 0)

    def reload(text):
        server.config_path.write_text(text)
        return server.command("config", "reload", "--url", server.base, "--key", admin["secret"], check=False)

    def status(name, **hints):
        return post(server, {**SMALL, "model": name}, headers=as_key(admin, **hints)).status
    fast = {"x_anthropic_cuda_stream": "fast", "x_anthropic_rate_hint": "priority=high"}
    with server.start():
        assert [status("old-name"), status("new-name"), status(NULL, **fast)] == [200, 404, 200]
        done = reload(good.replace("old-name", "new-name") + lanes % 10 + "beside_step_tokens = 32\n")
        assert done.returncode == 0 and "needs a restart" not in done.stdout, done.stderr
        assert [status("old-name"), status("new-name"), status(NULL, **fast)] == [404, 200, 429]
        hinted_by_alias = {"x_anthropic_early_hint": "model=new-name"}
        assert status("new-name", **hinted_by_alias) == 200
        topology = request(server, "GET", "/v1/topology", headers=as_key(admin)).json()
        assert topology["models"][0]["aliases"] == ["new-name"] and topology["lanes"][1] == {
            "name": "fast", "reserved_sequences": 1, "beside_step_tokens": 32, "ttft_p99_ms": 10}

        done = reload("[limits]\nbody_bytes = 2048\n" + good.replace("prefill_ms=20", "prefill_ms=30")
                      + "max_sequences = 3\n" + (lanes % 0).replace("= 1", "= 2"))
        assert done.returncode == 0, done.stderr
        for what in ("limits.body_bytes", f'model.path of "{NULL}"', f'model.max_sequences of "{NULL}"',
                     'lane.reserved_sequences of "fast"'):
            assert what in done.stdout.split("needs a restart: ")[1], done.stdout
        assert "needs a restart: limits.body_bytes" in server.log_tail(4)
        assert [status("old-name"), status(NULL, **fast)] == [200, 200]  # the rest was taken up
        large = {**SMALL, "messages": user("word " * 1000)}
        assert post(server, large, headers=as_key(admin)).status == 200  # neither head nor body is held to the new bound

        refused = reload(good + lanes.replace("default", "other") % 0)
        assert refused.returncode == 1 and "default" in refused.stderr
        assert [status("old-name"), status(NULL, **fast)] == [200, 200]


@pytest.mark.parametrize("table, words", [
    ('[[lane]]\nname = "fast"', 'no lane is called "default"'),
    ('[[lane]]\nname = "default"\n[[lane]]\nname = "Default"', "already"),
    ('[[workspace]]\nname = "a"\n[[workspace]]\nname = "a"', "already"),
    ('[topology]\nregion = "over there"', "over there"),
])
def test_check_and_serve_refuse_the_same(tmp_path, table, words):
    server = servers.Server([], keys=(), tls=False, start=False)
    config = tmp_path / "zerohop.toml"
    config.write_text(table + '\n[[model]]\npath = "null:"\n')
    check = server.command("config", "check", config, check=False)
    serve = server.command("serve", "--config", config, check=False)
    assert (check.returncode, serve.returncode) == (1, 2)
    assert words in check.stderr and check.stderr.splitlines()[-1] == serve.stderr.splitlines()[-1]
    server.close()


LANES = """[[lane]]
name = "default"
[[lane]]
name = "fast"
ttft_p99_ms = 300
"""


def test_high_is_refused_rather_than_late():
    """A lane with ttft_p99_ms: within it high priority runs; when the first token would come later it is 429 at once."""
    server = servers.Server([{"id": NULL, "path": "null:slots=1,prefill_ms=100"},
                             {"id": "slow", "path": "null:prefill_ms=500"}], keys=(), start=False)
    key = server.create_key("a", "--priority-max", "high", "--lanes", "*")
    server.config_path.write_text(server.config_path.read_text() + LANES)
    high = {"x_anthropic_cuda_stream": "fast", "x_anthropic_rate_hint": "tokens=4;priority=high"}
    with server.start():
        assert 'lane \\"fast\\" promises' in server.log_path.read_text() and "model slow" in server.log_path.read_text()
        never = hinted(server, key, {**SMALL, "model": "slow"}, **high)
        assert never.status == 429 and "500 ms for its prompt" in never.error["message"]
        assert never.headers["x-should-retry"] == "false"
        assert hinted(server, key, {**SMALL, "model": "slow"}, x_anthropic_cuda_stream="fast").status == 200
        for _ in range(3):
            assert hinted(server, key, **high).status == 200
        running = threading.Thread(target=post, args=(server, null_params("tokens=60 delay_ms=20")),
                                   kwargs={"headers": as_key(key, x_anthropic_rate_hint="tokens=60")})
        running.start()
        time.sleep(0.4)
        began = time.monotonic()
        late = hinted(server, key, **high)
        assert late.status == 429 and late.error["type"] == "rate_limit_error" and time.monotonic() - began < 0.2
        assert 'lane "fast"' in late.error["message"] and "within 300 ms" in late.error["message"]
        assert int(late.headers["retry-after"]) >= 1
        with wire.Http2(server) as connection:  # with a hint: while the body is still to come
            stream_id = connection.send_head(headers=as_key(key, **high, x_anthropic_early_hint=f"model={NULL}"))
            connection.flush()
            assert connection.finish(stream_id).status == 429
        counted = request(server, "POST", "/v1/messages/count_tokens", {"model": NULL, "messages": user("a b")},
                          headers=as_key(key, **high))
        assert counted.status == 200
        assert hinted(server, key, x_anthropic_rate_hint="tokens=4;priority=high").status == 200  # no promise, it waits
        running.join()
        assert hinted(server, key, **high).status == 200


def test_reservations_of_heads_are_shown(own):
    """Counted where the engine reads them, from the head on; they lapse 2 s after the last body byte."""
    def reserved():
        models = request(own, "GET", "/v1/topology", headers=as_key(own.admin)).json()["models"]
        return next(m for m in models if m["id"] == NULL)["queue"]["soft_kv_tokens"]
    assert reserved() == 0
    with wire.Http2(own) as connection:
        connection.send_head(headers=as_key(own.plain, x_anthropic_early_hint=f"model={NULL}"))
        connection.flush()
        time.sleep(0.2)
        assert reserved() > 0
        time.sleep(2.8)
        assert reserved() == 0


def test_a_full_queue_is_full_for_its_lanes_alone():
    """With a hint, too: the head asks the queue of the request's lane. What is only counted asks none."""
    server = servers.Server([null_model(slots=2, queue=4)], keys=(servers.KEY,), tls=False, start=False)
    with server.start():
        fast = {"x_anthropic_cuda_stream": "low-latency"}
        hint = {"x_anthropic_early_hint": f"model={NULL}"}
        assert post(server, SMALL, headers=headers_for(**fast)).status == 200
        crowd = [threading.Thread(target=post, args=(server, null_params("tokens=40 delay_ms=20"))) for _ in range(5)]
        for thread in crowd:
            thread.start()
            time.sleep(0.05)
        assert post(server, SMALL, headers=headers_for(**hint)).status == 529
        assert post(server, SMALL, headers=headers_for(**hint, **fast)).status == 200
        counted = request(server, "POST", "/v1/messages/count_tokens", {"model": NULL, "messages": user("a b")},
                          headers=headers_for(**hint))
        assert counted.status == 200
        for thread in crowd:
            thread.join()


def test_what_lanes_have_of_a_models_slots():
    """All lanes together get half: what one asks for in vain is told at start and shown."""
    server = servers.Server([{"id": NULL, "path": "null:slots=4"}, {"id": "wide", "path": "null:slots=16"}], keys=(),
                            tls=False, start=False)
    admin = server.create_key("ops", "--admin")
    server.config_path.write_text(server.config_path.read_text() + '[[lane]]\nname = "default"\n'
                                  '[[lane]]\nname = "fast"\nreserved_sequences = 1\n'
                                  '[[lane]]\nname = "wide"\nreserved_sequences = 3\n')
    with server.start():
        topology = request(server, "GET", "/v1/topology", headers=as_key(admin)).json()
        assert [lane["reserved_sequences"] for lane in topology["lanes"]] == [0, 1, 3]
        assert {m["id"]: (m["max_sequences"], m["reserved_sequences"]) for m in topology["models"]} == {
            NULL: (4, {"default": 0, "fast": 1, "wide": 1}), "wide": (16, {"default": 0, "fast": 1, "wide": 3})}
        told = [line for line in server.log_path.read_text().splitlines() if "reserved sequences" in line]
        assert len(told) == 1 and f'lane \\"wide\\" asks for 3 reserved sequences of model {NULL} and has 1' in told[0]


def test_reserved_lane():
    """While its lane is in use, a reserved slot is nobody else's."""
    server = servers.Server([null_model(slots=2)], keys=(servers.KEY,), tls=False, start=False)
    text = server.config_path.read_text()
    server.config_path.write_text(text + "[[lane]]\nname = \"default\"\n[[lane]]\nname = \"fast\"\n"
                                  "reserved_sequences = 1\n")
    with server.start():
        fast = headers_for(x_anthropic_cuda_stream="fast")
        assert post(server, SMALL, headers=fast).status == 200
        crowd = [threading.Thread(target=post, args=(server, null_params("tokens=100 delay_ms=10"))) for _ in range(3)]
        for thread in crowd:
            thread.start()
        time.sleep(0.3)
        began = time.monotonic()
        assert post(server, SMALL, headers=fast).status == 200
        assert time.monotonic() - began < 0.5 and all(thread.is_alive() for thread in crowd)
        for thread in crowd:
            thread.join()
        assert post(server, SMALL, headers=headers_for(x_anthropic_cuda_stream="low-latency")).status == 400
