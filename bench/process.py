"""Servers under measurement: started on a free loopback port, ended by their own process id."""
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Process:
    def __init__(self, argv, port, ready_path, env=None):
        self.port = port
        self.log = tempfile.TemporaryFile()
        self.started = time.monotonic()
        self.child = subprocess.Popen(argv, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL,
                                      env={**os.environ, **(env or {})})
        self.pid = self.child.pid
        try:
            self._wait_ready(ready_path)
        except RuntimeError:
            self.stop()
            raise
        self.start_s = time.monotonic() - self.started

    def _wait_ready(self, path, limit_s=180):
        while time.monotonic() - self.started < limit_s:
            if self.child.poll() is not None:
                raise RuntimeError(f"server ended with {self.child.returncode}: {self.log_end()}")
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=2) as reply:
                    if reply.status == 200:
                        return
            except (urllib.error.URLError, OSError):
                pass
            time.sleep(0.01)
        raise RuntimeError(f"server not ready after {limit_s} s: {self.log_end()}")

    def log_end(self):
        self.log.seek(0)
        return self.log.read()[-300:].decode(errors="replace").strip()

    def status(self, key):
        with open(f"/proc/{self.pid}/status") as f:
            for line in f:
                if line.startswith(key + ":"):
                    return int(line.split()[1])  # KiB
        raise KeyError(key)

    def get_json(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as reply:
            return json.load(reply)

    def stop(self, limit_s=20):
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)
            try:
                self.child.wait(limit_s)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()
        self.log.close()
        return self.child.returncode

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def zerohop(binary, model, *, extra=(), tls_port=None, env=None):
    port = free_port()
    argv = [binary, "serve", "--model", model, "--listen", f"127.0.0.1:{port}", *extra]
    argv += ["--listen-tls", f"127.0.0.1:{tls_port}"] if tls_port else ["--no-tls"]
    return Process(argv, port, "/readyz", env)


def llama_server(binary, gguf, *, flags=()):
    port = free_port()
    argv = [binary, "-m", gguf, "--host", "127.0.0.1", "--port", str(port), "--no-webui", *flags]
    return Process(argv, port, "/health")
