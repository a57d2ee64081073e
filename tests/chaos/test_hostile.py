"""Clients that hold on to what others need: answers they hardly read, bodies they hardly send."""
import asyncio
import json
import socket
import time

import h2.config
import h2.connection
import h2.events
import h2.settings
import pytest

from chaos import swarm
from lib import wire
from lib.server import NULL, Server, null_model, null_params

FLOOD = {**null_params("tokens=4000 chunk=4000 text=" + "x" * 4000), "max_tokens": 4000, "stream": True}
READERS, UPLOADERS = 8, 16
STALL_S, RATE = 3, 1000
SLOW = {"limits.write_stall_s": STALL_S, "limits.min_bytes_per_s": RATE}


def workspaces(own):
    """Keys of a hostile and a normal client, once the server knows them."""
    keys = [own.create_key(name)["secret"] for name in ("hostile", "normal")]
    deadline = time.monotonic() + 10
    while wire.post(own, null_params("tokens=1"), headers=wire.headers_for(keys[1])).status != 200:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return keys


def is_reset(plain):
    """Whether the connection is gone, which a reader learns only behind what it had not read yet."""
    return plain.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == 7  # TCP_CLOSE


async def small_h1_reader(own, key, bytes_per_s, seconds):
    """How long it lived."""
    loop, plain = asyncio.get_running_loop(), socket.socket()
    plain.setblocking(False)
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    body = json.dumps(FLOOD).encode()
    lines = ["POST /v1/messages HTTP/1.1", "host: localhost", f"content-length: {len(body)}",
             *(f"{k}: {v}" for k, v in wire.headers_for(key).items())]
    with plain:
        await loop.sock_connect(plain, ("127.0.0.1", own.port))
        await loop.sock_sendall(plain, ("\r\n".join(lines) + "\r\n\r\n").encode() + body)
        await loop.sock_recv(plain, 1)
        began, got = time.monotonic(), 0
        while time.monotonic() - began < seconds and not is_reset(plain):
            due = int(bytes_per_s * (time.monotonic() - began)) - got
            if due > 0:
                got += len(await loop.sock_recv(plain, due))
            await asyncio.sleep(0.1)
        return time.monotonic() - began


async def h2_readers(own, key, streams, step, each_s, seconds, window=0):
    """Streams on one connection whose windows open by `step` bytes every each_s: how long each lived."""
    reader, writer = await swarm.connect(own)
    client = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    client.local_settings = h2.settings.Settings(
        client=True, initial_values={h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window})
    client.initiate_connection()
    client.increment_flow_control_window(1 << 30)
    body = json.dumps(FLOOD).encode()
    fields = [(":method", "POST"), (":scheme", "http"), (":authority", "localhost"), (":path", "/v1/messages"),
              *wire.headers_for(key).items()]
    for i in range(streams):
        client.send_headers(2 * i + 1, fields)
        client.send_data(2 * i + 1, body, end_stream=True)
    writer.write(client.data_to_send())
    began, lives = time.monotonic(), {}

    async def read():
        while data := await reader.read(65536):
            for event in client.receive_data(data):
                if isinstance(event, h2.events.StreamReset):
                    lives[event.stream_id] = time.monotonic() - began
            writer.write(client.data_to_send())

    reading = asyncio.create_task(read())
    while time.monotonic() - began < seconds and len(lives) < streams:
        await asyncio.sleep(each_s)
        for i in range(streams):
            if 2 * i + 1 not in lives:
                client.increment_flow_control_window(step, 2 * i + 1)
        writer.write(client.data_to_send())
    reading.cancel()
    writer.transport.abort()
    return [lives.get(2 * i + 1, seconds) for i in range(streams)]


@pytest.fixture(scope="module")
def slow():
    with Server([null_model(slots=READERS)], SLOW, tls=False) as running:
        running.keys = workspaces(running)
        yield running


