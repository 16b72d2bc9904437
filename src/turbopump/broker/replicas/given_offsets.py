"""Brings the offsets that a slave gave to consumers to its master, which would doubt them (9714).

A master that has lost messages in a crash takes an offset from a consumer only if it knows where the consumer
has it from (`consume/reused_offsets.py`). In: what this slave has given since, and where the master is. Out:
requests to the master, before this slave sends consumers to it, then each second while there is more. The log
of a slave that follows is a copy of its master's, so that what it gave is valid there.
"""

import logging
from collections.abc import Callable

from turbopump.broker.consume.reused_offsets import ReusedOffsets
from turbopump.broker.consume.slave_reused_offsets import Given, SlaveReusedOffsets
from turbopump.protocol.bodies import GivenOffset, GivenOffsets
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import Command
from turbopump.remoting.client import Client
from turbopump.remoting.router import Answer, Request, Route, Routes
from turbopump.runtime.clock import Clock
from turbopump.runtime.tasks import Tasks

log = logging.getLogger(__name__)

CALL_TIMEOUT_S = 3.0
GATHERED_S = 1.0  # offsets given in this time are brought together; a failure is repeated after it
MAX_ROWS = 2_000  # offsets in one request: about 200 kB


class GivenOffsetSender:
    """Tells the master of a slave which offsets the slave gave to which consumers."""

    def __init__(self, reused: SlaveReusedOffsets, client: Client, clock: Clock) -> None:
        self._reused = reused
        self._client = client
        self._clock = clock
        self._master: str | None = None
        self._is_bringing = False
        self._tasks = Tasks(log)
        reused.on_given = self._given

    def follow(self, master: str | None, known: Callable[[], None] = lambda: None) -> None:
        """Notes where the master is that this slave copies, or that there is none; brings it all offsets.

        `known` is called once the master knows them, or could not be told.
        """
        if master == self._master:
            return
        self._master = master
        if master is None:
            return
        self._reused.bring_all()
        first = self._reused.take_given(MAX_ROWS)
        if not first:
            known()
            return
        self._is_bringing = True
        self._tasks.start(self._bring_first(master, first, known), name="bring given offsets first")

    async def close(self) -> None:
        await self._tasks.close()

    def _given(self) -> None:
        if self._master is not None and not self._is_bringing:
            self._is_bringing = True
            self._tasks.start(self._bring_all(), name="bring given offsets")

    async def _bring_first(self, master: str, rows: list[Given], known: Callable[[], None]) -> None:
        try:
            while rows and await self._bring(master, rows):
                rows = self._reused.take_given(MAX_ROWS)
        finally:
            self._is_bringing = False
        if self._master == master:
            known()

    async def _bring_all(self) -> None:
        try:
            await self._clock.sleep(GATHERED_S)
            while (master := self._master) is not None and (rows := self._reused.take_given(MAX_ROWS)):
                if not await self._bring(master, rows):
                    await self._clock.sleep(GATHERED_S)
        finally:
            self._is_bringing = False

    async def _bring(self, master: str, rows: list[Given]) -> bool:
        """Tells the master of these offsets; returns False, and keeps them, if it does not answer."""
        command = Command(int(RequestCode.REPLICA_GIVEN_OFFSETS), body=_body(rows))
        try:
            answer = await self._client.call(master, command, CALL_TIMEOUT_S)
        except OSError as error:
            log.info("Cannot tell the master at %s which offsets this slave gave: %s", master, error)
            self._reused.not_taken(rows)
            return False
        # A master of an older version does not know the request, and doubts the offsets.
        if answer.code != ResponseCode.SUCCESS:
            log.info("The master refused the offsets that this slave gave: %s %s", answer.code, answer.remark)
        return True


class GivenOffsetHandler:
    """Takes the offsets that slaves gave to consumers (9714)."""

    def __init__(self, reused: ReusedOffsets) -> None:
        self._reused = reused

    def routes(self) -> Routes:
        return {RequestCode.REPLICA_GIVEN_OFFSETS: Route(None, self.take)}

    def take(self, request: Request[None]) -> Answer:
        """Records the offsets of a request: consumers may pull and commit them here, too."""
        for one in GivenOffsets.decode(request.body).given:
            self._reused.given_by_slave(one.consumer, one.group, one.topic, one.queueId, one.offset)
        return Answer()


def _body(rows: list[Given]) -> bytes:
    return GivenOffsets(
        [GivenOffset(consumer, group, offset, queue, topic) for consumer, group, topic, queue, offset in rows]
    ).encode()
