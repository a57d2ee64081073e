"""Faults from outside: the wall clock jumps, certificates change under load, an operator is impatient."""
import asyncio
import glob
import shutil
import signal
import ssl
import socket
import time

import pytest

from chaos import swarm
from lib.server import Server, authority, null_model, null_params

SETTINGS = {"limits.connections_per_address": 10_000}
FAKETIME = glob.glob("/usr/lib/*/faketime/libfaketime.so.1")


@pytest.mark.skipif(not FAKETIME, reason="libfaketime is not installed")
def test_wall_clock_steps(tmp_path):
    """Time-outs, queues and streams run on the monotonic clock: a step back or ahead of the other changes nothing."""
    offset = tmp_path / "offset"
    offset.write_text("+0")
    env = {"LD_PRELOAD": FAKETIME[0], "FAKETIME_TIMESTAMP_FILE": str(offset), "FAKETIME_NO_CACHE": "1",
           "FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1"}
    log = tmp_path / "access.log"
    with Server([null_model()], {**SETTINGS, "api.ping_s": 1, "limits.body_idle_s": 3, "limits.head_s": 3,
                                 "server.access_log": str(log)}, env=env) as own:
        async def scenario():
            load, lasting = swarm.Tally(), swarm.Tally()
            stop = asyncio.Event()

            async def client(tls):
                while not stop.is_set():
                    await swarm.ask(own, null_params("tokens=5 delay_ms=5"), load, tls)

            # Silent for 2.5 s (pings in between), then 60 tokens: it lives through every step.
            slow = [asyncio.create_task(swarm.ask(own, null_params("tokens=60 delay_ms=50 prefill_ms=2500"), lasting))
                    for _ in range(4)]
            clients = [asyncio.create_task(client(i % 2 == 0)) for i in range(6)]
            for step in ("+2d", "-3d", "+300d", "-1h", "+0"):
                await asyncio.sleep(0.8)
                offset.write_text(step)
            await asyncio.gather(*slow)
            stop.set()
            await asyncio.gather(*clients)
            assert lasting.answered == 4, lasting.lost
            assert load.answered > 30 and not load.lost and not load.refused, load.lost[:5]

        baseline = swarm.Baseline(own)
        cpu = own.cpu_s()
        asyncio.run(scenario())
        assert own.cpu_s() - cpu < 4, "spins after a step"
        baseline.settled()
        days = {line.split('"time":"')[1][:10] for line in log.read_text().splitlines()}
        assert len(days) >= 3, f"the clock did not step for the server: {days}"


def serial(own):
    with socket.create_connection(("127.0.0.1", own.tls_port), 5) as plain:
        with authority().client_context().wrap_socket(plain, server_hostname="localhost") as secure:
            return secure.getpeercert()["serialNumber"]


def test_certificates_reload_under_load(tmp_path):
    """SIGHUP takes new files without a lost request; files that do not fit leave the old certificate in place."""
    swarm.raise_file_limit()
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    shutil.copy(authority().cert, cert)
    shutil.copy(authority().key, key)
    with Server([null_model()], {**SETTINGS, "tls.certificate": str(cert), "tls.key": str(key)}) as own:
        seen = [serial(own)]

        def reload():
            own.process.send_signal(signal.SIGHUP)
            time.sleep(0.4)
            seen.append(serial(own))

        def change():
            for _ in range(3):
                authority().issue(cert, key)
                reload()
            cert.write_text("no certificate")
            reload()
            assert seen[-1] == seen[-2]
            authority().issue(cert, tmp_path / "other.key")  # its key is another one
            reload()
            assert seen[-1] == seen[-2]

        async def scenario():
            tally, stop = swarm.Tally(), asyncio.Event()

            async def client():
                while not stop.is_set():
                    await swarm.ask(own, null_params("tokens=5 delay_ms=5"), tally, tls=True)

            clients = [asyncio.create_task(client()) for _ in range(8)]
            await asyncio.to_thread(change)
            stop.set()
            await asyncio.gather(*clients)
            assert tally.answered > 30 and not tally.lost, tally.lost[:5]

        asyncio.run(scenario())
        assert len(set(seen)) == 4, seen
        assert "certificate not reloaded, the old stays" in own.log_tail(200)


def test_second_sigterm_ends_a_loaded_server_at_once():
    own = Server([null_model()], {**SETTINGS, "server.drain_s": 60})

    async def scenario():
        streams = []
        for i in range(40):
            reader, writer = await swarm.connect(own, tls=i % 2 == 0)
            writer.write(swarm.request_bytes(null_params("tokens=4000 delay_ms=50")))
            await reader.readuntil(b"content_block_delta")
            streams.append((reader, writer))
        own.process.send_signal(signal.SIGTERM)
        await asyncio.sleep(0.5)
        assert own.alive()
        own.process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        await asyncio.to_thread(own.process.wait, 5)
        assert time.monotonic() - began < 2
        for reader, writer in streams:  # every client sees an end, no stream ends as if it were complete
            rest = b""
            try:
                while piece := await asyncio.wait_for(reader.read(65536), 5):
                    rest += piece
            except (OSError, ssl.SSLError):
                pass
            assert b"message_stop" not in rest
            writer.transport.abort()

    try:
        asyncio.run(scenario())
        assert own.process.returncode == 0
    finally:
        own.close()
