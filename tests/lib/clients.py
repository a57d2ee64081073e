"""The official SDKs as Python objects: each wraps a driver process (tests/conformance/sdk/driver.*)."""
import itertools
import json
import os
import pathlib
import subprocess
import threading
from concurrent.futures import Future

from lib.server import KEY, ROOT, authority

SDK = ROOT / "tests/conformance/sdk"
NODE_VERSIONS = {"node20": "20.20.2", "node26": "26.12.1"}


def deps(*args) -> str:
    return subprocess.run([str(ROOT / "scripts/deps.sh"), *map(str, args)], check=True,
                          stdout=subprocess.PIPE, text=True).stdout.strip()


class Driver:
    """A driver process; calls may overlap. Ends with its standard input."""

    def __init__(self, command):
        env = {**os.environ, "NODE_EXTRA_CA_CERTS": str(authority().ca), "SSL_CERT_FILE": str(authority().ca)}
        for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "OPENAI_API_KEY"):
            env.pop(name, None)
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env=env)
        self.ids, self.waiting, self.lock = itertools.count(), {}, threading.Lock()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            answer = json.loads(line)
            self.waiting.pop(answer["id"]).set_result(answer)
        for future in list(self.waiting.values()):
            future.set_exception(RuntimeError("the driver process ended"))

    def submit(self, call) -> Future:
        future = Future()
        call = {"id": next(self.ids), **call}
        self.waiting[call["id"]] = future
        with self.lock:
            self.process.stdin.write(json.dumps(call) + "\n")
            self.process.stdin.flush()
        return future

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Sdk:
    """One SDK version on one runtime. call() waits; start() returns a Future of the same."""

    def __init__(self, name, driver, package=None):
        self.name, self.driver, self.package = name, driver, package

    # 1.x of TypeScript and 2.x of Python speak 2026-10-21; the older majors 2023-06-01.
    @property
    def version(self):
        return "2023-06-01" if self.name.startswith(("ts-0", "python-0")) else "2026-10-21"

    def start(self, server, op, tls=False, key=KEY, **call) -> Future:
        base = server.tls_base if tls else server.base
        return self.driver.submit({"sdk": self.package, "op": op, "base": base, "key": key, **call})

    def call(self, server, op, timeout=120, **call):
        return finish(self.start(server, op, **call), timeout)


def finish(future, timeout=120):
    answer = future.result(timeout)
    assert "crash" not in answer, answer.get("crash")
    return answer["result"]


class Fleet:
    """Starts drivers on first use, shares them, ends them."""

    TS = {"ts-1.14": "sdk-1.14", "ts-1.10": "sdk-1.10", "ts-0.137": "sdk-0.137", "ai": "ai", "openai": "openai"}
    PYTHON = {"python-2": "python-2.txt", "python-0": "python-0.txt"}

    def __init__(self):
        self.drivers = {}

    def _driver(self, name):
        if name not in self.drivers:
            if name in NODE_VERSIONS:
                command = [deps("node", NODE_VERSIONS[name]), str(SDK / "driver.mjs"),
                           deps("npm", SDK / "package.json")]
            else:
                environment = pathlib.Path(deps("venv", SDK / self.PYTHON[name]))
                command = [str(environment / "bin/python"), "-B", str(SDK / "driver.py")]
            self.drivers[name] = Driver(command)
        return self.drivers[name]

    def get(self, name) -> Sdk:
        """"ts-1.14@node26", "python-2", …"""
        sdk, _, runtime = name.partition("@")
        if sdk in self.PYTHON:
            return Sdk(name, self._driver(sdk))
        return Sdk(name, self._driver(runtime or "node20"), self.TS[sdk])

    def close(self):
        for driver in self.drivers.values():
            driver.close()


ALL_SDKS = ["ts-1.14@node20", "ts-1.14@node26", "ts-1.10@node20", "ts-1.10@node26",
            "ts-0.137@node20", "ts-0.137@node26", "python-2", "python-0"]
