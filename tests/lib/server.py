"""Starts the real zerohop binary for tests: its configuration, its ports, its end, its resources.

A Server owns one process and one temporary folder; close() ends the process by its pid and removes the
folder unless the process failed. Ports are free ones of the loopback address.
"""
import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
KEY = "zh-test-key"
MODEL = "smollm2-135m"  # the real one
NULL = "null-model"  # scripted, many at a time


def binary() -> str:
    return os.environ.get("ZEROHOP_BIN", str(ROOT / "build/release/zerohop"))


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class TestAuthority:
    """A certificate authority and a server certificate for localhost, made once per test run."""

    CURVE = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]

    def __init__(self, folder: pathlib.Path):
        self.ca, self.cert, self.key = folder / "ca.pem", folder / "server.pem", folder / "server.key"
        self.folder, self.ca_key = folder, folder / "ca.key"
        self._openssl("req", "-x509", *self.CURVE, "-keyout", self.ca_key, "-out", self.ca, "-days", "2", "-subj",
                      "/CN=zerohop test CA", "-addext", "keyUsage=critical,keyCertSign,cRLSign")
        self.issue(self.cert, self.key)

    def issue(self, cert: pathlib.Path, key: pathlib.Path):
        """A certificate for localhost and its key, into those files."""
        request, extensions = self.folder / "server.csr", self.folder / "ext.cnf"
        extensions.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth\n")
        self._openssl("req", *self.CURVE, "-keyout", key, "-out", request, "-subj", "/CN=localhost")
        self._openssl("x509", "-req", "-in", request, "-CA", self.ca, "-CAkey", self.ca_key, "-CAcreateserial",
                      "-out", cert, "-days", "2", "-extfile", extensions)

    @staticmethod
    def _openssl(*args):
        subprocess.run(["openssl", *map(str, args)], check=True, capture_output=True)

    def client_context(self, alpn=("http/1.1",)) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.ca))
        context.set_alpn_protocols(list(alpn))
        return context


_authority = None


def authority() -> TestAuthority:
    global _authority
    if _authority is None:
        folder = pathlib.Path(tempfile.mkdtemp(prefix="zerohop-ca-"))
        import atexit
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        _authority = TestAuthority(folder)
    return _authority


def toml(value) -> str:
    return json.dumps(value)  # strings, numbers, booleans and lists of them read the same in TOML


