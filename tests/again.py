"""Tests that failed and passed when they were tried again: each is printed at the end, with its log.

No test is run again by itself. Where a test or its harness has a reason for a second try (a foreign client
that is late beside other tests, or fails by itself at times), it calls `record` before, with what went wrong.
"""

from __future__ import annotations

from typing import Any

import pytest

NAME = "tried again"  # of the property of a report

_pending: list[tuple[str, str]] = []
_after_all: list[tuple[str, str]] = []  # recorded by threads of the harness, after the last test


def record(what: str, log: str = "") -> None:
    """Notes a failure after which the running test goes on with another try."""
    _pending.append((what, log))


def pytest_runtest_makereport(item: pytest.Item) -> None:
    """Hands what was recorded to the report, with which it travels from a worker of xdist."""
    while _pending:
        number = len(item.user_properties)
        item.user_properties.append((NAME, (number, *_pending.pop(0))))


def pytest_sessionfinish(session: pytest.Session) -> None:
    _after_all.extend(_pending)
    _pending.clear()
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput[NAME] = list(_after_all)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    _after_all.extend(tuple(one) for one in getattr(node, "workeroutput", {}).get(NAME, ()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    found: dict[
        tuple[str, int, str, str], None
    ] = {}  # once each: the reports of a test share their properties
    failed = set()
    for outcome in ("failed", "error", "passed", "skipped", ""):
        for report in terminalreporter.stats.get(outcome, ()):
            if outcome in ("failed", "error"):
                failed.add(report.nodeid)
            for name, value in getattr(report, "user_properties", ()):
                if name == NAME:
                    found[report.nodeid, *value] = None
    lines = [
        (f"{'failed again' if nodeid in failed else 'failed, then passed'}: {nodeid}: {what}", log)
        for nodeid, _, what, log in found
    ]
    lines += [(f"beside the tests: {what}", log) for what, log in _after_all]
    if lines:
        terminalreporter.section(NAME)
    for line, log in lines:
        terminalreporter.line(line)
        for one in log.splitlines():
            terminalreporter.line(f"    {one}")
