"""server.access_log: one JSON line per request, with what an operator asks and nothing a user wrote."""
import json
import signal
import time

import pytest

from lib import wire
from lib.server import NULL, Server, null_model, null_params

SECRET = "my-secret-words"


@pytest.fixture
def own(tmp_path):
    with Server([null_model()], {"server.access_log": str(tmp_path / "access.log")}) as running:
        yield running


def lines(path, at_least, within=5):
    deadline = time.monotonic() + within
    while True:
        found = [json.loads(line) for line in path.read_text().splitlines() if "/readyz" not in line] \
            if path.exists() else []
        if len(found) >= at_least or time.monotonic() > deadline:
            return found
        time.sleep(0.05)


def test_lines(own, tmp_path):
    log = tmp_path / "access.log"
    params = null_params(f"tokens=5 delay_ms=2 text={SECRET}")
    status, headers, events = wire.stream(own, params)
    assert status == 200 and SECRET in wire.text_of(events)
    [line] = lines(log, 1)
    assert line["request_id"] == headers["request-id"] and line["trace_id"] == headers["x-anthropic-trace-id"]
    assert (line["status"], line["complete"], line["method"], line["path"]) == (200, True, "POST", "/v1/messages")
    assert (line["model"], line["output_tokens"], line["protocol"], line["tls"]) == (NULL, 5, "http/1.1", False)
    assert line["input_tokens"] > 0 and line["peer"] == "127.0.0.1" and line["workspace"] and line["key_id"]
    assert 0 < line["first_token_ms"] <= line["total_ms"] < 5000 and line["bytes_out"] > 300
    assert line["time"].endswith("Z")

    with wire.Http2(own) as connection:
        answer = connection.finish(connection.send_request(params))
    wire.request(own, "POST", f"/v1/messages?q={SECRET}", b"{}", wire.headers_for(key="wrong"))
    found = lines(log, 3)[1:]
    assert (found[0]["protocol"], found[0]["tls"], found[0]["output_tokens"]) == ("h2", True, 5)
    assert found[0]["bytes_out"] == len(answer.body)
    assert found[1]["status"] == 401 and "model" not in found[1] and "output_tokens" not in found[1]

    with wire.Http1(own) as leaving:
        body = json.dumps({**null_params("tokens=500 delay_ms=20"), "stream": True}).encode()
        leaving.send_request("POST", "/v1/messages", wire.headers_for(), body)
        leaving.read_head()
    gone = lines(log, 4)[3]
    assert gone["status"] == 200 and not gone["complete"] and gone["output_tokens"] < 500
    assert SECRET not in log.read_text()


def test_rotation(own, tmp_path):
    log, old = tmp_path / "access.log", tmp_path / "access.log.1"
    wire.post(own, null_params("tokens=1"))
    assert len(lines(log, 1)) == 1
    log.rename(old)
    own.process.send_signal(signal.SIGHUP)
    deadline = time.monotonic() + 5
    while not log.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    wire.post(own, null_params("tokens=1"))
    assert len(lines(log, 1)) == 1 and len(lines(old, 1)) == 1


def test_a_path_that_cannot_be_written(tmp_path):
    own = Server([null_model()], {"server.access_log": str(tmp_path / "missing/log")}, start=False)
    with pytest.raises(RuntimeError, match="(?s)ended with 2.*server.access_log"):
        own.start(10)
    own.process = None
    own.close()
