"""Clients that are plainer than any SDK: HTTP/1.1 on a socket, HTTP/2 on frames, SSE by the line.

Made for seeing exactly what the server sends; every wait has a limit, so a test never hangs.
"""
import contextlib
import dataclasses
import json
import socket
import time

import h2.config
import h2.connection
import h2.events
import h2.settings

from lib.server import KEY, authority

VERSION = "2023-06-01"


def headers_for(key=KEY, version=VERSION, **more):
    fields = {"content-type": "application/json"}
    if key is not None:
        fields["x-api-key"] = key
    if version is not None:
        fields["anthropic-version"] = version
    return {**fields, **{k.replace("_", "-"): v for k, v in more.items()}}


@dataclasses.dataclass
class Answer:
    status: int
    headers: dict
    body: bytes

    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        return self.json()["error"]


class Http1:
    """One HTTP/1.1 connection; can be used halfway (send a part, read a part)."""

    def __init__(self, server, tls=False, timeout=30):
        port = server.tls_port if tls else server.port
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        if tls:
            self.socket = authority().client_context().wrap_socket(self.socket, server_hostname="localhost")
        self.buffer = b""

    def send(self, data: bytes):
        self.socket.sendall(data)

    def send_request(self, method, target, headers, body: bytes | None = None):
        lines = [f"{method} {target} HTTP/1.1"] + ([] if "host" in headers else ["host: localhost"])
        lines += [f"{k}: {v}" for k, v in headers.items()]
        if body is not None and "content-length" not in headers and "transfer-encoding" not in headers:
            lines.append(f"content-length: {len(body)}")
        self.send(("\r\n".join(lines) + "\r\n\r\n").encode() + (body or b""))

    def _fill(self):
        data = self.socket.recv(65536)
        if not data:
            raise EOFError("the server closed the connection")
        self.buffer += data

    def read_line(self) -> bytes:
        while b"\r\n" not in self.buffer:
            self._fill()
        line, self.buffer = self.buffer.split(b"\r\n", 1)
        return line

    def read_exactly(self, n) -> bytes:
        while len(self.buffer) < n:
            self._fill()
        data, self.buffer = self.buffer[:n], self.buffer[n:]
        return data

    def read_head(self):
        status = int(self.read_line().split()[1])
        headers = {}
        while line := self.read_line():
            name, value = line.decode("latin-1").split(":", 1)
            headers[name.strip().lower()] = value.strip()
        return status, headers

    def chunks(self, headers):
        """The body in the pieces it came in."""
        if headers.get("transfer-encoding", "").lower() == "chunked":
            while size := int(self.read_line().split(b";")[0], 16):
                yield self.read_exactly(size)
                self.read_line()
            self.read_line()
        elif "content-length" in headers:
            yield self.read_exactly(int(headers["content-length"]))
        else:
            with contextlib.suppress(EOFError):
                while True:
                    if not self.buffer:
                        self._fill()
                    data, self.buffer = self.buffer, b""
                    yield data

    def read_answer(self) -> Answer:
        status, headers = self.read_head()
        while status in (100, 103):
            status, headers = self.read_head()
        return Answer(status, headers, b"".join(self.chunks(headers)))

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def request(server, method, target, body=None, headers=None, tls=False, timeout=60) -> Answer:
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    with Http1(server, tls, timeout) as connection:
        connection.send_request(method, target, headers_for() if headers is None else headers, data)
        return connection.read_answer()


def post(server, body, target="/v1/messages", **keys) -> Answer:
    return request(server, "POST", target, body, **keys)


@dataclasses.dataclass
class SseEvent:
    name: str | None
    data: dict
    raw: str
    at: float  # monotonic seconds


def parse_sse(pieces):
    """Events of an SSE body, as an SDK would frame them; comments come as name ':'."""
    pending = b""
    for piece in pieces:
        pending += piece
        while b"\n\n" in pending:
            block, pending = pending.split(b"\n\n", 1)
            raw = block.decode("utf-8")  # strict: a broken code point is a failure
            name, data = None, []
            for line in raw.split("\n"):
                if line.startswith(":"):
                    name = ":"
                elif line.startswith("event: "):
                    name = line[7:]
                elif line.startswith("data: "):
                    data.append(line[6:])
                else:
                    raise AssertionError(f"not a line of SSE as §5.1 has it: {line!r}")
            yield SseEvent(name, json.loads("\n".join(data)) if data else {}, raw, time.monotonic())
    assert pending == b"", f"the body ends inside an event: {pending!r}"


