"""Offsets that consumers commit at a slave while its master is away, and their way to the master.

In: commits made here, and where the master is. Out: commits at the master, once it is back. Until then they
are kept in a file, so that a restart of the slave does not lose them. An offset of the master is never moved
back: what it has, if that is more, wins. Nor is it moved beyond what the master's queue has: a commit counts
as far as this slave's own queue reached when it was made, or reaches after its log was shortened, and the log
here is a part of the master's. A master that dies soon after it took them may not have saved them: they are
brought once more to the next one.
"""

import logging
from collections.abc import Callable, Mapping

import msgspec

from turbopump.broker.persist import PersistedTable
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import Command, request
from turbopump.protocol.headers.base import Header
from turbopump.protocol.headers.offsets import (
    OffsetResponse,
    QueryConsumerOffsetRequest,
    UpdateConsumerOffsetRequest,
)
from turbopump.remoting.client import Client
from turbopump.runtime.clock import Clock
from turbopump.runtime.disk import Workers
from turbopump.runtime.tasks import Tasks
from turbopump.store.config_files import ConfigFiles

log = logging.getLogger(__name__)

FILE = "slaveCommits.json"
CALL_TIMEOUT_S = 3.0
GATHERED_S = (
    1.0  # commits made while the master is there are brought together; a failure is repeated after it
)
SAVED_S = (
    15.0  # a master writes its offsets every 5 s, `flushConsumerOffsetInterval`, and its disk may be slow
)
NONE = -1

Place = tuple[str, str, int]
"""Group, topic and queue of a committed offset."""


class CannotBring(Exception):
    """The master does not answer, or not as a master does."""


class SlaveCommits:
    """Commits made at this slave that its master does not have yet. `end_of`: the end of a queue here."""

    def __init__(
        self,
        files: ConfigFiles,
        workers: Workers,
        client: Client,
        clock: Clock,
        end_of: Callable[[str, int], int],
    ) -> None:
        self._client = client
        self._clock = clock
        self._end_of = end_of
        self._pending: dict[Place, int] = {}
        self._brought: dict[Place, tuple[int, float]] = {}  # the offset, and when the master took it
        self._master: str | None = None
        self._is_bringing = False
        self._tasks = Tasks(log)
        self._file = PersistedTable(FILE, self._dump, files.save, workers, GATHERED_S)
        files.load(FILE, self._load)
        self.lower()

    @property
    def pending(self) -> Mapping[Place, int]:
        return self._pending

    def committed(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Notes a commit of a consumer, as far as this slave has the messages."""
        self._pending[group, topic, queue_id] = min(offset, self._end_of(topic, queue_id))
        self._file.changed()
        self._bring_soon(GATHERED_S)

    def lower(self) -> None:
        """Lowers offsets to the ends of their queues: the log here may have been shortened since.

        The messages behind were no part of the master's log, which has others at these offsets.
        """
        for place, offset in self._pending.items():
            self._pending[place] = min(offset, self._end_of(place[1], place[2]))

    def follow(self, master: str | None) -> None:
        """Notes where the master is that this slave copies, or that there is none; brings it the commits."""
        if master is not None and self._master is None:
            self._bring_again()
        self._master = master
        self._bring_soon(0.0)

    def _bring_again(self) -> None:
        """Makes commits pending again that a master took and perhaps did not save before it was gone."""
        since = self._clock.monotonic() - SAVED_S
        for place, (offset, at) in self._brought.items():
            if at > since:
                self._pending.setdefault(place, min(offset, self._end_of(place[1], place[2])))
        self._brought.clear()
        self._file.changed()

    def master_has(self, offset_of: Callable[[str, str, int], int]) -> None:
        """Forgets commits that the master has replaced since it took them, by its table of offsets."""
        now = self._clock.monotonic()
        self._brought = {
            place: (offset, at)
            for place, (offset, at) in self._brought.items()
            # A table that was sent before the commit may come after it.
            if now - at < GATHERED_S or (now - at < SAVED_S and offset_of(*place) == offset)
        }

    async def close(self) -> None:
        await self._tasks.close()
        await self._file.close()

    # bringing

    def _bring_soon(self, after_s: float) -> None:
        if self._master is not None and self._pending and not self._is_bringing:
            self._is_bringing = True
            self._tasks.start(self._bring_all(after_s), name="bring commits to the master")

    async def _bring_all(self, after_s: float) -> None:
        brought = 0
        try:
            await self._clock.sleep(after_s)
            while self._pending and (master := self._master) is not None:
                try:
                    for place, offset in list(self._pending.items()):
                        brought += await self._bring(master, place, offset)
                except CannotBring as error:
                    log.warning("Cannot bring offsets to the master at %s; retrying: %s", master, error)
                    await self._clock.sleep(GATHERED_S)
        finally:
            self._is_bringing = False
        if brought:
            log.info("Brought %d offsets that were committed here to the master", brought)

    async def _bring(self, master: str, place: Place, offset: int) -> bool:
        """Commits an offset at the master if greater than that there; returns whether. Raises CannotBring."""
        group, topic, queue_id = place
        query = QueryConsumerOffsetRequest(group, topic, queue_id, setZeroIfNotFound=False)
        answer = await self._ask(master, RequestCode.QUERY_CONSUMER_OFFSET, query)
        is_known = answer.code == ResponseCode.SUCCESS
        if not is_known and answer.code != ResponseCode.QUERY_NOT_FOUND:
            raise CannotBring(f"a query of offsets was answered {answer.code} {answer.remark}")
        known = OffsetResponse.from_ext(answer.ext).offset if is_known else NONE
        is_newer = offset > known
        if is_newer:
            update = UpdateConsumerOffsetRequest(group, topic, queue_id, offset)
            answer = await self._ask(master, RequestCode.UPDATE_CONSUMER_OFFSET, update)
            if answer.code != ResponseCode.SUCCESS:
                words = "The master refused offset %d of group %s in %s queue %d: %s %s"
                log.warning(words, offset, *place, answer.code, answer.remark)
        if self._pending.get(place) == offset:  # no newer commit meanwhile
            del self._pending[place]
            self._file.changed()
            if is_newer and answer.code == ResponseCode.SUCCESS:
                self._brought[place] = offset, self._clock.monotonic()
        return is_newer and answer.code == ResponseCode.SUCCESS

    async def _ask(self, master: str, code: RequestCode, header: Header) -> Command:
        try:
            return await self._client.call(master, request(code, header), CALL_TIMEOUT_S)
        except OSError as error:
            raise CannotBring(str(error)) from None

    # file

    def _dump(self) -> bytes:
        rows = [[*place, offset] for place, offset in self._pending.items()]
        return b"[" + b",\n".join(map(msgspec.json.encode, rows)) + b"]\n"

    def _load(self, data: bytes) -> bool:
        try:
            rows = msgspec.json.decode(data, type=list[tuple[str, str, int, int]])
        except msgspec.DecodeError:
            return False
        self._pending = {(group, topic, queue_id): offset for group, topic, queue_id, offset in rows}
        return True


def forget(files: ConfigFiles) -> None:
    """Drops commits of a slave that is a master now: its own table has them."""
    if files.load(FILE) is not None:
        files.save(FILE, b"[]\n")
