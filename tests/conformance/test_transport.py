"""Connections: ALPN, HTTP/2, many streams, many sockets, big bodies, compression."""
import concurrent.futures
import gzip
import json
import os
import shutil
import ssl
import subprocess
import time

import pytest

from lib import wire
from lib.server import KEY, NULL, authority, null_params, user
from lib.wire import post

HELLO = {"model": NULL, "max_tokens": 4, "messages": user("Say hello.")}


@pytest.mark.check(75)
@pytest.mark.parametrize("runtime,alpn", [("node20", "http/1.1"), ("node26", "h2")])
def test_alpn_of_node(server, fleet, runtime, alpn):
    sdk = fleet.get(f"ts-1.14@{runtime}")
    message = sdk.call(server, "create", tls=True, params=HELLO)["message"]
    assert message["usage"]["output_tokens"] == 4
    streamed = sdk.call(server, "stream_final", tls=True, params=null_params("tokens=20 delay_ms=1"))
    whole = sdk.call(server, "create", tls=True, params=null_params("tokens=20 delay_ms=1"))["message"]
    assert streamed["message"]["content"][0]["text"] == whole["content"][0]["text"]
    opened = sdk.call(server, "connections")
    assert {c["alpn"] for c in opened if c["alpn"]} == {alpn}


@pytest.mark.check(75)
@pytest.mark.parametrize("name", ["python-2", "python-0", "ts-1.10@node26", "ts-0.137@node20"])
def test_tls_other_clients(server, fleet, name):
    assert fleet.get(name).call(server, "create", tls=True, params=HELLO)["message"]["type"] == "message"


@pytest.mark.check(75)
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("offer,chosen", [(["h2", "http/1.1"], "h2"), (["http/1.1"], "http/1.1"),
                                          ([], None), (["http/1.1", "h2"], "h2")])
def test_alpn_choice(server, version, offer, chosen):
    import socket
    context = authority().client_context(offer) if offer else ssl.create_default_context(
        cafile=str(authority().ca))
    context.minimum_version = context.maximum_version = version
    with socket.create_connection(("127.0.0.1", server.tls_port), 5) as plain:
        with context.wrap_socket(plain, server_hostname="localhost") as secure:
            assert secure.selected_alpn_protocol() == chosen


@pytest.mark.check(75)
def test_alpn_without_common_protocol(server):
    import socket
    with socket.create_connection(("127.0.0.1", server.tls_port), 5) as plain:
        with pytest.raises(ssl.SSLError):
            authority().client_context(["spdy/3"]).wrap_socket(plain, server_hostname="localhost")


def curl(*args):
    return subprocess.run(["curl", "-sS", "--max-time", "30", *args], capture_output=True, text=True, check=True)


@pytest.mark.check(75)
@pytest.mark.parametrize("flag,version,tls", [("--http1.1", "1.1", False), ("--http2-prior-knowledge", "2", False),
                                              ("--http1.1", "1.1", True), ("--http2", "2", True)])
def test_curl(server, flag, version, tls):
    base = server.tls_base if tls else server.base
    out = curl(flag, "--cacert", str(authority().ca), "-H", f"x-api-key: {KEY}", "-H",
               "anthropic-version: 2023-06-01", "-H", "content-type: application/json", "-d", json.dumps(HELLO),
               "-w", "\n%{http_version} %{http_code}", f"{base}/v1/messages").stdout
    body, last = out.rsplit("\n", 1)
    assert last == f"{version} 200" and json.loads(body)["type"] == "message"


@pytest.mark.check(75)
@pytest.mark.skipif(not shutil.which("nghttp"), reason="nghttp2-client is not installed")
def test_nghttp(server, tmp_path):
    body = tmp_path / "body"
    body.write_text(json.dumps({**HELLO, "stream": True}))
    for base in (server.base, server.tls_base):
        done = subprocess.run(["nghttp", "-v", "--no-verify-peer", "-H", f"x-api-key: {KEY}", "-H",
                               "anthropic-version: 2023-06-01", "-H", "content-type: application/json", "-d",
                               str(body), f"{base}/v1/messages"], capture_output=True, text=True, timeout=30)
        assert ":status: 200" in done.stdout and "event: message_stop" in done.stdout, done.stdout[-2000:]


@pytest.mark.check(60)
@pytest.mark.parametrize("name,tls", [("ts-1.14@node20", False), ("ts-1.14@node26", False),
                                      ("ts-1.14@node20", True), ("ts-1.14@node26", True), ("python-2", False)])
def test_body_of_33_mb(server, fleet, name, tls):
    params = {**HELLO, "messages": user("x" * 33 * 1024 * 1024)}
    result = fleet.get(name).call(server, "create", tls=tls, params=params)
    error = result["error"]
    assert error.get("status") == 413 and error["type"] == "request_too_large", error
    assert error["class"] in ("ContentTooLargeError", "RequestTooLargeError"), error
    assert len(result.get("attempts", [1])) == 1


@pytest.mark.check(60)
def test_413_without_reading_the_body(server):
    with wire.Http1(server) as connection:
        connection.send_request("POST", "/v1/messages", {**wire.headers_for(), "content-length": str(1 << 40)})
        answer = connection.read_answer()
    assert answer.status == 413 and answer.error["type"] == "request_too_large"


