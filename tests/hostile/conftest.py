"""Hostile peers against a running server, and the memory and time they cost.

`--against` chooses the server: `ours` (default), an Apache version, or `BROKER,NAMESRV,PID` of a running one.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator

import pytest

from .target import OURS, Target, started

TARGETS = pytest.StashKey[list[Target]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--against", default=OURS, help="ours, an Apache version, or BROKER,NAMESRV,PID")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[TARGETS] = []


@pytest.fixture(scope="session")
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    kind = request.config.getoption("--against", OURS)
    with started(kind, tmp_path_factory.mktemp("server")) as target:
        request.config.stash[TARGETS].append(target)
        target.is_served("at the start", within_s=30)  # the first send creates its topic and warms up a JVM
        yield target
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture(params=["namesrv", "broker"])
def role(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for target in config.stash.get(TARGETS, []):
        terminalreporter.section(f"hostile peers against {target.kind}")
        for line in target.figures:
            terminalreporter.write_line(line)
        seconds, what = target.slowest
        terminalreporter.write_line(f"slowest service of another client: {seconds:.2f} s, {what}")