def stream(server, body, tls=False, headers=None, timeout=60):
    """(status, headers, [SseEvent]) of a streamed request read to its end."""
    with Http1(server, tls, timeout) as connection:
        connection.send_request("POST", "/v1/messages", headers or headers_for(),
                                json.dumps({**body, "stream": True}).encode())
        status, fields = connection.read_head()
        if status != 200:
            return status, fields, b"".join(connection.chunks(fields))
        return status, fields, list(parse_sse(connection.chunks(fields)))


def text_of(events) -> str:
    return "".join(e.data["delta"]["text"] for e in events if e.name == "content_block_delta")


class Http2:
    """One HTTP/2 connection over TLS (ALPN) or in clear text with prior knowledge."""

    def __init__(self, server, tls=True, timeout=30):
        port = server.tls_port if tls else server.port
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        if tls:
            self.socket = authority().client_context(("h2",)).wrap_socket(
                self.socket, server_hostname="localhost")
            assert self.socket.selected_alpn_protocol() == "h2"
        self.scheme = "https" if tls else "http"
        self.h2 = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=True, header_encoding="utf-8"))
        self.h2.initiate_connection()
        self.h2.increment_flow_control_window(1 << 24)
        self.streams, self.pings, self.events = {}, {}, []
        self.flush()

    def flush(self):
        self.socket.sendall(self.h2.data_to_send())

    def send_head(self, method="POST", target="/v1/messages", headers=None, end=False) -> int:
        stream_id = self.h2.get_next_available_stream_id()
        headers = headers or headers_for()
        fields = [(":method", method), (":scheme", self.scheme), (":authority", headers.get("host", "localhost")),
                  (":path", target), *((k, v) for k, v in headers.items() if k != "host")]
        self.h2.send_headers(stream_id, fields, end_stream=end)
        self.streams[stream_id] = {"headers": None, "body": b"", "ended": None, "reset": None, "first": None}
        return stream_id

    def send_request(self, body, **keys) -> int:
        stream_id = self.send_head(**keys)
        self.h2.send_data(stream_id, json.dumps(body).encode(), end_stream=True)
        self.flush()
        return stream_id

    def ping(self, payload=b"zerohop!"):
        self.pings[payload] = None
        self.h2.ping(payload)
        self.flush()

    def reset(self, stream_id, code=0):
        self.h2.reset_stream(stream_id, code)
        self.flush()

    def pump_once(self, timeout):
        self.socket.settimeout(max(timeout, 0.001))
        try:
            data = self.socket.recv(1 << 16)
        except (TimeoutError, socket.timeout):
            return False
        if not data:
            raise EOFError("the server closed the connection")
        now = time.monotonic()
        for event in self.h2.receive_data(data):
            self.events.append(event)
            entry = self.streams.get(getattr(event, "stream_id", None))
            if isinstance(event, h2.events.ResponseReceived):
                entry["headers"] = dict(event.headers)
            elif isinstance(event, h2.events.DataReceived):
                entry["body"] += event.data
                entry["first"] = entry["first"] or now
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, h2.events.StreamEnded):
                entry["ended"] = now
            elif isinstance(event, h2.events.StreamReset) and entry:
                entry["reset"] = event.error_code
            elif isinstance(event, h2.events.PingAckReceived):
                self.pings[event.ping_data] = now
        self.flush()
        return True

    def pump_until(self, done, timeout=30):
        deadline = time.monotonic() + timeout
        while not done():
            left = deadline - time.monotonic()
            assert left > 0, f"nothing of the expected came within {timeout} s"
            self.pump_once(left)

    def finish(self, stream_id, timeout=30) -> Answer:
        entry = self.streams[stream_id]
        self.pump_until(lambda: entry["ended"] or entry["reset"] is not None, timeout)
        assert entry["reset"] is None or entry["headers"], f"stream reset with {entry['reset']}"
        return Answer(int(entry["headers"][":status"]), entry["headers"], entry["body"])

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
