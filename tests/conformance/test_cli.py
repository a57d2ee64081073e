"""The binary as a person meets it: subcommands, messages, exit codes."""
import os
import pathlib
import signal
import subprocess
import time

import pytest

from lib.server import KEY, NULL, Server, binary, free_port, null_model


def zerohop(*args, timeout=60, **keys):
    return subprocess.run([binary(), *map(str, args)], capture_output=True, text=True, timeout=timeout, **keys)


def test_version():
    done = zerohop("--version")
    assert done.returncode == 0 and "zerohop" in done.stdout and "llama.cpp" in done.stdout


def test_help_names_the_subcommands():
    out = zerohop("--help").stdout
    for word in ("serve", "ask", "models", "config"):
        assert word in out


@pytest.mark.parametrize("args", [["serve", "--no-such-flag"], ["no-such-command"], []])
def test_usage_errors(args):
    done = zerohop(*args)
    assert done.returncode == 2 and done.stderr + done.stdout


def test_unknown_config_key_names_the_nearest(tmp_path):
    path = tmp_path / "zerohop.toml"
    path.write_text('[server]\nlistenn = ["127.0.0.1:0"]\n')
    done = zerohop("config", "check", path)
    if done.returncode == 2 and "usage" in (done.stderr + done.stdout).lower():
        done = zerohop("config", "check", "--config", path)
    assert done.returncode != 0
    said = done.stderr + done.stdout
    assert "listenn" in said and "server.listen" in said and "2" in said  # the line


def test_defaults_check_out(tmp_path):
    defaults = zerohop("config", "defaults")
    assert defaults.returncode == 0
    path = tmp_path / "zerohop.toml"
    path.write_text(defaults.stdout)
    assert zerohop("config", "check", path).returncode == 0


def test_open_listener_without_keys_refuses(tmp_path):
    done = zerohop("serve", "--model", f"null:={NULL}", "--listen", f"0.0.0.0:{free_port()}", timeout=20)
    assert done.returncode == 2
    assert "key" in (done.stderr + done.stdout).lower()


@pytest.mark.parametrize("kind", ["missing", "corrupt", "truncated"])
def test_bad_model_file(tmp_path, kind):
    path = tmp_path / "model.gguf"
    if kind == "corrupt":
        path.write_bytes(os.urandom(100_000))
    elif kind == "truncated":
        real = os.environ.get("ZEROHOP_TEST_MODEL")
        if not real:
            pytest.skip("needs the real model")
        path.write_bytes(pathlib.Path(real).read_bytes()[:2_000_000])
    done = zerohop("serve", "--model", path, "--listen", f"127.0.0.1:{free_port()}", timeout=60)
    assert done.returncode == 2
    assert "model.gguf" in done.stderr + done.stdout


def test_port_in_use():
    with Server([null_model()], tls=False) as running:
        done = zerohop("serve", "--model", f"null:={NULL}", "--listen", f"127.0.0.1:{running.port}", timeout=20)
        assert done.returncode == 2 and str(running.port) in done.stderr + done.stdout


def test_development_certificate(tmp_path):
    """Without a certificate in the config one is made, kept, and good for a client that trusts it."""
    settings = {"engine.cache_dir": str(tmp_path), "tls.certificate": "", "tls.key": ""}
    for _ in range(2):
        with Server([null_model()], settings, keys=()) as own:
            made = {p: p.read_bytes() for p in tmp_path.rglob("*.pem")}
            assert made
            said = own.log_path.read_text()
            trusted = [p for p in made if p.name in said or str(p) in said]
            assert trusted, said
            done = [subprocess.run(["curl", "-sS", "--max-time", "10", "--cacert", str(p), f"{own.tls_base}/healthz"],
                                   capture_output=True).returncode for p in trusted]
            assert 0 in done
        assert {p: p.read_bytes() for p in tmp_path.rglob("*.pem")} == made
    keys = [p for p in tmp_path.rglob("*") if p.is_file() and b"PRIVATE KEY" in p.read_bytes()]
    assert keys and all(p.stat().st_mode & 0o077 == 0 for p in keys)


def test_ask_and_models(server):
    env = {**os.environ, "ZEROHOP_API_KEY": KEY}
    listed = zerohop("models", "--url", server.base, env=env)
    assert listed.returncode == 0 and NULL in listed.stdout
    asked = zerohop("ask", "--url", server.base, "--model", NULL, "null: tokens=3 text=one two three", env=env)
    assert asked.returncode == 0 and "one two three" in asked.stdout


