"""What a package adds to the binary: man pages and completions made from its help, and the lines that `serve` prints."""
import json
import shlex
import subprocess
import sys

import pytest

from lib.server import ROOT, Server, binary, null_model


@pytest.fixture(scope="module")
def share(tmp_path_factory):
    prefix = tmp_path_factory.mktemp("prefix")
    subprocess.run([sys.executable, ROOT / "scripts/help_docs.py", binary(), prefix], check=True)
    return prefix / "share"


def completed(share, line):
    script = (f"source {shlex.quote(str(share / 'bash-completion/completions/zerohop'))}; COMP_WORDS=(\"$@\"); "
              "COMP_CWORD=$(($# - 1)); _zerohop; printf '%s\\n' \"${COMPREPLY[@]}\"")
    return subprocess.run(["bash", "-c", script, "-", *line], check=True, text=True, cwd="/",
                          stdout=subprocess.PIPE).stdout.split()


def test_each_command_has_a_man_page(share):
    pages = {p.stem: p.read_text() for p in (share / "man/man1").iterdir()}
    assert {"zerohop", "zerohop-serve", "zerohop-key-create", "zerohop-skeleton-analyze"} <= pages.keys()
    for name, page in pages.items():
        assert page.startswith(f".TH {name.upper()} 1"), name
        assert ".SH NAME\n" in page and ".SH OPTIONS\n" in page, name
    # A head too long for its column keeps its own text.
    assert ".B \\-\\-input\\-tpm INT:INT in [0 \\- 1000000000]\nInput tokens per minute\n" in pages["zerohop-key-create"]


def test_bash_completes_commands_options_and_choices(share):
    assert "serve" in completed(share, ["zerohop", ""])
    assert completed(share, ["zerohop", "key", "cr"]) == ["create"]
    assert "--model" in completed(share, ["zerohop", "serve", "--m"])
    assert completed(share, ["zerohop", "key", "create", "--priority-max", "h"]) == ["high"]


def test_serve_prints_lines_that_work():
    with Server([null_model()], {"log.format": "human"}, keys=(), tls=False) as server:
        log = server.log_path.read_text()
        assert f'anthropic.Anthropic(base_url="{server.base}", api_key="any")' in log
        assert f'new Anthropic({{ baseURL: "{server.base}", apiKey: "any" }})' in log
        command = next(line for line in log.splitlines() if "/v1/messages" in line)
        done = subprocess.run([*shlex.split(command[command.index("curl "):]), "-sS"], check=True, text=True,
                              stdout=subprocess.PIPE, timeout=60)
        assert json.loads(done.stdout)["type"] == "message"
