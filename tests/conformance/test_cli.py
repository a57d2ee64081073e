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
