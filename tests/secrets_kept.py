"""Fails each test in which a secret of a test gets into a log line, an answer, a page or a file of a server.

The secrets of tests end in MARK, or are in MARKED, so that this sees them wherever they come up: in all that
is logged or printed while a test runs, in each answer of a server in this process, in its pages over HTTP
(`/metrics`, `/health`), and in the disks in memory of brokers and name servers when they stop. Files that
have secrets in clear because people write them there (`.yml`, `.conf`) are left out. Integration tests look
through the files and the output of real processes themselves.
"""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

MARK = "-secret-word"
MARKED = (MARK, "-secret-of-later", "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=")
"""The end of secrets, and those with another end: the second is the key of secrets in files."""
MARKED_BYTES = tuple(one.encode() for one in MARKED)
WRITTEN_BY_PEOPLE = (".yml", ".yaml", ".conf", ".properties", ".key")
SHOWN = 60  # characters around a secret that was found

found: list[str] = []
"""Where secrets were, in the test that runs."""


def look(where: str, texts: Iterable[object]) -> None:
    """Notes a secret in texts or bytes."""
    for text in texts:
        if isinstance(text, str):
            hit = next((text.find(one) for one in MARKED if one in text), -1)
        elif isinstance(text, bytes | bytearray | memoryview):
            text = bytes(text)
            hit = next((text.find(one) for one in MARKED_BYTES if one in text), -1)
        else:
            continue
        if hit >= 0:
            found.append(f"{where}: {text[max(0, hit - SHOWN) : hit + SHOWN]!r}")


class SecretsInLogs(logging.Handler):
    """Looks at every line that reaches the root logger, with its exception."""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        look(f"log line of {record.name}", (record.getMessage(), "" if error is None else repr(error)))


def pytest_sessionstart(session: pytest.Session) -> None:
    logging.getLogger().addHandler(SecretsInLogs(logging.NOTSET))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Puts itself around the ways out of servers, as far as the tests have imported them."""
    for module, kind, name, watch in (
        ("turbopump.remoting.connection", "Connection", "reply", answers),
        ("turbopump.broker.server", "Broker", "stop", disks),
        ("turbopump.namesrv.server", "NameServer", "stop", disks),
        ("turbopump.remoting.http", None, "_pack", pages),
    ):
        if module in sys.modules:
            owner = sys.modules[module] if kind is None else getattr(sys.modules[module], kind)
            setattr(owner, name, watch(getattr(owner, name)))


def answers(reply: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(reply)
    def watched(connection: Any, request: Any, response: Any) -> Any:
        fields = response.ext.values() if response.ext else ()
        look(f"answer to request {request.code}", (response.remark, response.body, *fields))
        return reply(connection, request, response)

    return watched


def pages(pack: Callable[..., bytes]) -> Callable[..., bytes]:
    @functools.wraps(pack)
    def watched(*arguments: Any, **more: Any) -> bytes:
        data = pack(*arguments, **more)
        look("page over HTTP", (data,))
        return data

    return watched


def disks(stop: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stop)
    async def watched(server: Any, *arguments: Any, **more: Any) -> Any:
        try:
            return await stop(server, *arguments, **more)
        finally:
            look_at_disk(getattr(server, "_disk", None))

    return watched


def look_at_disk(disk: object) -> None:
    """Looks at all files of a simulated disk but those that people write."""
    names = getattr(getattr(disk, "_names", None), "nodes", None)
    for path, node in names.items() if names else ():
        if not path.removesuffix(".tmp").endswith(WRITTEN_BY_PEOPLE):
            look(path, (node.pages,))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Iterator[None]:
    report: pytest.TestReport = yield  # type: ignore[assignment,misc]
    if report.when == "teardown":
        for title, text in report.sections:
            look(title, (text,))
        if found:
            report.outcome = "failed"
            report.longrepr = "A secret got out:\n" + "\n".join(dict.fromkeys(found))
        found.clear()
    return report  # type: ignore[return-value]
