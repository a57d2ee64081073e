"""Streams as bytes: framing, order, pings, aborts, failures, drain, full queues."""
import collections
import concurrent.futures
import json
import signal
import threading
import time

import pytest

from lib import wire
from lib.clients import finish
from lib.server import KEY, MODEL, NULL, Server, null_model, null_params, user
from lib.wire import post, stream


def check_order(events):
    """§5.2: the order of events, contiguous indexes, one start and one stop."""
    names = [e.name for e in events if e.name not in (":", "ping")]
    assert names[0] == "message_start" and names[-1] == "message_stop"
    counts = collections.Counter(names)
    assert counts["message_start"] == counts["message_stop"] == 1 and counts["message_delta"] >= 1
    open_index, next_index = None, 0
    for event in events:
        if event.name == "content_block_start":
            assert open_index is None and event.data["index"] == next_index
            assert event.data["content_block"] == {"type": "text", "text": ""}
            open_index, next_index = next_index, next_index + 1
        elif event.name == "content_block_delta":
            assert event.data["index"] == open_index and event.data["delta"]["text"]
        elif event.name == "content_block_stop":
            assert event.data["index"] == open_index
            open_index = None
        elif event.name == "message_delta":
            assert open_index is None and event.data["usage"]["output_tokens"] >= 0
    assert next_index >= 1


@pytest.mark.check(45)
@pytest.mark.parametrize("tls", [False, True])
def test_sse_framing(server, tls):
    status, headers, events = stream(server, null_params("tokens=10"), tls=tls)
    assert status == 200 and headers["content-type"].startswith("text/event-stream")
    assert "no-cache" in headers["cache-control"] and "content-encoding" not in headers
    assert headers["request-id"].startswith("req_")
    for event in events:
        if event.name != ":":
            assert event.name == event.data["type"]
            assert len(event.raw.split("\n")) == 2  # one event line, one data line
            assert "[DONE]" not in event.raw


@pytest.mark.check(46)
def test_sse_order(server):
    check_order(stream(server, null_params("tokens=10"))[2])
    check_order(stream(server, null_params("tokens=1"))[2])


@pytest.mark.check(46)
def test_sse_order_real_model(real):
    _, _, events = stream(real, {"model": MODEL, "max_tokens": 12, "messages": user("Say hi.")})
    check_order(events)
    start, delta = events[0].data["message"], [e for e in events if e.name == "message_delta"][-1].data
    assert start["content"] == [] and start["stop_reason"] is None and start["usage"]["input_tokens"] > 0
    assert delta["delta"]["stop_reason"] in ("end_turn", "max_tokens")


@pytest.mark.check(46)
def test_same_stream_over_http2(server):
    body = {**null_params("tokens=10"), "stream": True}
    with wire.Http2(server) as connection:
        answer = connection.finish(connection.send_request(body))
    check_order(list(wire.parse_sse([answer.body])))


@pytest.mark.check(80)
def test_content_type_headers(server):
    assert post(server, null_params("tokens=1")).headers["content-type"].startswith("application/json")
    assert post(server, b"{").headers["content-type"].startswith("application/json")
    assert wire.request(server, "GET", "/v1/models").headers["content-type"].startswith("application/json")


@pytest.mark.check(50)
@pytest.mark.parametrize("why", ["prefill", "queued"])
def test_pings_in_silence(server, why):
    """Default settings: headers within 10 s although no token is there, then a ping every 10 s."""
    if why == "queued":
        blocker = threading.Thread(target=stream, args=(server, null_params("tokens=1 prefill_ms=21500", "null-one")))
        blocker.start()
        time.sleep(0.3)
        body = null_params("tokens=2", "null-one")
    else:
        body = null_params("tokens=2 prefill_ms=21000")
    began = time.monotonic()
    with wire.Http1(server) as connection:
        connection.send_request("POST", "/v1/messages", wire.headers_for(),
                                json.dumps({**body, "stream": True}).encode())
        status, headers = connection.read_head()
        assert status == 200 and 5 < time.monotonic() - began < 13
        events = list(wire.parse_sse(connection.chunks(headers)))
    times = [began, *(e.at for e in events)]
    assert max(b - a for a, b in zip(times, times[1:])) < 15
    assert any(e.name in ("ping", ":") for e in events) and events[-1].name == "message_stop"
    if why == "queued":
        blocker.join()


def slot_is_free(server, within):
    """null-one runs one request at a time: an answer within that time means the slot was freed."""
    began = time.monotonic()
    answer = post(server, null_params("tokens=1", "null-one"))
    waited = time.monotonic() - began
    assert answer.status == 200 and waited < within, (answer.status, waited)


LONG = null_params("tokens=400 delay_ms=50", "null-one")  # 20 s


