"""Clients that mean harm, as a process of their own: bench/admission.py starts them beside a normal client.

    occupy    8 slow readers (4 h1 that take some KB/s, 4 h2 that open their window by a byte every 3 s) and 16
              uploaders that send all of a 32 MiB body but its last bytes, and those one by one
    prompts   32 MiB of what is costly to parse, one request after the other of each kind

Who is cut comes again. They run until standard input closes; then one JSON line counts what happened."""
import argparse
import collections
import gzip
import json
import socket
import sys
import threading
import time

import h2.config
import h2.connection
import h2.events
import h2.settings

MIB = 1 << 20
BODY = 32 * MIB - 1024  # just below limits.body_bytes
AGAIN_S = 1.0


class Hostile:
    def __init__(self, args):
        self.args, self.counts, self.lock = args, collections.Counter(), threading.Lock()

    def count(self, what):
        with self.lock:
            self.counts[what] += 1

    def connect(self, receive_bytes=None):
        s = socket.socket()
        if receive_bytes:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)  # before connect: bounds the window
        s.settimeout(30)
        s.connect(("127.0.0.1", self.args.port))
        return s

    def head(self, length, *more):
        return "\r\n".join(["POST /v1/messages HTTP/1.1", "host: localhost", "content-type: application/json",
                            "anthropic-version: 2023-06-01", f"x-api-key: {self.args.key}", f"content-length: {length}",
                            *more, "", ""]).encode()

    def ask(self, i):
        return json.dumps({"model": self.args.model, "max_tokens": 4000, "stream": True, "messages": [
            {"role": "user", "content": f"Story {i} {time.monotonic()}: count from one to ten thousand, in words."}]}).encode()

    def forever(self, name, once, *args):
        """Again and again; how each try ended is counted."""
        while True:
            try:
                end = once(*args)
            except Exception as e:  # cut in any way
                end = type(e).__name__
            self.count(f"{name}: {end}")
            time.sleep(AGAIN_S)

    # --- occupy --------------------------------------------------------------------------------------
    def slow_h1(self, i):
        body = self.ask(i)
        with self.connect(4096) as s:
            s.sendall(self.head(len(body)) + body)
            status = int(s.recv(256).split()[1])
            while status == 200:
                time.sleep(0.25)
                if not s.recv((256, 1024)[i % 2]):  # 1 and 4 KB/s
                    return "cut"
            return str(status)

    def slow_h2(self, i):
        with self.connect() as s:
            c = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
            c.initiate_connection()
            c.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 0})
            c.send_headers(1, [(":method", "POST"), (":scheme", "http"), (":authority", "localhost"), (":path", "/v1/messages"),
                               ("content-type", "application/json"), ("anthropic-version", "2023-06-01"),
                               ("x-api-key", self.args.key)])
            c.send_data(1, self.ask(i), end_stream=True)
            s.sendall(c.data_to_send())
            s.settimeout(3)
            while True:
                try:
                    data = s.recv(65536)
                    if not data:
                        return "cut"
                    for event in c.receive_data(data):
                        if isinstance(event, h2.events.StreamReset):
                            return f"reset {event.error_code}"
                        if isinstance(event, h2.events.ResponseReceived) and dict(event.headers)[b":status"] != b"200":
                            return dict(event.headers)[b":status"].decode()
                except TimeoutError:
                    c.increment_flow_control_window(1, 1)
                s.sendall(c.data_to_send())

    def upload(self):
        with self.connect() as s:
            s.sendall(self.head(BODY))
            piece = b" " * MIB
            for _ in range(BODY // MIB):
                s.sendall(piece)
            s.settimeout(3)
            while True:
                try:
                    data = s.recv(256)
                    return data.split()[1].decode() if data else "cut"
                except TimeoutError:
                    s.sendall(b" ")

    # --- prompts -------------------------------------------------------------------------------------
    def bodies(self):
        """{kind: [(headers, body)]}, each taken in turn."""
        def body(**fields):
            return json.dumps({"model": self.args.model, "max_tokens": 16, "messages": [{"role": "user", "content": "hi"}],
                               **fields}, ensure_ascii=False).encode()

        def user(text):
            return body(messages=[{"role": "user", "content": text}])
        guard = user("\U000f003e" * ((BODY - 200) // 4) + "<|im_end|>")
        packed = ["content-encoding: gzip"]
        nested = b"[" * 100 + b"]" * 100
        legal = body(deep=0)[:-2] + b"[" + b",".join([nested] * ((BODY - 400) // 201)) + b"]}"
        return {"guard": [([], guard)],
                "messages": [([], body(messages=[{"role": ("user", "assistant")[i % 2], "content": "x"} for i in range(99_999)]))],
                "deep": [([], body(deep=0)[:-2] + b"[" * (BODY - 400)), ([], legal)],
                "stops": [([], body(stop_sequences=[f"{i:03} " + "x" * 110_000 for i in range(256)]))],
                "gzip": [(packed, gzip.compress(bytes(1024 * MIB), 1)), (packed, gzip.compress(guard, 1))]}

    def send_prompt(self, headers, body):
        with self.connect() as s:
            s.settimeout(self.args.patience_s)
            s.sendall(self.head(len(body), "connection: close", *headers) + body)
            return s.recv(256).split()[1].decode()

    def prompts(self, kind, bodies):
        while True:
            for headers, body in bodies:
                try:
                    end = self.send_prompt(headers, body)
                except (OSError, IndexError) as e:
                    end = type(e).__name__
                self.count(f"{kind}: {end}")
                time.sleep(self.args.pause_s)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=("occupy", "prompts"))
    p.add_argument("--port", type=int, required=True)
    p.add_argument("--key", required=True)
    p.add_argument("--model", default="bench")
    p.add_argument("--patience-s", type=float, default=5, help="prompts: leaves when nothing came so long")
    p.add_argument("--pause-s", type=float, default=1, help="prompts: between two of a kind")
    hostile = Hostile(p.parse_args())
    if hostile.args.what == "occupy":
        work = [(hostile.forever, f"{name} reader", read, i) for name, read in
                (("h1", hostile.slow_h1), ("h2", hostile.slow_h2)) for i in range(4)]
        work += [(hostile.forever, "uploader", hostile.upload)] * 16
    else:
        work = [(hostile.prompts, kind, bodies) for kind, bodies in hostile.bodies().items()]
    for run, *args in work:
        threading.Thread(target=run, args=args, daemon=True).start()
    print("ready", flush=True)
    sys.stdin.read()
    print(json.dumps(dict(sorted(hostile.counts.items()))), flush=True)


if __name__ == "__main__":
    main()
