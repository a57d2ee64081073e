"""./dev soak 30m: mixed load on the real binary; reports how memory and descriptors move.

The load: answers of the scripted and (when ZEROHOP_TEST_MODEL names its file) the real model, streamed and
whole, over HTTP/1.1 and HTTP/2, TLS and clear text, fresh and kept connections; clients that cancel, read or write
slowly, send nonsense or nothing. Fails when a request gets no proper answer, when a descriptor stays behind, or
when resident memory has a slope (least squares, KiB per minute, over all but a warm-up) beyond MAX_SLOPE. Samples
are kept in build/soak.json.
"""
import asyncio
import collections
import contextlib
import json
import os
import random
import statistics
import sys
import time

from chaos import swarm
from lib import wire
from lib.server import KEY, MODEL, ROOT, Server, null_model, null_params, real_model, user

# KiB per minute. A leak of one small object per request shows as thousands under this load. Below ten minutes
# the allocator's own warming up is still in the samples: then only a gross leak can be told.
MAX_SLOPE, MAX_SLOPE_SHORT, SHORT_S = 256, 4096, 600
WORKERS = 24
REAL_AT_ONCE = 4
IDLE_FD_SLACK = 4
REAL = bool(os.environ.get("ZEROHOP_TEST_MODEL"))


def slope(points):
    """Least squares, units of y per second."""
    xs, ys = zip(*points)
    mx, my = statistics.fmean(xs), statistics.fmean(ys)
    spread = sum((x - mx) ** 2 for x in xs)
    return sum((x - mx) * (y - my) for x, y in points) / spread if spread else 0.0


def some_script(rng):
    return null_params(f"tokens={rng.randrange(1, 60)} delay_ms={rng.choice([0, 1, 5])}")


async def read_answer(reader):
    """(status, body) of one answer on a connection that may go on."""
    status = int((await reader.readline()).split()[1])
    headers = {}
    while line := (await reader.readline()).strip():
        name, value = line.decode("latin-1").split(":", 1)
        headers[name.lower()] = value.strip()
    if "content-length" in headers:
        return status, await reader.readexactly(int(headers["content-length"]))
    body = b""
    while size := int((await reader.readline()).split(b";")[0], 16):
        body += await reader.readexactly(size)
        await reader.readline()
    await reader.readline()
    return status, body


def judge(tally, what, status, body, expected=(200,)):
    whole = status != 200 or b"message_stop" in body or b'"stop_reason":"' in body or b'"input_tokens"' in body
    if status in expected and whole:
        tally.answered += 1
    elif status in (429, 503, 529):
        tally.refused += 1
    else:
        tally.lost.append(f"{what}: status {status} …{body[-120:]!r}")


# --- the kinds of client -------------------------------------------------------------------------
async def real(server, rng, tally, tls):
    # Slow beside the others: without a bound all clients would soon wait for this model.
    if tally.kinds["real running"] >= REAL_AT_ONCE:
        return await scripted(server, rng, tally, tls)
    tally.kinds["real running"] += 1
    try:
        await ask_real(server, rng, tally, tls)
    finally:
        tally.kinds["real running"] -= 1


async def ask_real(server, rng, tally, tls):
    words = " ".join(rng.choices("river stone winter market letter engine garden".split(), k=rng.randrange(5, 200)))
    await swarm.ask(server, {"model": MODEL, "max_tokens": rng.randrange(1, 48), "messages": user(words)}, tally, tls,
                    timeout=300)


async def scripted(server, rng, tally, tls):
    await swarm.ask(server, some_script(rng), tally, tls)


async def kept(server, rng, tally, tls):
    """One connection, several requests, streamed and whole."""
    reader, writer = await swarm.connect(server, tls)
    try:
        for _ in range(rng.randrange(2, 12)):
            writer.write(swarm.request_bytes(some_script(rng), stream=rng.random() < 0.5))
            judge(tally, "kept", *await read_answer(reader))
    finally:
        writer.transport.abort()


def http2_blocking(server, seed, tls):
    rng, out = random.Random(seed), []
    with wire.Http2(server, tls=tls) as connection:
        ids = [connection.send_request({**some_script(rng), "stream": rng.random() < 0.7})
               for _ in range(rng.randrange(1, 12))]
        for i in ids:
            entry = connection.streams[i]
            if rng.random() < 0.2 and not entry["ended"]:
                connection.reset(i, rng.choice([0, 8]))
            else:
                answer = connection.finish(i)
                out.append((answer.status, answer.body))
    return out


async def http2(server, rng, tally, tls):
    for status, body in await asyncio.to_thread(http2_blocking, server, rng.random(), tls):
        judge(tally, "http2", status, body)


async def cancels(server, rng, tally, tls):
    reader, writer = await swarm.connect(server, tls)
    writer.write(swarm.request_bytes(null_params("tokens=200 delay_ms=10")))
    await writer.drain()
    await asyncio.sleep(rng.random() * 0.5)
    swarm.cut(writer, rng.random() < 0.5)
    tally.kinds["cancelled"] += 1


async def reads_slowly(server, rng, tally, tls):
    reader, writer = await swarm.connect(server, tls, receive_buffer=4096)
    try:
        writer.write(swarm.request_bytes(null_params("tokens=60 chunk=1000 text=" + "x" * 1000)))
        body = b""
        while not body.endswith(b"0\r\n\r\n"):
            piece = await reader.read(2048)
            if not piece:
                break
            body += piece
            await asyncio.sleep(0.02)
        judge(tally, "slow reader", int(body.split(None, 2)[1]), body)
    finally:
        writer.transport.abort()


