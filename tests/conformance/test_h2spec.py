"""h2spec, an HTTP/2 client that breaks every rule it can, against the real binary.

net_test runs it against the front with handlers of its own; here it meets TLS and routes as they ship. Its
cases are of RFC 7540, so the same few do not apply (src/net/server_test.cc says why); the one that needs requests
which last is net_test's.
"""
import os
import re
import subprocess

import pytest

from lib.server import Server, null_model

PROGRAM = os.environ.get("ZEROHOP_H2SPEC", "")
EXEMPT = ["PRIORITY frame that depend on itself", "causes their advertised concurrent stream limit"]
EXEMPT_PLAIN = ["Sends invalid connection preface"]


@pytest.fixture(scope="module")
def own():
    with Server([null_model()]) as running:
        yield running


@pytest.mark.skipif(not PROGRAM, reason="ZEROHOP_H2SPEC does not name the program (./dev test sets it)")
@pytest.mark.parametrize("tls", [True, False])
def test_h2spec(own, tls):
    port = own.tls_port if tls else own.port
    run = subprocess.run([PROGRAM, "-h", "127.0.0.1", "-p", str(port), "-P", "/healthz", "-o", "2",
                          *(["-t", "-k"] if tls else [])], capture_output=True, text=True, timeout=240)
    total = re.search(r"(\d+) tests, (\d+) passed, (\d+) skipped, (\d+) failed", run.stdout)
    assert total, run.stdout[-2000:] + run.stderr[-2000:]
    print(total.group(0))
    tests, passed, skipped, failed = map(int, total.groups())
    assert tests > 140 and tests == passed + skipped + failed
    failures = re.findall(r"× \d+: (.*)", run.stdout.split("Failures:")[1]) if failed else []
    assert len(failures) == failed, run.stdout[-3000:]
    exempt = EXEMPT + ([] if tls else EXEMPT_PLAIN)
    unexpected = [name for name in failures if not any(e in name for e in exempt)]
    assert not unexpected, run.stdout[run.stdout.index("Failures:"):]
    assert own.alive()