@pytest.mark.parametrize("h2c", [False, True])
def test_hostile_readers_give_their_slots_back(slow, h2c):
    """They hold every slot and take a few bytes now and then; who waits behind them is served."""
    hostile, normal = slow.keys

    async def scenario():
        if h2c:
            held = asyncio.create_task(h2_readers(slow, hostile, READERS, step=1, each_s=0.5, seconds=20))
        else:
            held = asyncio.gather(*(small_h1_reader(slow, hostile, 100, 20) for _ in range(READERS)))
        await asyncio.sleep(1)
        began = time.monotonic()
        answer = await asyncio.to_thread(wire.post, slow, null_params("tokens=3"),
                                         headers=wire.headers_for(normal), timeout=15)
        waited = time.monotonic() - began
        assert answer.status == 200
        return waited, await held

    waited, lives = asyncio.run(scenario())
    print(f"waited {waited:.1f} s; they lived {min(lives):.1f} to {max(lives):.1f} s")
    # What their kernels took at the start buys as much time again as taking nothing is allowed.
    assert waited < 2 * STALL_S + 3 and max(lives) < 2 * STALL_S + 5


def test_readers_above_the_rate_are_served(slow):
    """Bytes leave in steps that are seconds apart, of TCP and of HTTP/2 windows; on average they keep up."""
    async def scenario():
        h1 = asyncio.gather(*(small_h1_reader(slow, slow.keys[0], rate, 12) for rate in (1500, 2000, 4000)))
        h2 = h2_readers(slow, slow.keys[0], 2, step=6000, each_s=4, seconds=12, window=6000)
        return await h1 + await h2

    lives = asyncio.run(scenario())
    assert min(lives) >= 12, lives


def test_hostile_uploaders():
    """They send nearly all of the largest body, then a byte now and then, or just enough to be within the
    rate: another workspace is served meanwhile, their own soon after."""
    body, idle_s, whole_s = 2 << 20, 2, 6
    settings = {"limits.body_bytes": body, "limits.total_buffer_bytes": 2 * UPLOADERS * body,
                "limits.body_idle_s": idle_s, "limits.body_s": whole_s}
    with Server([null_model()], settings, tls=False) as own:
        hostile, normal = workspaces(own)

        async def upload(piece, each_s):
            reader, writer = await swarm.connect(own)
            lines = ["POST /v1/messages HTTP/1.1", "host: localhost", f"content-length: {body}",
                     *(f"{k}: {v}" for k, v in wire.headers_for(hostile).items())]
            writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
            writer.write(b'{"model":"' + b"x" * (body - 100_000))
            answer, began = asyncio.create_task(reader.readline()), time.monotonic()
            while not answer.done() and time.monotonic() - began < 30:
                await asyncio.wait([answer], timeout=each_s)
                writer.write(b"x" * piece)
            status = int(answer.result().split()[1]) if answer.done() else 0
            writer.transport.abort()
            return status, time.monotonic() - began

        async def scenario(piece, each_s):
            held = asyncio.gather(*(upload(piece, each_s) for _ in range(UPLOADERS)))
            began, slowest = time.monotonic(), 0
            while not held.done():
                asked = time.monotonic()
                answer = await asyncio.to_thread(wire.post, own, null_params("tokens=3"),
                                                 headers=wire.headers_for(normal))
                assert answer.status == 200, answer
                if asked - began > 1:  # not while 32 MiB come in
                    slowest = max(slowest, time.monotonic() - asked)
                await asyncio.sleep(0.05)
            again = await asyncio.to_thread(wire.post, own, null_params("tokens=3", padding="x" * 1_000_000),
                                            headers=wire.headers_for(hostile))
            assert again.status == 400  # it names the field: the body was read
            return await held, slowest

        for piece, each_s, most in ((1, 0.5, idle_s), (400, 0.5, whole_s)):
            ended, slowest = asyncio.run(scenario(piece, each_s))
            print(f"{sorted(ended)[0]} … {sorted(ended)[-1]}, the other's slowest {slowest:.2f} s")
            assert {status for status, _ in ended} == {408}
            assert max(lived for _, lived in ended) < most + 4
            assert slowest < 1


def test_a_slow_model_is_no_slow_reader(slow):
    """Nothing waits for the client: however long the answer takes, nobody is cut."""
    status, _, events = wire.stream(slow, null_params("tokens=4 delay_ms=2500", NULL),
                                    headers=wire.headers_for(slow.keys[1]))
    assert status == 200 and events[-1].name == "message_stop"
