"""A minimal streaming client for both sides of a comparison: one HTTP/1.1 request per connection, the
time of every text delta, nothing else. The same code measures zerohop and its peers."""
import asyncio
import json
import time


class Answer:
    """One request's course: status, delta times (s, monotonic), text, usage, whether it ended properly."""

    def __init__(self):
        self.status = 0
        self.start = 0.0
        self.deltas = []
        self.text = []
        self.usage = {}
        self.stop_reason = None
        self.complete = False
        self.error = None
        self.end = 0.0

    @property
    def ttft(self):
        return self.deltas[0] - self.start if self.deltas else None

    @property
    def output_tokens(self):
        return self.usage.get("output_tokens", len(self.deltas))

    def proper(self):
        """A whole answer, or a refusal that says so: what a client can act on."""
        return self.complete or self.status in (429, 503, 529)


async def messages(port, model, content, max_tokens, *, system=None, temperature=0.0, headers=(),
                   host="127.0.0.1", cancel_after=None, timeout=600, on_delta=None, history=()):
    answer = Answer()
    body = {"model": model, "max_tokens": max_tokens, "stream": True, "temperature": temperature,
            "messages": [*history, {"role": "user", "content": content}]}
    if system:
        body["system"] = system
    raw = json.dumps(body).encode()
    head = (f"POST /v1/messages HTTP/1.1\r\nhost: {host}:{port}\r\ncontent-type: application/json\r\n"
            f"anthropic-version: 2023-06-01\r\nconnection: close\r\ncontent-length: {len(raw)}\r\n")
    for name, value in headers:
        head += f"{name}: {value}\r\n"
    answer.start = time.monotonic()
    writer = None
    try:
        async with asyncio.timeout(timeout):
            reader, writer = await asyncio.open_connection(host, port, limit=1 << 20)
            writer.write(head.encode() + b"\r\n" + raw)
            answer.status = int((await reader.readline()).split()[1])
            while (await reader.readline()).strip():
                pass
            if answer.status != 200:
                answer.error = (await reader.read()).decode(errors="replace")
            else:
                await _read_events(reader, answer, cancel_after, on_delta)
    except (OSError, asyncio.TimeoutError, asyncio.IncompleteReadError, IndexError, ValueError) as e:
        answer.error = repr(e)
    finally:
        if writer:
            writer.close()
    answer.end = time.monotonic()
    return answer


async def _read_events(reader, answer, cancel_after, on_delta):
    while line := await reader.readline():
        if not line.startswith(b"data:"):
            continue
        event = json.loads(line[5:])
        kind = event.get("type")
        if kind == "content_block_delta":
            answer.deltas.append(time.monotonic())
            answer.text.append(event["delta"].get("text", ""))
            if on_delta:
                on_delta(answer)
            if cancel_after and len(answer.deltas) >= cancel_after:
                return
        elif kind == "message_start":
            answer.usage.update(event["message"].get("usage") or {})
        elif kind == "message_delta":
            answer.usage.update(event.get("usage") or {})
            answer.stop_reason = event["delta"].get("stop_reason")
        elif kind == "message_stop":
            answer.complete = True
        elif kind == "error":
            answer.error = event["error"].get("message")
            return