def test_ask_without_a_server():
    model = os.environ.get("ZEROHOP_TEST_MODEL")
    if not model:
        pytest.skip("needs the real model")
    done = zerohop("ask", "--url", f"http://127.0.0.1:{free_port()}", "--model", model, "Say hello.", timeout=120)
    assert done.returncode == 0 and done.stdout.strip()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_it_cleanly(number):
    own = Server([null_model()], tls=False)
    own.process.send_signal(number)
    assert own.process.wait(5) == 0
    own.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_starting_ends_it(number):
    """Here in a warm-up; progress was shown by then."""
    own = Server([{"id": NULL, "path": "null:prefill_ms=60000"}], tls=False, start=False,
                 warm_ups=[{"model": NULL, "system": "wait for me"}])
    own.log = open(own.log_path, "ab")
    own.process = subprocess.Popen([binary(), "serve", "--config", own.config_path], stdout=own.log, stderr=own.log)
    deadline = time.monotonic() + 20
    while "warming up, prompt 1 of 1" not in own.log_path.read_text():
        assert time.monotonic() < deadline and own.alive(), own.log_tail()
        time.sleep(0.1)
    own.process.send_signal(number)
    assert own.process.wait(2) == 0
    assert "stopped while starting" in own.log_path.read_text()
    own.close()


def test_pipes_in_place_of_files_hold_nothing_up(tmp_path):
    """The control thread opens them at a reload, and must be there for the next signal."""
    log = tmp_path / "access.log"
    own = Server([null_model()], {"server.access_log": str(log)}, tls=False)
    own.create_key()
    for path in (own.key_file, log, own.config_path):
        path.unlink()
        os.mkfifo(path)
    own.process.send_signal(signal.SIGHUP)
    deadline = time.monotonic() + 10
    while own.log_path.read_text().count("regular file") < 2 or "nobody reads this pipe" not in own.log_path.read_text():
        assert time.monotonic() < deadline, own.log_tail()
        time.sleep(0.1)
    assert own.terminate(5) == 0
    own.close()


class UnixServer:
    """`zerohop serve` without keys on a unix socket alone."""

    def __init__(self, path, *args):
        env = {**os.environ, "ZEROHOP_KEYS": str(path.parent / "none.json")}
        self.process = subprocess.Popen([binary(), "serve", "--model", f"null:={NULL}", "--no-tls", "--listen",
                                         f"unix:{path}", *args], stderr=subprocess.PIPE, text=True, env=env)
        self.said = ""
        while "listening on" not in self.said and (line := self.process.stderr.readline()):
            self.said += line

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        self.said += self.process.communicate(timeout=10)[1]
        return self.process.returncode


def test_unix_socket(tmp_path):
    path = tmp_path / "zerohop.sock"
    own = UnixServer(path)
    assert f"listening on unix:{path}" in own.said
    assert path.stat().st_mode & 0o777 == 0o600
    asked = zerohop("ask", "--url", f"unix:{path}", "--model", NULL, "null: tokens=3 text=one two three")
    assert asked.returncode == 0 and "one two three" in asked.stdout, asked
    other = UnixServer(path)
    assert other.process.wait(5) == 2 and "another process listens there" in other.said
    own.end(signal.SIGKILL)
    assert path.exists()
    own = UnixServer(path)  # replaces the stale one
    assert zerohop("models", "--url", f"unix:{path}").returncode == 0
    assert own.end() == 0 and not path.exists()


def test_unix_socket_for_others_asks_for_keys(tmp_path):
    config = tmp_path / "zerohop.toml"
    config.write_text('[server]\nsocket_mode = "0660"\n')
    own = UnixServer(tmp_path / "zerohop.sock", "--config", str(config))
    assert own.process.wait(5) == 2 and "key" in own.said
    config.write_text('[server]\nsocket_mode = "rw"\n')
    own = UnixServer(tmp_path / "zerohop.sock", "--config", str(config))
    assert own.process.wait(5) == 2 and "octal" in own.said
    (tmp_path / "file").write_text("keep me")
    own = UnixServer(tmp_path / "file")
    assert own.process.wait(5) == 2 and "no socket" in own.said
    assert (tmp_path / "file").read_text() == "keep me"


def test_second_signal_ends_at_once():
    from lib.server import null_params
    from lib import wire
    own = Server([null_model()], {"server.drain_s": 30}, tls=False)
    connection = wire.Http1(own)
    import json
    connection.send_request("POST", "/v1/messages", wire.headers_for(),
                            json.dumps({**null_params("tokens=600 delay_ms=50"), "stream": True}).encode())
    connection.read_head()
    own.process.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    assert own.alive()
    own.process.send_signal(signal.SIGTERM)
    own.process.wait(5)
    own.close()
