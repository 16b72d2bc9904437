"""Transactions of real clients: the program `Transactor` of each, and what became of its messages."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from pathlib import Path

from turbopump.client.admin import Admin
from turbopump.client.pull.puller import Puller

from . import artifacts, clients, processes
from .peers import Cluster

CLIENTS = (*(f"java-{version}" for version in artifacts.JAVA_CLIENTS), clients.GO, clients.PYTHON)
CONF = {"transactionTimeOut": "2000", "transactionCheckInterval": "2000"}
WITHIN_S = 60.0
POLL_S = 0.3


class Transactor:
    """A client that sends the wished messages in transactions, and answers checks as of its phase."""

    def __init__(
        self,
        client: str,
        cluster: Cluster,
        work: Path,
        topic: str,
        phase: str,
        *wishes: str,
        program: str = clients.TRANSACTOR,
    ) -> None:
        work.mkdir(parents=True, exist_ok=True)
        self._notes = work / f"notes-{clients.prefix()}.txt"
        arguments = [cluster.namesrv, f"{topic}-group", topic, phase, str(self._notes), *wishes]
        command = [*clients.program_of(client, program, work), *arguments]
        log = work / f"transactor-{clients.prefix()}.log"
        self.server = processes.Server(command, log, {"HOME": str(work)})

    def wait_sent(self) -> None:
        self.server.wait_ready("all sent")

    def noted(self) -> list[str]:
        return self._notes.read_text().split("\n")[:-1] if self._notes.exists() else []

    def kill(self) -> None:
        self.server.kill()

    def __enter__(self) -> Transactor:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def visible(cluster: Cluster, topic: str) -> list[str]:
    """The names of the messages that consumers can see, sorted."""
    return sorted(body.partition(":")[0] for body in asyncio.run(_bodies(cluster, topic)))


async def _bodies(cluster: Cluster, topic: str) -> list[str]:
    found: list[str] = []
    async with Admin(name_servers=cluster.namesrv) as admin:
        puller = Puller(admin.client, admin.routes)
        for queue in (await admin.routes.refresh(topic)).subscribe:
            offset = 0
            while (pulled := await puller.pull(queue, offset, hold_s=0)).records:
                found += [record.body.decode() for record in pulled.records]
                offset = pulled.next_offset
    return found


def eventually(
    seen: Callable[[], Collection[str]], wanted: Collection[str], within_s: float = WITHIN_S
) -> None:
    deadline = time.monotonic() + within_s
    while (last := seen()) != wanted:
        assert time.monotonic() < deadline, f"{last} is not {wanted}"
        time.sleep(POLL_S)
