"""An upgrade drops nothing: two processes on one port (SO_REUSEPORT), or on sockets systemd holds."""
import asyncio
import signal
import socket
import time

from chaos import swarm
from lib import wire
from lib.server import Server, null_model, null_params

SETTINGS = {"limits.connections_per_address": 10_000, "server.drain_s": 20}
SHARED = {**SETTINGS, "server.reuse_port": True}


async def while_asking(server, change):
    """Clients ask over fresh connections, one stream lasts, while change() runs; returns their tally."""
    tally, stop = swarm.Tally(), asyncio.Event()
    lasting = swarm.Tally()

    async def client(tls):
        while not stop.is_set():
            await swarm.ask(server, null_params("tokens=3 delay_ms=2"), tally, tls)

    long_one = asyncio.create_task(swarm.ask(server, null_params("tokens=80 delay_ms=50"), lasting))
    await asyncio.sleep(0.2)
    clients = [asyncio.create_task(client(i % 3 == 0)) for i in range(12)]
    await asyncio.sleep(0.5)
    before = tally.answered
    await asyncio.to_thread(change)
    at_change = tally.answered
    await asyncio.sleep(0.7)
    stop.set()
    await asyncio.gather(*clients, long_one)
    print(f"{before} answered before, {at_change - before} during, {tally.answered - at_change} after, "
          f"{len(tally.lost)} lost")
    assert before > 10 and tally.answered > at_change + 10
    assert not tally.lost and not tally.refused, (tally.refused, tally.lost[:5])
    assert lasting.answered == 1, lasting.lost
    return tally


def test_two_processes_share_the_port():
    """A chain of three: what the first left in the kernel must not mislead the second's successor."""
    swarm.raise_file_limit()
    running = [Server([null_model()], SHARED)]
    try:
        for _ in range(2):
            def change():
                running.append(Server([null_model()], SHARED, beside=running[-1]))
                time.sleep(0.3)
                old = running[-2]
                assert old.terminate(30) == 0, old.log_tail(5)

            asyncio.run(while_asking(running[-1], change))
        swarm.serves(running[-1])
    finally:
        for one in running:
            one.close()


def listening():
    s = socket.socket()
    s.bind(("127.0.0.1", 0))
    s.listen(512)
    return s


def test_sockets_of_systemd_overlap_and_gap():
    """Both orders: the successor starts first; or nobody accepts for a while and clients wait in the backlog."""
    swarm.raise_file_limit()
    sockets = [listening(), listening()]
    running = [Server([null_model()], SETTINGS, sockets=sockets)]
    try:
        def overlap():
            running.append(Server([null_model()], SETTINGS, sockets=sockets))
            assert running[-2].terminate(30) == 0

        def gap():
            assert running[-1].terminate(30) == 0
            time.sleep(0.5)
            running.append(Server([null_model()], SETTINGS, sockets=sockets))

        asyncio.run(while_asking(running[-1], overlap))
        asyncio.run(while_asking(running[-1], gap))
    finally:
        for one in running:
            one.close()
        for s in sockets:
            s.close()


def test_a_socket_nobody_handed_over():
    own = Server([null_model()], {"server.listen": ["fd:3"], "server.listen_tls": []}, start=False)
    try:
        own.start(10)
        raise AssertionError("it started")
    except RuntimeError as e:
        assert "ended with 2" in str(e) and "fd:3" in str(e), e
    finally:
        own.process = None
        own.close()


def test_alone_on_a_shared_port_it_still_drains():
    with Server([null_model()], SHARED) as own:
        with wire.Http1(own) as connection:
            connection.send_request("POST", "/v1/messages", wire.headers_for(), b"{}" + b" " * 10)
            assert connection.read_answer().status == 400
        own.process.send_signal(signal.SIGTERM)
        assert own.process.wait(10) == 0
