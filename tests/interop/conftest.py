"""One server per version and session, what was left out and why, and the minutes of each part."""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from . import artifacts, lanes, mariadb, peers, postgres, rotation

StartOnce = Callable[[str], peers.Cluster]
Early = Callable[[str], Any]

_left_out: dict[str, int] = {}
_seconds: dict[str, float] = {}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--lane", type=lanes.parse, metavar="N/OF", help="only the files of this lane; lanes may run at once"
    )
    parser.addoption(
        "--rotate", metavar="COMMIT", help="the core and a third of the rest, which this text chooses"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Selection(config), "interop-selection")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.interop)
            if case_of(item).is_core:
                item.add_marker(pytest.mark.core)
    items.sort(key=lambda item: item.get_closest_marker("early") is not None)


class Selection:
    """Leaves out what is not of this rotation or lane, after `-m` has left out its part."""

    def __init__(self, config: pytest.Config) -> None:
        self._rotate: str | None = config.getoption("--rotate")
        self._lane: lanes.Lane | None = config.getoption("--lane")
        self._left_out: dict[str, int] = {}
        self._groups = 0

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        here = [item for item in items if item.get_closest_marker("interop") is not None]
        kept = self._rotated(here)
        if self._lane is not None:
            shares = {stem: count / _count(here)[stem] for stem, count in _count(kept).items()}
            wanted = lanes.files(self._lane, shares, shares)
            kept = [item for item in kept if item.path.stem in wanted]
        left_out = set(here) - set(kept)
        config.hook.pytest_deselected(items=[item for item in here if item in left_out])
        items[:] = [item for item in items if item not in left_out]

    def _rotated(self, here: list[pytest.Item]) -> list[pytest.Item]:
        if self._rotate is None:
            return here
        cases = {item: case_of(item) for item in here}
        groups = {case.group for case in cases.values() if not case.is_core}
        chosen = rotation.chosen(groups, self._rotate)
        self._groups = len(groups)
        for case in cases.values():
            if not case.is_core and case.group not in chosen:
                self._left_out[case.group] = self._left_out.get(case.group, 0) + 1
        return [item for item, case in cases.items() if case.is_core or case.group in chosen]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._left_out:
            return
        terminalreporter.section("rotation")
        terminalreporter.line(
            f"{len(self._left_out)} of {self._groups} groups beside the core are left out at {self._rotate},"
            f" {sum(self._left_out.values())} tests; make test-interop runs them all:"
        )
        for group, count in sorted(self._left_out.items()):
            terminalreporter.line(f"left out: {group} ({count} tests)")


def case_of(item: pytest.Item) -> rotation.Case:
    early = item.get_closest_marker("early")
    callspec = getattr(item, "callspec", None)
    return rotation.Case(
        module=item.path.stem.removeprefix("test_"),
        test=getattr(item, "originalname", item.name),
        parameters="" if callspec is None else callspec.id,
        early="" if early is None else early.args[0],
    )


def _count(items: list[pytest.Item]) -> Counter[str]:
    return Counter(item.path.stem for item in items)


@pytest.fixture(scope="session", autouse=True)
def early(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Early]:
    """What mostly waits for real timers begins with the session, one after the other, beside the other tests.

    A test marked `early(name)` is run last and asks for the result of that function of its module's EARLY.
    """
    jobs = {}
    for item in request.session.items:
        for marker in item.iter_markers("early"):
            jobs[marker.args[0]] = item.module.EARLY[marker.args[0]]  # type: ignore[attr-defined]
    lane = ThreadPoolExecutor(1, "early")
    begun = {name: lane.submit(job, tmp_path_factory.mktemp(name)) for name, job in jobs.items()}
    yield lambda name: begun[name].result()
    lane.shutdown(wait=False, cancel_futures=True)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[postgres.Postgres]:
    """The PostgreSQL of all tests of this process; one that kills it begins it again."""
    running = postgres.start()
    yield running
    running.close()


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[mariadb.MariaDB]:
    """The MariaDB of all tests of this process; one that kills it begins it again."""
    running = mariadb.start()
    yield running
    running.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    begun = time.monotonic()
    try:
        return (yield)
    finally:
        part = item.path.stem.removeprefix("test_")
        _seconds[part] = _seconds.get(part, 0.0) + time.monotonic() - begun


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    yield from _judge_missing()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    yield from _judge_missing()


def _judge_missing() -> Iterator[None]:
    """What this machine lacks is skipped and named at the end; where CI=true it is a failure."""
    try:
        yield
    except artifacts.Missing as missing:
        reason = str(missing)
        if os.environ.get("CI") == "true":
            pytest.fail(f"must not be left out under CI: {reason}", pytrace=False)
        first_line = reason.splitlines()[0]
        _left_out[first_line] = _left_out.get(first_line, 0) + 1
        pytest.skip(first_line)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not _seconds:
        return
    terminalreporter.section("interop")
    for part, seconds in _seconds.items():
        terminalreporter.line(f"{part}: {seconds / 60:.1f} min")
    terminalreporter.line(f"together: {sum(_seconds.values()) / 60:.1f} min")
    terminalreporter.line(f"left out: {sum(_left_out.values())}")
    for reason, count in _left_out.items():
        terminalreporter.line(f"skipped: {reason} ({count} tests)")


@pytest.fixture(scope="session")
def start_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartOnce]:
    """A running cluster of that kind, shared by all tests that only add topics of their own to it."""
    running: dict[str, peers.Cluster] = {}

    def started(kind: str) -> peers.Cluster:
        if kind not in running:
            running[kind] = peers.start(kind, peers.place(tmp_path_factory.mktemp(f"cluster-{kind}")))
        return running[kind]

    yield started
    for cluster in running.values():
        cluster.kill()
        shutil.rmtree(cluster.store_dir)  # a gigabyte each; the logs stay for a look