@pytest.mark.check(51)
@pytest.mark.parametrize("name", ["ts-1.14@node20", "ts-0.137@node20", "ts-1.10@node26", "python-2", "python-0"])
def test_abort_http1(server, fleet, name):
    result = fleet.get(name).call(server, "abort", params=LONG)
    assert result["text"]
    slot_is_free(server, 1)


@pytest.mark.check(51)
@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("half", [False, True])
def test_disconnect(server, tls, half):
    """A FIN alone (half) already means that nobody will read the answer."""
    with wire.Http1(server, tls) as connection:
        connection.send_request("POST", "/v1/messages", wire.headers_for(),
                                json.dumps({**LONG, "stream": True}).encode())
        connection.read_head()
        if half:
            import socket
            connection.socket.shutdown(socket.SHUT_WR)
            slot_is_free(server, 1)
    slot_is_free(server, 1)


@pytest.mark.check(51)
def test_abort_real_model_during_prefill(real):
    long_prompt = "The quick brown fox jumps over the lazy dog. " * 600
    with wire.Http1(real) as connection:
        connection.send_request("POST", "/v1/messages", wire.headers_for(), json.dumps(
            {"model": MODEL, "max_tokens": 500, "messages": user(long_prompt), "stream": True}).encode())
        time.sleep(0.5)
    began = time.monotonic()
    assert post(real, {"model": MODEL, "max_tokens": 1, "messages": user("Hi")}).status == 200
    assert time.monotonic() - began < 3


@pytest.mark.check(52)
def test_abort_http2_node26(server, fleet):
    beside = null_params("tokens=40 delay_ms=50")
    result = fleet.get("ts-1.14@node26").call(server, "abort", tls=True, params=LONG, beside=beside)
    assert result["text"]
    assert result["beside"]["message"]["usage"]["output_tokens"] == 40
    slot_is_free(server, 1)


@pytest.mark.check(52)
@pytest.mark.parametrize("code", [0, 8, 5])
def test_reset_with_any_code(server, code):
    with wire.Http2(server) as connection:
        doomed = connection.send_request({**LONG, "stream": True})
        other = connection.send_request({**null_params("tokens=20 delay_ms=50"), "stream": True})
        connection.pump_until(lambda: connection.streams[doomed]["first"])
        connection.reset(doomed, code)
        slot_is_free(server, 1)
        assert b"message_stop" in connection.finish(other).body


@pytest.mark.check(53)
@pytest.mark.parametrize("name", ["ts-1.14@node20", "ts-1.14@node26"])
@pytest.mark.parametrize("tls", [False, True])
def test_abort_before_headers(server, fleet, name, tls):
    params = {**LONG, "stream": False}
    result = fleet.get(name).call(server, "abort_before_headers", tls=tls, params=params, after_ms=400)
    assert result["error"]["class"] == "APIUserAbortError"
    slot_is_free(server, 1)


@pytest.mark.check(53)
def test_abort_while_queued(server):
    blocker = wire.Http1(server)
    blocker.send_request("POST", "/v1/messages", wire.headers_for(), json.dumps(LONG).encode())
    time.sleep(0.3)
    with wire.Http1(server) as queued:  # takes the one place in the queue, then goes away
        queued.send_request("POST", "/v1/messages", wire.headers_for(), json.dumps(LONG).encode())
        time.sleep(0.3)
    time.sleep(0.3)
    blocker.close()
    slot_is_free(server, 1)


@pytest.mark.check(54)
@pytest.mark.parametrize("fail,type", [("internal", "api_error"), ("overloaded", "overloaded_error"),
                                       ("timeout", "timeout_error")])
def test_error_event(server, fail, type):
    _, headers, events = stream(server, null_params(f"tokens=9 fail={fail} fail_after=3"))
    assert events[-1].name == "error" and events[-1].data["error"]["type"] == type
    assert events[-1].data["request_id"] == headers["request-id"]
    assert sum(e.name == "content_block_delta" for e in events) == 3


@pytest.mark.check(54)
def test_failure_before_the_first_token_has_a_status(server):
    status, _, body = stream(server, null_params("tokens=9 fail=internal"))
    assert status == 500 and json.loads(body)["error"]["type"] == "api_error"


def start_stream(server, body):
    connection = wire.Http1(server)
    connection.send_request("POST", "/v1/messages", wire.headers_for(),
                            json.dumps({**body, "stream": True}).encode())
    status, headers = connection.read_head()
    assert status == 200
    return connection, headers


@pytest.mark.check(55)
def test_drain_lets_a_stream_finish(fleet):
    with Server([null_model()], {"server.drain_s": 20}) as own:
        running = fleet.get("ts-1.14@node20").start(own, "stream_final",
                                                    params=null_params("tokens=30 delay_ms=50"))
        time.sleep(0.5)
        own.process.send_signal(signal.SIGTERM)
        assert finish(running)["message"]["usage"]["output_tokens"] == 30
        assert own.process.wait(10) == 0


