"""`pytest tests/unit --quick`: the unit tests that take a moment each and touch nothing outside the process.

`tests/unit/not_quick.txt` lists those that are left out, by reason. A listed test that does not exist is an
error, and so is a test that is not listed and opens a socket, starts a process or sleeps.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

UNIT = Path(__file__).parent / "unit"
LIST = UNIT / "not_quick.txt"
IMPURE = {
    "socket.connect": "opens a socket",
    "socket.bind": "opens a socket",
    "subprocess.Popen": "starts a process",
    "os.fork": "starts a process",
    "os.posix_spawn": "starts a process",
    "os.system": "starts a process",
    "time.sleep": "sleeps in real time",
}

_left_out: dict[str, int] = {}
_running: list[str] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--quick", action="store_true", help="leave out the unit tests of tests/unit/not_quick.txt"
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--quick"):
        sys.addaudithook(_refuse_impure)
        time.sleep = _refuse_sleep


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--quick"):
        return
    reasons = parse(LIST.read_text())
    names = {item.nodeid: name_of(item) for item in items}
    if [Path(one).resolve() for one in config.args] == [UNIT] and (stale := unknown(reasons, names.values())):
        raise pytest.UsageError(f"{LIST} lists tests that do not exist: {', '.join(stale)}")
    excluded = []
    for item in items:
        if reason := reason_of(names[item.nodeid], reasons):
            excluded.append(item)
            _left_out[reason] = _left_out.get(reason, 0) + 1
    left = set(excluded)
    config.hook.pytest_deselected(items=excluded)
    items[:] = [item for item in items if item not in left]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _running.append(item.nodeid)
    try:
        return (yield)
    finally:
        _running.clear()


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["not_quick"] = dict(_left_out)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Every worker of xdist collects, and leaves out, the same."""
    _left_out.update(getattr(node, "workeroutput", {}).get("not_quick", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not terminalreporter.config.getoption("--quick"):
        return
    ran = sum(len(terminalreporter.stats.get(outcome, ())) for outcome in ("passed", "failed", "error"))
    terminalreporter.section("quick")
    terminalreporter.line(
        f"ran: {ran} tests; left out: {sum(_left_out.values())}, see tests/unit/{LIST.name}"
    )
    for reason, count in _left_out.items():
        terminalreporter.line(f"left out, {reason}: {count}")


def parse(text: str) -> dict[str, str]:
    """Reads lines `path` or `path::test` below headings `[reason]`: name → reason."""
    reasons: dict[str, str] = {}
    reason = ""
    for line in text.splitlines():
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            reason = line.strip("[]")
        elif not reason:
            raise ValueError(f"{line} must stand below a heading [reason]")
        elif line in reasons:
            raise ValueError(f"{line} is listed twice")
        else:
            reasons[line] = reason
    return reasons


def name_of(item: pytest.Item) -> str:
    """`path::test` below tests/unit, without parameters."""
    path, _, test = item.nodeid.partition("::")
    return f"{path.removeprefix('tests/unit/')}::{test.partition('[')[0]}"


def reason_of(name: str, reasons: dict[str, str]) -> str | None:
    return reasons.get(name) or reasons.get(name.partition("::")[0])


def unknown(listed: Iterable[str], names: Iterable[str]) -> list[str]:
    """Returns what is listed and is neither a test nor a file of tests."""
    known = set(names)
    known |= {name.partition("::")[0] for name in known}
    return [one for one in listed if one not in known]


def _refuse_impure(event: str, args: tuple[object, ...]) -> None:
    if event not in IMPURE or not _running:
        return
    if event.startswith("socket.") and getattr(args[0], "type", None) == socket.SOCK_DGRAM:
        return  # asks the kernel for the machine's own address, and sends nothing
    _refuse(event)


def _refuse_sleep(seconds: float) -> None:
    _refuse("time.sleep") if _running else _sleep(seconds)


def _refuse(event: str) -> NoReturn:
    raise RuntimeError(f"{_running[0]} {IMPURE[event]} ({event}) and is not listed in {LIST}")


_sleep = time.sleep
