"""Clients that are idle, slow, half gone or cut off at every point of a request."""
import asyncio
import time

import pytest

from chaos import swarm
from lib import wire
from lib.server import Server, null_model, null_params

QUICK = {"limits.handshake_s": 2, "limits.head_s": 2, "limits.body_idle_s": 2, "limits.write_stall_s": 3,
         "limits.connections_per_address": 10_000}


@pytest.fixture(scope="module")
def own():
    swarm.raise_file_limit()
    with Server([null_model()], QUICK) as running:
        yield running


def test_2000_idle_tls_connections(own):
    baseline = swarm.Baseline(own)

    async def scenario():
        gate, writers = asyncio.Semaphore(64), []

        async def one():
            async with gate:
                writers.append((await swarm.connect(own, tls=True))[1])

        await asyncio.gather(*(one() for _ in range(2000)))
        await asyncio.sleep(1)
        grown = own.rss_kib() - baseline.rss
        await asyncio.to_thread(swarm.serves, own)
        assert own.fds() >= baseline.fds + 2000
        for writer in writers:
            writer.transport.abort()
        return grown

    grown = asyncio.run(scenario())
    print(f"memory per idle TLS connection: {grown / 2000:.1f} KiB")
    assert grown / 2000 <= 64
    baseline.settled(slack_kib=2000 * 64)


async def _until_closed(reader):
    while await reader.read(65536):
        pass


def _closed_within(own, tls, send, seconds):
    """The server ends a connection on which `send(writer)` dawdles."""
    async def scenario():
        async def one():
            reader, writer = await swarm.connect(own, tls)
            dawdle = asyncio.create_task(send(writer))
            began = time.monotonic()
            try:
                await asyncio.wait_for(_until_closed(reader), seconds)
            except OSError:
                pass
            dawdle.cancel()
            writer.transport.abort()
            return time.monotonic() - began

        lives = await asyncio.gather(*(one() for _ in range(50)))
        assert max(lives) < seconds
        await asyncio.to_thread(swarm.serves, own)

    swarm.no_leak(own, lambda: asyncio.run(scenario()))


async def _drip(writer, data):
    try:
        for i in range(len(data)):
            writer.write(data[i:i + 1])
            await writer.drain()
            await asyncio.sleep(0.2)
    except (OSError, asyncio.CancelledError):
        pass


@pytest.mark.parametrize("tls", [False, True])
def test_slow_head(own, tls):
    _closed_within(own, tls, lambda w: _drip(w, swarm.request_bytes(null_params("tokens=1"))), 6)


@pytest.mark.parametrize("tls", [False, True])
def test_stalled_body(own, tls):
    async def send(writer):
        writer.write(swarm.head(b"", length=1000) + b'{"model"')
        await asyncio.sleep(60)

    _closed_within(own, tls, send, 6)


def test_handshake_that_never_comes(own):
    async def scenario():
        streams = [await asyncio.open_connection("127.0.0.1", own.tls_port) for _ in range(50)]
        began = time.monotonic()
        for reader, writer in streams:
            try:
                await asyncio.wait_for(_until_closed(reader), 6)
            except OSError:
                pass
            writer.transport.abort()
        assert time.monotonic() - began < 6

    swarm.no_leak(own, lambda: asyncio.run(scenario()))


@pytest.mark.parametrize("tls", [False, True])
def test_slow_reader_hurts_only_itself(own, tls):
    """It takes nothing of a long answer: its sequence pauses, others flow, in the end it is cut off."""
    big = {**null_params("tokens=4000 chunk=4000 text=" + "x" * 4000), "max_tokens": 4000}

    async def scenario():
        slow = [await swarm.connect(own, tls, receive_buffer=4096) for _ in range(10)]
        for _, writer in slow:
            writer.write(swarm.request_bytes(big))
        await asyncio.sleep(1)
        before = own.rss_kib()
        tally = await swarm.load(own, null_params("tokens=10 delay_ms=1"), clients=8, seconds=2)
        assert tally.answered > 50 and not tally.lost, tally.lost[:3]
        assert own.rss_kib() - before < 32 * 1024  # 16 MiB each would be buffered without backpressure
        await asyncio.sleep(4)
        cut_off = 0
        for reader, writer in slow:
            try:
                await asyncio.wait_for(_until_closed(reader), 5)
            except (OSError, asyncio.TimeoutError):
                pass
            cut_off += reader.at_eof() or writer.transport.is_closing()
            writer.transport.abort()
        assert cut_off == len(slow)

    baseline = swarm.Baseline(own)
    asyncio.run(scenario())
    baseline.settled()


PHASES = ["connected", "handshake", "head", "body", "queued", "stream"]


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("reset", [False, True])
def test_cut_at(own, phase, tls, reset):
    whole = swarm.request_bytes(null_params("tokens=100 delay_ms=20" if phase == "stream" else "tokens=5 prefill_ms=500"))
    body_at = whole.index(b"\r\n\r\n") + 4
    sent = {"connected": b"", "head": whole[:40], "body": whole[:body_at + 9]}.get(phase, whole)

    async def one():
        if phase == "handshake":
            _, writer = await asyncio.open_connection("127.0.0.1", own.tls_port if tls else own.port)
            writer.write(bytes.fromhex("16030100c8010000c40303"))  # the start of a ClientHello
        else:
            reader, writer = await swarm.connect(own, tls)
            writer.write(sent)
        await writer.drain()
        if phase == "stream":
            await reader.readuntil(b"content_block_delta")
        else:
            await asyncio.sleep(0.05)
        swarm.cut(writer, reset)

    async def scenario():
        await asyncio.gather(*(one() for _ in range(20)))

    baseline = swarm.Baseline(own)
    asyncio.run(scenario())
    swarm.serves(own)
    baseline.settled()


@pytest.mark.parametrize("tls", [False, True])
def test_half_closed(own, tls):
    """A FIN after a complete request counts as cancel; before one it ends the connection."""
    async def scenario():
        for sent in (b"", b"POST /v1/mess", swarm.request_bytes(null_params("tokens=500 delay_ms=50"))):
            streams = [await swarm.connect(own, tls) for _ in range(10)]
            for reader, writer in streams:
                writer.write(sent)
                await writer.drain()
                import socket
                writer.transport.get_extra_info("socket")._sock.shutdown(socket.SHUT_WR)
            for reader, writer in streams:
                try:
                    await asyncio.wait_for(_until_closed(reader), 3)
                except OSError:
                    pass
                writer.transport.abort()

    swarm.no_leak(own, lambda: asyncio.run(scenario()))


def test_cut_http2_streams(own):
    def scenario():
        for code in (0, 8):
            with wire.Http2(own) as connection:
                ids = [connection.send_request({**null_params("tokens=100 delay_ms=20"), "stream": True})
                       for _ in range(50)]
                connection.pump_until(lambda: all(connection.streams[i]["first"] for i in ids))
                for i in ids[:40]:
                    connection.h2.reset_stream(i, code)
                connection.flush()
                connection.finish(ids[-1])  # the others go on; then the connection goes away with them

    swarm.no_leak(own, scenario)