@pytest.mark.check(76)
def test_100_streams_on_one_connection(server):
    body = {**null_params("tokens=20 delay_ms=50"), "stream": True}
    with wire.Http2(server, timeout=60) as connection:
        began = time.monotonic()
        ids = [connection.send_request(body) for _ in range(100)]
        connection.pump_until(lambda: all(connection.streams[i]["ended"] for i in ids), 60)
        took = time.monotonic() - began
        for i in ids:
            assert connection.streams[i]["headers"][":status"] == "200"
            assert b"event: message_stop" in connection.streams[i]["body"]
            assert connection.streams[i]["first"] - began < 3  # nobody waits for another's end
    assert took < 10  # each lasts about 1 s; in a row they would take 100


@pytest.mark.check(76)
def test_a_stalled_stream_does_not_stall_others(server):
    with wire.Http2(server) as connection:
        slow = connection.send_request({**null_params("tokens=2 prefill_ms=3000"), "stream": True})
        quick = connection.send_request({**null_params("tokens=2"), "stream": True})
        began = time.monotonic()
        connection.finish(quick)
        assert time.monotonic() - began < 1 and not connection.streams[slow]["ended"]
        connection.finish(slow)


@pytest.mark.check(77)
def test_ping_while_streaming(server):
    with wire.Http2(server) as connection:
        running = connection.send_request({**null_params("tokens=60 delay_ms=20"), "stream": True})
        connection.pump_until(lambda: connection.streams[running]["first"])
        for i in range(5):
            payload, sent = b"ping%04d" % i, time.monotonic()
            connection.ping(payload)
            connection.pump_until(lambda: connection.pings[payload], 1)
            assert connection.pings[payload] - sent < 1
        assert b"message_stop" in connection.finish(running).body


@pytest.mark.check(78)
def test_gzip_answers(server):
    headers = wire.headers_for(accept_encoding="gzip, deflate")
    answer = post(server, null_params("tokens=400"), headers=headers)
    assert answer.headers.get("content-encoding") == "gzip"
    assert json.loads(gzip.decompress(answer.body))["type"] == "message"
    _, fields, events = wire.stream(server, null_params("tokens=5"), headers=headers)
    assert "content-encoding" not in fields and events[-1].name == "message_stop"


@pytest.mark.check(78)
def test_gzip_requests(server):
    """Taken, or refused with the exact error code (§2.1)."""
    headers = wire.headers_for(content_encoding="gzip")
    answer = post(server, gzip.compress(json.dumps(HELLO).encode()), headers=headers)
    if answer.status != 200:
        assert answer.status == 400
        assert answer.error["details"]["error_code"] == "request_body_encoding_unsupported"
    broken = post(server, b"not gzip at all", headers=headers)
    assert broken.status == 400 and broken.error["details"]["error_code"].startswith("request_body_encoding_")
    bomb = post(server, gzip.compress(b" " * (40 << 20)), headers=headers)
    assert bomb.status in (400, 413)
    other = post(server, b"x", headers=wire.headers_for(content_encoding="br"))
    assert other.error["details"]["error_code"] == "request_body_encoding_unsupported"


@pytest.mark.check(84)
@pytest.mark.parametrize("tls", [False, True])
def test_50_parallel_calls(server, fleet, tls):
    result = fleet.get("ts-1.14@node20").call(server, "parallel", tls=tls, n=50,
                                              params=null_params("tokens=2 delay_ms=300"))
    assert all("error" not in r and r["type"] == "message" for r in result["results"])
    assert result["opened"] >= 45  # a few may reuse a socket of an earlier test


@pytest.mark.check(84)
def test_50_parallel_calls_python(server, fleet):
    calls = [fleet.get("python-2").start(server, "create", params=null_params("tokens=2 delay_ms=300"))
             for _ in range(50)]
    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        for answer in pool.map(lambda c: c.result(60), calls):
            assert answer["result"]["message"]["type"] == "message"


def test_expect_100_continue(server):
    body = json.dumps(HELLO).encode()
    with wire.Http1(server) as connection:
        connection.send_request("POST", "/v1/messages", {**wire.headers_for(), "expect": "100-continue",
                                                         "content-length": str(len(body))})
        status, _ = connection.read_head()
        assert status == 100
        connection.send(body)
        assert connection.read_answer().status == 200
    with wire.Http1(server) as connection:  # refused by its head alone
        connection.send_request("POST", "/v1/messages", {**wire.headers_for(key=None), "expect": "100-continue",
                                                         "content-length": str(len(body))})
        assert connection.read_answer().status == 401


def test_keep_alive_and_pipelining(server):
    with wire.Http1(server) as connection:
        for _ in range(3):
            connection.send_request("POST", "/v1/messages", wire.headers_for(), json.dumps(HELLO).encode())
            assert connection.read_answer().status == 200
        for _ in range(3):
            connection.send_request("GET", "/v1/models", wire.headers_for())
        assert [connection.read_answer().status for _ in range(3)] == [200, 200, 200]


def test_health(server):
    for target in ("/healthz", "/readyz"):
        assert wire.request(server, "GET", target, headers={}).status == 200
