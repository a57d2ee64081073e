"""API keys in tests: their headers, and the moment from which a running server knows of them."""
import time

from lib.wire import headers_for, request


def as_key(key, **more):
    return headers_for(key=key["secret"], **more)


def take_up(server, secret, wanted=200, within_s=2):
    """Waits until the server answers a key with this status; a change takes at most a second."""
    deadline = time.monotonic() + within_s
    while True:
        answer = request(server, "GET", "/v1/models", headers=headers_for(key=secret))
        if answer.status == wanted or time.monotonic() > deadline:
            assert answer.status == wanted, answer.body
            return answer
        time.sleep(0.05)


def new_key(server, *wishes):
    """A key of a running server that takes effect."""
    key = server.create_key(*wishes)
    take_up(server, key["secret"])
    return key