class Server:
    """models: list of dicts of [[model]] keys; settings: {"server.drain_s": 1, …}; warm_ups and shares: like
    models, of [[cache.warmup]] and [[cache.share]].

    For a process that listens beside another: `beside`, the Server whose ports it shares. `sockets`: listening
    sockets [clear text, TLS] handed over as systemd does. Both are ready when their log says so.
    """

    def __init__(self, models, settings=None, keys=(KEY,), tls=True, start=True, env=None,
                 open_files=None, beside=None, sockets=None, wrapper=(), warm_ups=(), shares=()):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="zerohop-test-"))
        self._sockets, self._wrapper = sockets, list(wrapper)  # wrapper: words before the binary's
        if beside:
            self.port, self.tls_port = beside.port, beside.tls_port
        elif sockets:
            self.port, self.tls_port = (s.getsockname()[1] for s in sockets)
        else:
            self.port, self.tls_port = free_port(), free_port() if tls else 0
        self._ready_by_log = bool(beside or sockets)
        self.base = f"http://127.0.0.1:{self.port}"
        self.tls_base = f"https://localhost:{self.tls_port}"
        self.log_path = self.folder / "log"
        self.config_path = self.folder / "zerohop.toml"
        self.key_file = self.folder / "keys.json"
        self.process = None
        self._env = {**os.environ, **(env or {})}
        self._open_files = open_files  # RLIMIT_NOFILE of the process, soft and hard
        self._write_config(dict(settings or {}), keys,
                           [*(("model", m) for m in models), *(("cache.warmup", w) for w in warm_ups),
                            *(("cache.share", s) for s in shares)])
        if start:
            self.start()

    def _write_config(self, settings, keys, lists):
        if self._sockets:
            settings |= {"server.listen": ["fd:3"], "server.listen_tls": ["fd:4"]}
        settings.setdefault("server.listen", [f"127.0.0.1:{self.port}"])
        settings.setdefault("server.listen_tls", [f"127.0.0.1:{self.tls_port}"] if self.tls_port else [])
        settings.setdefault("log.format", "json")
        # Measurements of a model are kept between runs, like on a person's machine.
        cache = os.environ.get("ZEROHOP_CACHE", os.path.expanduser("~/.cache/zerohop"))
        settings.setdefault("engine.cache_dir", os.path.join(cache, "test"))
        settings.setdefault("auth.key_file", str(self.key_file))
        if keys:
            settings.setdefault("auth.keys",
                                ["sha256:" + hashlib.sha256(k.encode()).hexdigest() for k in keys])
        if self.tls_port:
            settings.setdefault("tls.certificate", str(authority().cert))
            settings.setdefault("tls.key", str(authority().key))
        tables = {}
        for name, value in settings.items():
            table, key = name.split(".", 1)
            tables.setdefault(table, []).append(f"{key} = {toml(value)}")
        text = "".join(f"[{t}]\n" + "\n".join(lines) + "\n\n" for t, lines in tables.items())
        for name, table in lists:
            text += f"[[{name}]]\n" + "".join(f"{k} = {toml(v)}\n" for k, v in table.items()) + "\n"
        self.config_path.write_text(text)

    def start(self, ready_s: float = 90):
        self.log = open(self.log_path, "ab")
        argv = [binary(), "serve", "--config", str(self.config_path)]
        if self._open_files:
            argv = ["prlimit", f"--nofile={self._open_files}:{self._open_files}", *argv]
        argv = self._wrapper + argv
        if self._sockets:  # exec keeps the shell's pid, which LISTEN_PID must name
            passed = [s.fileno() for s in self._sockets]
            moves = " ".join(f"{3 + i}<&{fd}" for i, fd in enumerate(passed))
            argv = ["bash", "-c", f'LISTEN_FDS={len(passed)} LISTEN_PID=$$ exec "$@" {moves}', "-", *argv]
        self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                                        env=self._env, pass_fds=passed if self._sockets else ())
        deadline = time.monotonic() + ready_s
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError(f"zerohop ended with {self.process.returncode}:\n{self.log_tail()}")
            if self.ready():
                return self
            time.sleep(0.05)
        self.kill()
        raise RuntimeError(f"zerohop was not ready after {ready_s} s:\n{self.log_tail()}")

    def ready(self) -> bool:
        if self._ready_by_log:
            return " is ready" in self.log_path.read_text(errors="replace")
        with contextlib.suppress(OSError):
            with urllib.request.urlopen(f"{self.base}/readyz", timeout=2) as answer:
                return answer.status == 200
        return False

    def command(self, *args, check=True) -> subprocess.CompletedProcess:
        """Runs another zerohop command; for `key`, on this server's key file."""
        argv = [binary(), *map(str, args)]
        if args[0] == "key":
            argv += ["--file", str(self.key_file)]
        return subprocess.run(argv, check=check, capture_output=True, text=True, env=self._env)

    def create_key(self, workspace="team-a", *args) -> dict:
        """A new key as `zerohop key create --json` shows it; the server takes it up within a second."""
        return json.loads(self.command("key", "create", "--workspace", workspace, "--json", *args).stdout)

    def log_tail(self, lines=40) -> str:
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    # --- what it costs ---------------------------------------------------------------------------
    def rss_kib(self) -> int:
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1])
        raise RuntimeError("no VmRSS: the process has ended")

    def fds(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def cpu_s(self) -> float:
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    # --- its end ---------------------------------------------------------------------------------
    def terminate(self, wait_s: float = 60) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(wait_s)

    def kill(self):
        self.process.kill()
        self.process.wait(10)

    def close(self):
        """Ends the process; a crash or an exit code other than 0 is an error here."""
        code = None
        if self.process is not None:
            killed = self.process.returncode is not None and self.process.returncode < 0
            if self.alive():
                self.process.send_signal(signal.SIGTERM)
                try:
                    self.process.wait(10)
                except subprocess.TimeoutExpired:
                    self.process.send_signal(signal.SIGTERM)  # the second one means at once
                    try:
                        self.process.wait(5)
                    except subprocess.TimeoutExpired:
                        self.kill()
            code = self.process.returncode
            self.log.close()
            if code != 0 and not killed:
                raise RuntimeError(f"zerohop ended with {code}; its log is kept:\n"
                                   f"{self.log_path}\n{self.log_tail()}")
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def null_model(id=NULL, **keys):
    """slots, queue and context go to the script engine itself; other keys are those of [[model]]."""
    script = {name: keys.pop(name, default)
              for name, default in (("slots", 128), ("queue", 1000), ("context", 32768))}
    words = ",".join(f"{name}={value}" for name, value in script.items())
    return {"id": id, "path": f"null:{words}", **keys}


def real_model(**keys):
    path = os.environ.get("ZEROHOP_TEST_MODEL", "")
    if not path:
        raise RuntimeError("ZEROHOP_TEST_MODEL must name the GGUF file (./dev conform sets it)")
    # A fixed seed keeps runs comparable; checks that need determinism ask for temperature 0. On a busy machine
    # ZEROHOP_TEST_LAYOUT, e.g. {"threads": 1, "flash_attention": "on"}, saves measuring at load.
    layout = json.loads(os.environ.get("ZEROHOP_TEST_LAYOUT", "{}"))
    return {"id": MODEL, "path": path, "seed": 7, **layout, **keys}


def user(text):
    return [{"role": "user", "content": text}]


def null_params(script: str, model=NULL, **keys):
    """A request that the scripted engine plays: see src/engine/null_engine.h for the words."""
    return {"model": model, "max_tokens": 4096, "messages": user(f"null: {script}"), **keys}
