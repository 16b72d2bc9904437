"""Retention in a simulated cluster: small files that expire in seconds, and a witness of each deletion.

In: the brokers of a world. Out: events that say which file was deleted, how old it was and what was in it,
and what a reader gets that begins at offset 0. `retention_check.py` judges them.
"""

import asyncio
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from tests.simulation.cluster.clients import PairClient, Surroundings, found_in, name_of, pull_of
from tests.simulation.cluster.history import (
    BeganLate,
    Broken,
    Deleted,
    FirstRead,
    History,
    Loss,
    Lost,
    Stored,
)
from tests.simulation.cluster.node import TOPIC, Node
from tests.simulation.constants import restored

from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import request
from turbopump.protocol.names import TABLE_TOPIC
from turbopump.protocol.record import Record
from turbopump.remoting.client import Client
from turbopump.runtime.chance import Chance
from turbopump.runtime.clock import Clock
from turbopump.store import retention
from turbopump.store.store import Store
from turbopump.testing.loop import START_MS

FILE_SIZE, SMALL_FILE_SIZE = 1 << 16, 1 << 14  # without and with retention; a file holds two large messages
HOUR_MS = 1_000  # a file is kept for hours, by its setting: one of them is a second of virtual time
FIRST_AFTER_S = 2.0  # since the start of a broker
RESERVED_S = 4, 8, 15, 30  # the shortest is less than the longest delay of a message
ASK_S = 5.0
DECIDED_S = 20.0  # before a deletion at most: what waits in the file is written again, and synced
MAX_PULLS = 6  # until a reader that begins at offset 0 has a message
GROUP = "RG"
NAME = re.compile(rb"[ab]-\d{5}")  # as `next_name` of the world makes them


@contextmanager
def short_hours() -> Iterator[None]:
    """Has files expire in seconds instead of hours, in its block."""
    with restored(retention):
        retention._HOUR_MS = HOUR_MS
        retention.FIRST_AFTER_S = FIRST_AFTER_S
        yield


def conf(chance: Chance) -> list[str]:
    """Returns the settings of retention of a pair: files expire by themselves, or when an operator asks."""
    is_automatic, hour = chance.random() < 0.6, time.localtime(START_MS / 1000).tm_hour
    hours = range(24) if is_automatic else [(hour + 12) % 24]
    return [
        f"deleteWhen={';'.join(f'{one:02d}' for one in hours)}",
        f"fileReservedTime={chance.choice(RESERVED_S)}",
        f"cleanResourceInterval={chance.choice([1_000, 3_000])}",
        "deleteCommitLogFilesInterval=100",
    ]


class Observed(Protocol):
    """The world as the witness of deletions sees it."""

    @property
    def clock(self) -> Clock: ...
    @property
    def history(self) -> History: ...
    def nodes_of(self, pair: str) -> list[Node]: ...


class DeletionWitness:
    """Notes each file that a retention deletes, with its age and messages, and slaves that lack files."""

    def __init__(self, world: Observed) -> None:
        self._world = world

    def watch(self, node: Node, store: Store) -> None:
        """Notes the deletions of a store that was just opened."""
        delete_first, log = store.commit_log.delete_first, store.commit_log

        def delete() -> None:
            found = self._describe(node, log.end, store.config.file_reserved_hours)
            delete_first()
            history, now = self._world.history, found.at
            history.add(found)
            history.tell(now, f"{node.name} deletes {found.begin} to {found.end}, {found.idle_ms} ms old")

        set_log_aside = store.upkeep.set_log_aside

        async def start_over() -> list[str]:
            names, end = names_in(b"".join(data for _, data in node.log())), log.end
            kept = await set_log_aside()
            self._started_over(node, names, end)
            return kept

        log.delete_first = delete  # type: ignore[method-assign]
        store.upkeep.set_log_aside = start_over  # type: ignore[method-assign]

    def _started_over(self, node: Node, names: set[str], end: int) -> None:
        """Notes that a slave has set its log aside: its master has deleted all that would continue it."""
        now, history, aside = self._world.clock.monotonic(), self._world.history, names_in(node.aside())
        history.tell(now, f"{node.name} starts over: its log up to {end} is set aside")
        history.add(Loss(now, node.pair, node.name, Lost.LEFT, 0, until=end))
        if lost := sorted(names - aside):
            text = f"{node.name} has set its log aside, without {lost[:3]}"
            history.add(Broken(now, "lost write", text))

    def look_at(self, slave: Node, master: Node, is_complete: bool) -> None:
        """Notes a slave that calls itself complete though its log begins behind its master's."""
        begin, wanted = slave.first_offset, master.first_offset
        if is_complete and begin > wanted:
            now = self._world.clock.monotonic()
            self._world.history.add(BeganLate(now, slave.pair, slave.name, begin, wanted))

    def _describe(self, node: Node, log_end: int, reserved_hours: int) -> Deleted:
        begin, size, nodes = node.first_offset, node.file_size, self._world.nodes_of(node.pair)
        return Deleted(
            at=self._world.clock.monotonic(),
            pair=node.pair,
            node=node.name,
            is_master=node.is_master,
            begin=begin,
            end=begin + size,
            log_end=log_end,
            idle_ms=node.clock.now_ms() + node.clock.set_back_ms(DECIDED_S) - node.modified_ms(begin),
            reserved_ms=reserved_hours * HOUR_MS,
            master_begin=next((one.first_offset for one in nodes if one.is_master), 0),
            records=tuple(stored(one) for one, _ in node.log(begin + size) if one.topic != TABLE_TOPIC),
        )


