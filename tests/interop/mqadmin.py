"""An mqadmin against a cluster of its own: Apache's versions and ours, and against which servers."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from pathlib import Path

from turbopump.admin.main import AdminEnvironment
from turbopump.admin.main import run as run_ours
from turbopump.runtime.chance import Chance
from turbopump.runtime.clock import SystemClock
from turbopump.runtime.disk import SystemDisk
from turbopump.runtime.network import SystemNetwork

from . import artifacts, peers, recordings
from .clients import Answers
from .console import COMMAND_LIMIT_S, Console, Printed
from .mqadmin_script import CONF, run
from .mqadmin_session import Session, Tool

OURS = "mqadmin-ours"
APACHES = tuple(f"mqadmin-{version}" for version in artifacts.TOOLS)
PAIRS = tuple((client, server) for server in artifacts.SERVERS for client in APACHES)
# Asked again each time; the others with `-m long`.
LIVE_PAIRS = ((APACHES[-1], recordings.REFERENCE),)


def ask(client: str, kind: str, work: Path) -> Answers:
    """All commands, one after another, on a fresh cluster: some of them tell of all topics and groups."""
    version = artifacts.TOOLS[-1] if client == OURS else client.removeprefix("mqadmin-")
    cluster = peers.start(kind, peers.place(work / "cluster"), CONF)
    try:
        with Console(version, cluster, work) as console:
            console.act("route", "TBW102")  # a broker that calls itself ready may not be registered yet
            tool: Tool = OurMqadmin(work) if client == OURS else ApachesMqadmin(console, version)
            return run(Session(cluster, console, tool, work))
    finally:
        cluster.kill()
        shutil.rmtree(cluster.store_dir)


class ApachesMqadmin:
    """The one that is in the process with the clients."""

    def __init__(self, console: Console, version: str) -> None:
        self._console = console
        self.newer = version.startswith("5")

    def mqadmin(self, *words: str, until: str = "") -> Printed:
        return self._console.mqadmin(*words, until=until)


class OurMqadmin:
    """In this process; its options are those of 5.x."""

    newer = True

    def __init__(self, work: Path) -> None:
        self._work = work

    def mqadmin(self, *words: str, until: str = "") -> Printed:
        with contextlib.chdir(self._work):
            return asyncio.run(_run(words, until))


async def _run(words: tuple[str, ...], until: str) -> Printed:
    lines: list[str] = []
    enough = asyncio.Event()

    def write(text: str) -> None:
        lines.append(text)
        if until and until in text:
            enough.set()

    def warn(line: str) -> None:
        lines.append(f"mqadmin: {line}\n")

    environment = AdminEnvironment(SystemNetwork(), SystemClock(), SystemDisk(), Chance(), {}, write, warn)
    command = asyncio.create_task(run_ours(words, environment))
    interrupt = asyncio.create_task(enough.wait())
    await asyncio.wait({command, interrupt}, timeout=COMMAND_LIMIT_S, return_when=asyncio.FIRST_COMPLETED)
    endless = not command.done()
    command.cancel()
    interrupt.cancel()
    return Printed(await command, endless, "".join(lines))