@pytest.mark.check(55)
def test_drain_refuses_new_work():
    with Server([null_model()], {"server.drain_s": 20}) as own:
        connection, headers = start_stream(own, null_params("tokens=40 delay_ms=50"))
        idle = wire.Http1(own)
        idle.send_request("GET", "/v1/models", wire.headers_for())
        assert idle.read_answer().status == 200
        own.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        try:  # an idle connection is closed, or its next request is told to go away
            idle.send_request("POST", "/v1/messages", wire.headers_for(), json.dumps(null_params("tokens=1")).encode())
            answer = idle.read_answer()
            assert answer.status == 503 and answer.headers["connection"].lower() == "close"
        except (EOFError, ConnectionError):
            pass
        assert not own.ready()
        for tls in (False, True):  # who connects only now is told, too
            answer = post(own, null_params("tokens=1"), tls=tls)
            assert answer.status == 503 and answer.headers["connection"].lower() == "close"
            assert int(answer.headers["retry-after"]) >= 1
        events = list(wire.parse_sse(connection.chunks(headers)))
        assert events[-1].name == "message_stop"
        assert own.process.wait(10) == 0


@pytest.mark.check(55)
def test_drain_deadline_is_an_error_event():
    with Server([null_model()], {"server.drain_s": 1}) as own:
        connection, headers = start_stream(own, null_params("tokens=600 delay_ms=50"))
        own.process.send_signal(signal.SIGTERM)
        events = list(wire.parse_sse(connection.chunks(headers)))
        assert events[-1].name == "error", events[-1]
        assert own.process.wait(10) == 0


@pytest.mark.check(55)
def test_drain_sends_goaway():
    with Server([null_model()], {"server.drain_s": 20}) as own:
        import h2.events
        with wire.Http2(own) as connection:
            running = connection.send_request({**null_params("tokens=40 delay_ms=50"), "stream": True})
            connection.pump_until(lambda: connection.streams[running]["first"])
            own.process.send_signal(signal.SIGTERM)
            connection.pump_until(lambda: any(isinstance(e, h2.events.ConnectionTerminated)
                                              for e in connection.events), 5)
            # h2 refuses to go on after GOAWAY, so the rest is read as bytes.
            rest, deadline = b"", time.monotonic() + 10
            while b"message_stop" not in rest and time.monotonic() < deadline:
                connection.socket.settimeout(10)
                piece = connection.socket.recv(65536)
                if not piece:
                    break
                rest += piece
            assert b"message_stop" in rest + connection.streams[running]["body"]
        assert own.process.wait(10) == 0


@pytest.mark.check(55)
@pytest.mark.parametrize("name", ["ts-1.14@node20", "ts-1.14@node26", "python-2"])
def test_kill_during_a_stream(fleet, name):
    with Server([null_model()]) as own:
        running = fleet.get(name).start(own, "stream_final", params=null_params("tokens=600 delay_ms=50"))
        time.sleep(1)
        own.kill()
        assert "error" in finish(running)


@pytest.mark.check(56)
@pytest.mark.parametrize("name", ["ts-1.14@node20", "ts-0.137@node26"])
def test_queue_full_is_retried(server, fleet, name):
    sdk = fleet.get(name)
    held = [sdk.start(server, "create", params=null_params("tokens=12 delay_ms=100", "null-one"))]
    time.sleep(0.3)
    held.append(sdk.start(server, "create", params=null_params("tokens=1", "null-one")))
    time.sleep(0.2)
    result = sdk.call(server, "create", params=null_params("tokens=1", "null-one"))
    assert "message" in result, result
    first = result["attempts"][0]
    assert first["status"] == 529 and len(result["attempts"]) >= 2
    assert int(first["response_headers"]["retry-after"]) >= 1
    assert [a["headers"]["x-stainless-retry-count"] for a in result["attempts"]] == \
        [str(i) for i in range(len(result["attempts"]))]
    assert all("message" in finish(call) for call in held)


@pytest.mark.check(59)
def test_overloaded_without_retries(server, fleet):
    sdk = fleet.get("ts-1.14@node20")
    held = [sdk.start(server, "create", params=null_params("tokens=12 delay_ms=100", "null-one"))]
    time.sleep(0.3)
    held.append(sdk.start(server, "create", params=null_params("tokens=1", "null-one")))
    time.sleep(0.2)
    result = sdk.call(server, "create", params=null_params("tokens=1", "null-one"), client={"maxRetries": 0})
    assert result["error"]["class"] == "OverloadedError" and len(result["attempts"]) == 1
    assert result["error"]["type"] == "overloaded_error"
    assert all("message" in finish(call) for call in held)


def test_many_at_once_real_model(real):
    """Continuous batching: several streams of the real model, each whole and in order."""
    body = {"model": MODEL, "max_tokens": 16, "messages": user("Tell me a story.")}
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for status, _, events in pool.map(lambda _: stream(real, body), range(8)):
            assert status == 200
            check_order(events)
