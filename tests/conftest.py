"""Fixtures shared by the conformance and chaos suites, and the table of checks at the end.

A test says which check of the wire contract (§10) it is: @pytest.mark.check(17). A check passes when every
test of its number passed; one without a test is listed with the reason in conformance/checks.py.
"""
import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from conformance.checks import CHECKS, EXEMPT  # noqa: E402
from lib import server as servers  # noqa: E402
from lib.clients import Fleet  # noqa: E402

FRONT_ONLY = os.environ.get("ZEROHOP_FRONT_ONLY") == "1"  # sanitizer runs: no real model


def pytest_configure(config):
    config.addinivalue_line("markers", "check(number): the check of wire-contract §10 that a test is")
    config.outcomes = {}


def pytest_collection_modifyitems(config, items):
    for item in items:
        for mark in item.iter_markers("check"):
            assert mark.args[0] in CHECKS, f"{item.nodeid}: no check {mark.args[0]}"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if report.when == "call" or report.outcome != "passed":
        for mark in item.iter_markers("check"):
            item.config.outcomes.setdefault(mark.args[0], []).append((report.outcome, item.name))
    for name in ("server", "front", "real", "strict", "own"):
        running = item.funcargs.get(name) if hasattr(item, "funcargs") else None
        if report.failed and isinstance(running, servers.Server) and running.log_path.exists():
            report.sections.append((f"log of {name}", running.log_tail(25)))


def pytest_terminal_summary(terminalreporter, config):
    if not config.outcomes:
        return
    write = terminalreporter.write_line
    terminalreporter.section("wire contract, check by check")
    for number, what in CHECKS.items():
        results = config.outcomes.get(number, [])
        kinds = {outcome for outcome, _ in results}
        if "failed" in kinds:
            names = ", ".join(name for outcome, name in results if outcome == "failed")
            write(f"{number:3}  FAIL    {what}  [{names}]", red=True)
        elif "passed" in kinds:
            write(f"{number:3}  pass    {what}  ({len(results)} tests)")
        elif number in EXEMPT:
            write(f"{number:3}  exempt  {what}: {EXEMPT[number]}")
        elif not config.option.keyword and not config.option.markexpr and not FRONT_ONLY:
            write(f"{number:3}  NOT RUN {what}", yellow=True)


@pytest.fixture(scope="session")
def fleet():
    drivers = Fleet()
    yield drivers
    drivers.close()


MODELS = [servers.null_model(), servers.null_model("null-one", slots=1, queue=1),
          servers.null_model("null-capped", max_output_tokens=100),
          servers.null_model("org/name with space")]


@pytest.fixture(scope="session")
def server():
    """Scripted models and, except in sanitizer runs, the real one beside them."""
    models = MODELS if FRONT_ONLY else [servers.real_model(), *MODELS]
    with servers.Server(models, {"limits.connections_per_address": 10_000}) as running:
        yield running


@pytest.fixture
def real(server):
    if FRONT_ONLY:
        pytest.skip("needs the real model")
    return server


@pytest.fixture(scope="session")
def strict():
    """Mirrors the public API's rule for sampling parameters."""
    with servers.Server([servers.null_model()], {"api.sampling_params": "strict"}) as running:
        yield running
