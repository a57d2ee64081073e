"""More than it can take: requests, bytes, descriptors; and a kill in the middle of it."""
import asyncio
import json
import os
import time

import pytest

from chaos import swarm
from lib import wire
from lib.server import NULL, Server, null_model, null_params, user

SECONDS = float(os.environ.get("ZEROHOP_CHAOS_S", "6"))


def test_ten_times_its_capacity():
    """8 slots and a short queue, 10 × as many clients: every request is answered or properly refused, and the
    slots stay busy."""
    swarm.raise_file_limit()
    script = null_params("tokens=10 delay_ms=10")  # 0.1 s a request: 80 requests/s with 8 slots
    with Server([null_model(slots=8, queue=16)], {"limits.connections_per_address": 10_000}) as own:
        baseline = swarm.Baseline(own)
        tally = asyncio.run(swarm.load(own, script, clients=240, seconds=SECONDS, pause=0.2))
        print(f"{tally.answered} answered, {tally.refused} refused, {len(tally.lost)} lost in {SECONDS} s")
        assert not tally.lost, tally.lost[:5]
        assert tally.refused > 0
        assert tally.answered >= 0.6 * 80 * SECONDS
        baseline.settled()


def test_overload_over_tls():
    swarm.raise_file_limit()
    with Server([null_model(slots=8, queue=16)], {"limits.connections_per_address": 10_000}) as own:
        baseline = swarm.Baseline(own)
        tally = asyncio.run(swarm.load(own, null_params("tokens=10 delay_ms=10"), clients=60,
                                       seconds=SECONDS / 2, tls=True, pause=0.2))
        assert not tally.lost and tally.answered > 0, tally.lost[:5]
        baseline.settled()


def test_out_of_descriptors():
    swarm.raise_file_limit()
    with Server([null_model()], {"limits.connections_per_address": 10_000}, open_files=150) as own:
        baseline = swarm.Baseline(own)

        async def scenario():
            tries = await asyncio.gather(*(asyncio.wait_for(asyncio.open_connection("127.0.0.1", own.port), 5)
                                           for _ in range(400)), return_exceptions=True)
            cpu = own.cpu_s()
            await asyncio.sleep(2)
            assert own.alive() and own.cpu_s() - cpu < 1, "spins while no descriptor is free"
            for one in tries:
                if not isinstance(one, BaseException):
                    one[1].transport.abort()

        asyncio.run(scenario())
        baseline.settled()


def test_memory_for_bodies_is_bounded():
    """Large bodies that never end: beyond the cap new requests are refused, memory stays under it."""
    cap = 32 << 20
    with Server([null_model()], {"limits.total_buffer_bytes": cap, "limits.body_idle_s": 5}) as own:
        baseline = swarm.Baseline(own)
        part = b'{"model":"' + b"x" * (4 << 20)

        async def scenario():
            async def one():
                reader, writer = await swarm.connect(own)
                writer.write(swarm.head(b"", length=30 << 20) + part)
                try:
                    await asyncio.wait_for(writer.drain(), 3)
                except (OSError, asyncio.TimeoutError):
                    pass
                return reader, writer

            streams = await asyncio.gather(*(one() for _ in range(40)))
            await asyncio.sleep(0.5)
            grown = (own.rss_kib() - baseline.rss) << 10
            refused = 0
            for reader, _ in streams:
                try:
                    refused += (await asyncio.wait_for(reader.readline(), 0.1)).startswith(b"HTTP/1.1 529")
                except (OSError, asyncio.TimeoutError):
                    pass
            assert refused >= 40 - cap // (4 << 20)
            await asyncio.to_thread(swarm.serves, own)  # a small request still fits
            for _, writer in streams:
                writer.transport.abort()
            return grown

        grown = asyncio.run(scenario())
        print(f"{grown >> 20} MiB held for 160 MiB sent, cap {cap >> 20} MiB")
        assert grown < 2.5 * cap
        baseline.settled(slack_kib=cap >> 10)


def test_kill_and_restart_under_load():
    """kill -9 while clients ask: the same address serves again, clients that retry go on."""
    settings = {"limits.connections_per_address": 10_000}
    own = Server([null_model()], settings, tls=False)

    async def scenario():
        served_after, stop = [], asyncio.Event()

        async def client():
            while not stop.is_set():
                tally = swarm.Tally()
                await swarm.ask(own, null_params("tokens=5 delay_ms=5"), tally, timeout=5)
                if tally.answered:
                    served_after.append(time.monotonic())
                else:
                    await asyncio.sleep(0.05)

        clients = [asyncio.create_task(client()) for _ in range(16)]
        for _ in range(3):
            await asyncio.sleep(0.7)
            own.process.kill()
            await asyncio.to_thread(own.process.wait, 10)
            killed = time.monotonic()
            own.log.close()
            await asyncio.to_thread(own.start)
            while not [t for t in served_after if t > killed + 0.05]:
                assert time.monotonic() - killed < 10
                await asyncio.sleep(0.02)
        stop.set()
        await asyncio.gather(*clients)

    try:
        asyncio.run(scenario())
        swarm.serves(own)
    finally:
        own.close()


def frame(kind, flags, stream, payload=b""):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def flood_bytes(attack, offender):
    """12,000 frames that cost the sender next to nothing."""
    if attack == "rapid_reset":
        for _ in range(4000):
            i = offender.send_head(method="GET", target="/v1/models", end=True)
            offender.h2.reset_stream(i, 8)
            offender.streams.pop(i)
        return offender.h2.data_to_send()
    if attack in ("settings", "ping", "priority"):
        return {"settings": frame(4, 0, 0, b"\0\x04\0\0\xff\xff"), "ping": frame(6, 0, 0, b"12345678"),
                "priority": frame(2, 0, 3, b"\0\0\0\0\x10")}[attack] * 12_000
    if attack == "continuation":  # a head that never ends
        return frame(1, 1, 1, b"\x82") + frame(9, 0, 1) * 12_000
    stream = offender.send_head()  # a body that never comes
    offender.flush()
    return {"empty_data": frame(0, 0, stream), "window": frame(8, 0, stream, b"\0\0\0\x01")}[attack] * 12_000


@pytest.mark.parametrize("attack", ["rapid_reset", "settings", "ping", "priority", "continuation", "empty_data", "window"])
def test_http2_floods_cost_the_offender_only(attack):
    with Server([null_model()]) as own:
        baseline = swarm.Baseline(own)
        with wire.Http2(own) as victim:
            running = victim.send_request({**null_params("tokens=40 delay_ms=50"), "stream": True})
            with wire.Http2(own, timeout=5) as offender:
                ended = False
                try:
                    offender.socket.sendall(flood_bytes(attack, offender))
                    while offender.socket.recv(1 << 16):
                        pass
                    ended = True
                except TimeoutError:
                    pass
                except OSError:  # a reset, or nothing can be sent any more
                    ended = True
                assert ended, "the offender keeps its connection"
            assert b"message_stop" in victim.finish(running).body
        cpu = own.cpu_s()
        time.sleep(1)
        assert own.cpu_s() - cpu < 0.5
        baseline.settled()
