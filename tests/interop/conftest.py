"""One server per version and session, what was left out and why, and the minutes of each part."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from . import artifacts, lanes, peers

StartOnce = Callable[[str], peers.Cluster]
Early = Callable[[str], Any]

_left_out: dict[str, int] = {}
_seconds: dict[str, float] = {}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--lane", type=lanes.parse, metavar="N/OF", help="only the files of this lane; lanes may run at once"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    here = [item for item in items if Path(__file__).parent in item.path.parents]
    for item in here:
        item.add_marker(pytest.mark.interop)
    items.sort(key=lambda item: item.get_closest_marker("early") is not None)
    if lane := config.getoption("--lane"):
        wanted = lanes.files(lane, {item.path.stem for item in here})
        left_out = [item for item in here if item.path.stem not in wanted]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


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
