"""Many clients in one asyncio loop, well and badly behaved, and the judge of what they leave behind."""
import asyncio
import contextlib
import json
import resource
import socket
import ssl
import struct
import time

from lib import wire
from lib.server import authority, null_params


def raise_file_limit(needed=8192):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(needed, hard), hard))


def head(body: bytes, target="/v1/messages", length=None) -> bytes:
    lines = [f"POST {target} HTTP/1.1", "host: localhost", *(f"{k}: {v}" for k, v in wire.headers_for().items()),
             f"content-length: {len(body) if length is None else length}"]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def request_bytes(params, stream=True) -> bytes:
    body = json.dumps({**params, "stream": stream}).encode()
    return head(body) + body


async def connect(server, tls=False, receive_buffer=None):
    """(reader, writer); a small receive buffer makes a slow reader felt at once."""
    port = server.tls_port if tls else server.port
    plain = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    plain.setblocking(False)
    if receive_buffer:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    await asyncio.get_running_loop().sock_connect(plain, ("127.0.0.1", port))
    options = {"limit": 4096} if receive_buffer else {}
    if tls:
        options |= {"ssl": authority().client_context(), "server_hostname": "localhost"}
    return await asyncio.open_connection(sock=plain, **options)


def cut(writer, reset):
    """Ends the connection now: with RST (reset) or FIN."""
    plain = writer.transport.get_extra_info("socket")
    if reset and plain is not None:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


class Tally:
    """What came of a load: whole answers, refusals that say so, and everything else."""

    def __init__(self):
        self.answered = self.refused = 0
        self.lost = []

    def total(self):
        return self.answered + self.refused + len(self.lost)


async def ask(server, params, tally, tls=False, timeout=60):
    writer = None
    try:
        async with asyncio.timeout(timeout):
            reader, writer = await connect(server, tls)
            writer.write(request_bytes(params))
            status = int((await reader.readline()).split()[1])
            headers = {}
            while line := (await reader.readline()).strip():
                name, value = line.decode("latin-1").split(":", 1)
                headers[name.lower()] = value.strip()
            if status == 200:
                rest = b""
                while not rest.endswith(b"0\r\n\r\n"):
                    piece = await reader.read(65536)
                    if not piece:
                        break
                    rest += piece
                if b"event: message_stop" in rest:
                    tally.answered += 1
                else:
                    tally.lost.append(f"stream without its end: …{rest[-120:]!r}")
            elif status in (429, 503, 529) and int(headers.get("retry-after", 0)) >= 1:
                tally.refused += 1
            else:
                tally.lost.append(f"status {status} {headers}")
            return status
    except (OSError, asyncio.TimeoutError, IndexError, ValueError, asyncio.IncompleteReadError) as e:
        tally.lost.append(f"{type(e).__name__}: {e}")
    finally:
        if writer is not None:
            writer.close()
            with contextlib.suppress(OSError, ssl.SSLError, asyncio.TimeoutError):
                await asyncio.wait_for(writer.wait_closed(), 2)


async def load(server, params, clients, seconds, tls=False, pause=0.0):
    """Closed loop: each client asks again as soon as it is answered (after `pause`, when refused)."""
    tally, until = Tally(), time.monotonic() + seconds

    async def client():
        while time.monotonic() < until:
            if await ask(server, params, tally, tls) != 200:
                await asyncio.sleep(pause)

    await asyncio.gather(*(client() for _ in range(clients)))
    return tally


def serves(server):
    answer = wire.post(server, null_params("tokens=3"))
    assert answer.status == 200, (answer, server.log_tail(10))


class Baseline:
    """Memory and descriptors before a scenario; settled() is what must hold after it."""

    def __init__(self, server):
        serves(server)
        time.sleep(0.3)
        self.server, self.fds, self.rss = server, server.fds(), server.rss_kib()

    def settled(self, slack_kib=32 * 1024, within=20):
        deadline = time.monotonic() + within
        while time.monotonic() < deadline:
            serves(self.server)
            fds, rss = self.server.fds(), self.server.rss_kib()
            if fds <= self.fds + 4 and rss <= self.rss + slack_kib:
                return
            time.sleep(0.5)
        raise AssertionError(f"not back after {within} s: descriptors {self.fds} -> {fds}, "
                             f"memory {self.rss} -> {rss} KiB")


def no_leak(server, scenario, growth_kib=6 * 1024):
    """Runs a scenario three times: allocators keep what they once needed, a leak grows with every run."""
    baseline = Baseline(server)
    scenario()
    baseline.settled()
    again = Baseline(server)
    scenario()
    again.settled()
    scenario()
    again.settled(slack_kib=growth_kib)