async def writes_slowly(server, rng, tally, tls):
    reader, writer = await swarm.connect(server, tls)
    try:
        data = swarm.request_bytes(some_script(rng))
        for at in range(0, len(data), 64):
            writer.write(data[at:at + 64])
            await writer.drain()
            await asyncio.sleep(0.03)
        judge(tally, "slow writer", *await read_answer(reader))
    finally:
        writer.transport.abort()


GOOD = json.dumps({"model": "null-model", "max_tokens": 1, "messages": user("x")}).encode()
NONSENSE = [
    (b"\x00\x01\x02 this is no HTTP\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\n\r\n", 400),  # no Host
    (swarm.head(b"{") + b"{", 400),
    (swarm.head(GOOD, target="/v1/no-such-route") + GOOD, 404),
    (swarm.head(GOOD).replace(KEY.encode(), b"wrong") + GOOD, 401),
    (swarm.head(b"", length=1 << 40), 413),
    (swarm.head(GOOD).replace(b"content-length", b"transfer-encoding: chunked\r\ncontent-length"), 400),
    (b"GET /healthz HTTP/1.1\r\nhost: x\r\nbig: " + b"x" * 40_000 + b"\r\n\r\n", 431),
]


async def nonsense(server, rng, tally, tls):
    sent, expected = rng.choice(NONSENSE)
    reader, writer = await swarm.connect(server, tls)
    try:
        writer.write(sent)
        judge(tally, f"nonsense {sent[:30]!r}", int((await reader.readline()).split()[1]), b"", (expected,))
    finally:
        writer.transport.abort()


async def idles(server, rng, tally, tls):
    _, writer = await swarm.connect(server, tls)
    await asyncio.sleep(rng.random())
    swarm.cut(writer, rng.random() < 0.5)
    tally.kinds["idle"] += 1


KINDS = {scripted: 25, kept: 20, http2: 12, cancels: 12, nonsense: 10, idles: 5, reads_slowly: 4, writes_slowly: 4,
         **({real: 8} if REAL else {})}


async def worker(server, number, until, tally):
    rng = random.Random(number)
    while time.monotonic() < until:
        kind = rng.choices(list(KINDS), list(KINDS.values()))[0]
        tally.kinds[kind.__name__] += 1
        try:
            async with asyncio.timeout(300):
                await kind(server, rng, tally, rng.random() < 0.5)
        except (OSError, EOFError, asyncio.TimeoutError, ValueError, IndexError, AssertionError) as e:
            tally.lost.append(f"{kind.__name__}: {type(e).__name__}: {e}")


async def soak(server, seconds):
    tally, samples, began = swarm.Tally(), [], time.monotonic()
    tally.kinds = collections.Counter()
    until = began + seconds
    workers = [asyncio.create_task(worker(server, i, until, tally)) for i in range(WORKERS)]
    every = max(1.0, min(10.0, seconds / 120))
    while time.monotonic() < until:
        await asyncio.sleep(every)
        at = time.monotonic() - began
        samples.append((round(at, 1), server.rss_kib(), server.fds()))
        if sys.stdout.isatty() or len(samples) % 10 == 0:
            print(f"\r{at:6.0f} s  {tally.answered} answered  {tally.refused} refused  {len(tally.lost)} lost  "
                  f"{samples[-1][1] / 1024:.1f} MiB  {samples[-1][2]} descriptors",
                  end="" if sys.stdout.isatty() else "\n", flush=True)
    await asyncio.gather(*workers)
    return tally, samples


def settled_fds(server, most, within=15):
    """Descriptors once the last connections are gone."""
    deadline = time.monotonic() + within
    while (now := server.fds()) > most and time.monotonic() < deadline:
        time.sleep(0.2)
    return now


def main():
    seconds = float(sys.argv[1])
    swarm.raise_file_limit()
    models = [real_model(), null_model()] if REAL else [null_model()]
    # Caches fill up to their bounds: small ones, that are full before the warm-up ends.
    settings = {"limits.connections_per_address": 10_000, "cache.host_mb": 16, "cache.draft_mb": 4}
    with Server(models, settings) as server:
        for _ in range(3):
            swarm.serves(server)
        time.sleep(0.5)
        fds_before = server.fds()
        tally, samples = asyncio.run(soak(server, seconds))
        fds_after = settled_fds(server, fds_before)
        rss_after = server.rss_kib()
        with contextlib.suppress(OSError):
            swarm.serves(server)
    steady = [s for s in samples if s[0] > min(seconds / 3, 300)] or samples
    memory = slope([(t, m) for t, m, _ in steady]) * 60
    bound = MAX_SLOPE if seconds >= SHORT_S else MAX_SLOPE_SHORT
    faults = []
    if tally.lost or not tally.answered:
        faults.append(f"{len(tally.lost)} of {tally.total()} requests lost")
    if memory > bound:
        faults.append(f"memory grows by {memory:.0f} KiB/min, bound {bound}")
    if fds_after > fds_before + IDLE_FD_SLACK:
        faults.append(f"descriptors {fds_before} -> {fds_after}")
    result = {"seconds": seconds, "answered": tally.answered, "refused": tally.refused, "lost": len(tally.lost),
              "rss_mib_first_last_idle": [round(m / 1024, 1) for m in (samples[0][1], samples[-1][1], rss_after)],
              "rss_slope_kib_per_min": round(memory, 1), "rss_slope_bound": bound,
              "fds_before_after": [fds_before, fds_after], "faults": faults}
    (ROOT / "build").mkdir(exist_ok=True)
    (ROOT / "build/soak.json").write_text(json.dumps(
        {**result, "kinds": tally.kinds, "samples": samples, "lost_examples": tally.lost[:50]}))
    print("\n" + json.dumps(result))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