class LateReader(PairClient):
    """Begins to read the queues of a pair at offset 0, again and again: it must get the first message."""

    def __init__(self, world: Surroundings, pair: str, client: Client, queues: int) -> None:
        super().__init__(world, pair, client)
        self._queues = queues

    async def run(self) -> None:
        chance = self.world.chance
        while True:
            await asyncio.sleep(chance.uniform(1, 6))
            await self._read(chance.randrange(self._queues))

    async def _read(self, queue_id: int) -> None:
        position = 0
        begins: list[tuple[Node, int, int | None]] = []
        for _ in range(MAX_PULLS):
            begins += [(one, one.life, _begin(one, queue_id)) for one in self._masters() if not begins]
            found = await self.call_master(pull_of(GROUP, queue_id, position), f"first pull of {queue_id}")
            if found is None:
                return
            node, answer = found
            position = int((answer.ext or {}).get("nextBeginOffset", position))
            if answer.code == ResponseCode.PULL_OFFSET_MOVED:
                self._note(begins, node, queue_id, position)
                return
            if answer.code == ResponseCode.SUCCESS:
                self._note(begins, node, queue_id, found_in(answer)[0].queue_offset)
                return

    def _masters(self) -> list[Node]:
        return [one for one in self.world.nodes_of(self.pair) if one.is_master and one.is_up]

    def _note(
        self, begins: list[tuple[Node, int, int | None]], node: Node, queue_id: int, found: int
    ) -> None:
        """Notes what came first, if the master is still the process that it was."""
        low = next((low for one, life, low in begins if one is node and node.life == life), None)
        high = _begin(node, queue_id) if node.is_up and node.is_master else None
        if low is not None and high is not None:
            now = self.world.clock.monotonic()
            self.world.history.add(FirstRead(now, self.pair, node.name, queue_id, low, found, high))


async def ask_to_delete(tool: Client, node: Node) -> bool:
    """Asks a broker to delete expired files at any hour; returns whether it agreed."""
    try:
        answer = await tool.call(node.address, request(RequestCode.DELETE_EXPIRED_COMMITLOG), ASK_S)
    except OSError:
        return False
    return answer.code == ResponseCode.SUCCESS


def stored(one: Record) -> Stored:
    """Returns a record as the checker sees it."""
    return Stored(
        one.physical_offset,
        one.physical_offset + one.size,
        one.topic,
        one.queue_id,
        one.queue_offset,
        name_of(one.body),
        one.store_timestamp,
    )


def names_in(data: bytes) -> set[str]:
    """Returns the names of messages in the bytes of a log."""
    return {found.decode() for found in NAME.findall(data)}


def _begin(node: Node, queue_id: int) -> int | None:
    """Returns the offset of the first message of a queue in the log of a node; None: it has none."""
    for one, _ in node.log():
        if one.topic == TOPIC and one.queue_id == queue_id:
            return one.queue_offset
    return None
