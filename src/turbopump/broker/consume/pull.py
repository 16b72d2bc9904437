"""Handles pull requests (11, 361): checks them, reads records, or parks them until a message arrives.

In: a pull request. Out: one answer with the records joined to its header in a single buffer, or a pull that
waits in `parked.py` until a message arrives or its timeout ends. A request may carry an offset to commit. A
consumer whose offset was reset (`groups/resets.py`), or whose offset a crash made void
(`reused_offsets.py`), is answered with the offset to go on from; the offset that such a pull carries is not
committed. Which pulls may read is decided in `pull_checks.py`, how records are found in `store/reading.py`,
which server is suggested for the next pull in `read_servers.py`.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Coroutine, Iterable

from turbopump.broker.config import PollConfig
from turbopump.broker.consume.filter_modules import FilterFailed, FilterModule
from turbopump.broker.consume.module_pulls import ModulePulls
from turbopump.broker.consume.parked import ParkedPulls
from turbopump.broker.consume.pull_checks import Pull, PullChecks, ReadForbidden
from turbopump.broker.consume.read_servers import MASTER, ReadServers
from turbopump.broker.consume.reused_offsets import ReusedOffsets
from turbopump.broker.groups.offsets import CommittedOffsets
from turbopump.broker.metrics.traffic import Traffic
from turbopump.broker.storage import Storage
from turbopump.guard.link import Charge
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import Command, encode_with, reply
from turbopump.protocol.errors import Refused
from turbopump.protocol.headers.pull import PullMessageRequest
from turbopump.protocol.sysflag import PULL_COMMIT_OFFSET, PULL_LITE, PULL_SUBSCRIPTION, PULL_SUSPEND
from turbopump.remoting.connection import Connection
from turbopump.remoting.router import Request, Route, Routes
from turbopump.runtime.clock import Clock
from turbopump.runtime.rate_limited_log import RateLimitedLog
from turbopump.runtime.tasks import Tasks
from turbopump.store.consume_queue import ConsumeQueue
from turbopump.store.errors import NotInMemory
from turbopump.store.reading import SCAN_UNITS, GetResult, GetStatus

log = logging.getLogger(__name__)

MAX_PARKED_PER_CONNECTION = 4096  # queues that one client waits on; more pulls are answered without waiting
MAX_FETCHES = 3  # first queue entries, then records; if they leave memory again, the read blocks on the disk
SWEEP_S = 5.0
"""Interval after which a parked pull is answered when only messages that its filter rejects have arrived.

Such messages move its offset on. Intervals are counted from the moment the pull was parked."""

MAX_WAIT_BESIDE_MASTER_S = 1.0
"""Wait of a pull that finds nothing on a slave whose master is there: the next pull goes to the master.

Apache's slave answers at once, so that a consumer that cannot reach the master, or whose route does not name
it yet, pulls without a pause.
"""

WOKEN_PER_TURN = 32
"""Parked pulls answered in one turn of the event loop."""

CODES: dict[GetStatus, ResponseCode] = {
    GetStatus.FOUND: ResponseCode.SUCCESS,
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.NO_MATCHED_LOGIC_QUEUE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.NO_MESSAGE_IN_QUEUE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_RESET: ResponseCode.PULL_OFFSET_MOVED,
}
EMPTY = (GetStatus.NO_MATCHED_LOGIC_QUEUE, GetStatus.NO_MESSAGE_IN_QUEUE)
OUTSIDE = (*EMPTY, GetStatus.OFFSET_OVERFLOW_BADLY, GetStatus.OFFSET_TOO_SMALL)
OUTSIDE_LINES = 10  # log lines about consumers that wait for what a slave does not have, per ...
OUTSIDE_INTERVAL_S = 60.0


class PullHandler:
    """Handles pull requests: answers them at once, or parks them until a message arrives or time is over."""

    def __init__(
        self,
        store: Storage,
        checks: PullChecks,
        offsets: CommittedOffsets,
        reused: ReusedOffsets,
        clock: Clock,
        polling: PollConfig,
        traffic: Traffic,
        servers: ReadServers,
        charge: Charge | None = None,
    ) -> None:
        """`charge` counts what was read against the quota of who pulls; None: there are no quotas."""
        self._store = store
        self._charge = charge
        # Bound here, without a call in between: both run for every pull.
        self._checked = checks.check
        self._versions = checks.versions
        self._offsets = offsets
        self._reused = reused
        self._clock = clock
        self._polling = polling
        self._traffic = traffic
        self._servers = servers
        self._module_pulls = ModulePulls(store.reader)
        self._parked: ParkedPulls[Pull] = ParkedPulls(polling.max_parked)
        # Parked pulls of each connection. An entry stays until the connection closes, even when it is empty,
        # so that `on_closed` is registered once.
        self._waiting_on: dict[Connection, set[Pull]] = {}
        self._woken: deque[Pull] = deque()
        self._reads = Tasks(log)
        self._code = _code_on_slave if servers.is_slave else _code
        self._outside = RateLimitedLog(log, OUTSIDE_INTERVAL_S, logging.WARNING, OUTSIDE_LINES)
        self.configure(polling)

    def configure(self, polling: PollConfig) -> None:
        """Takes over new poll settings, and the settings that `servers` has now."""
        self._polling = polling
        self._suggested = self._servers.suggested if self._servers.may_suggest else None
        self._store.reader.keeps_offsets = self._servers.keeps_offsets

    def master_seen(self, is_there: bool) -> None:
        """Notes whether the master of this slave is there; when it comes, sends waiting consumers to it."""
        has_come = is_there and not self._servers.has_master
        self._servers.has_master = is_there
        if has_come:
            self._wake(self._parked.drain())

    def routes(self) -> Routes:
        route = Route(PullMessageRequest, self.pull)
        return {RequestCode.PULL_MESSAGE: route, RequestCode.LITE_PULL_MESSAGE: route}

    def pull(self, request: Request[PullMessageRequest]) -> Command | None:
        """Handles one pull; returns a refusal as answer, or None if the answer is written here or later."""
        header = request.header
        try:
            pull = self._checked(request)
        except Refused as refused:
            return _refusal(request, refused)
        result = self._redirect(pull)
        if result is None:
            if header.sysFlag & PULL_COMMIT_OFFSET and header.commitOffset >= 0:
                self._offsets.commit(header.consumerGroup, header.topic, header.queueId, header.commitOffset)
            if pull.module is not None:
                self._answer_later(pull, self._read_through_module(pull, pull.module, may_park=True))
                return None
            try:
                result = self._read(pull)
            except NotInMemory as missing:
                self._fetch(pull, missing)
                return None
            self._record_given(pull, result)
        self._park_or_answer(pull, result)
        return None

    def _park_or_answer(self, pull: Pull, result: GetResult) -> None:
        code = self._code(result, pull.offset)
        may_park = code == ResponseCode.PULL_NOT_FOUND and pull.request.header.sysFlag & PULL_SUSPEND
        if not may_park or not self._park(pull):
            self._answer(pull, result, code)

    def offsets_reset(self, group: str, topic: str, queue_ids: Iterable[int]) -> None:
        """Answers the group's parked pulls on queues that were reset, with the new offset to go on from."""
        for queue_id in queue_ids:
            queue = self._store.queues.find(topic, queue_id)
            for pull in self._parked.waiting(queue) if queue is not None else ():
                if pull.request.header.consumerGroup == group and self._parked.withdraw(pull):
                    self._finish(pull)

    def arrived(self, queue: ConsumeQueue, next_offset: int, tags_code: int) -> None:
        """Wakes parked pulls that accept the new message at `next_offset` - 1; they are answered later."""
        # No pull is parked any more: the store need not call for every message.
        if not self._parked:
            self._store.log.on_arrival = None
        if not self._parked.waits_on(queue):
            return
        woken = self._parked.arrived(
            queue, next_offset, tags_code, lambda: self._store.reader.properties(queue, next_offset - 1)
        )
        # Those that still wait were passed by a message that they do not want.
        for pull in self._parked.waiting(queue):
            if pull.offset < next_offset and not pull.was_passed:
                self._shorten_wait(pull)
        self._wake(woken)

    def _wake(self, woken: list[Pull]) -> None:
        if woken and not self._woken:
            asyncio.get_running_loop().call_soon(self._answer_woken)
        self._woken.extend(woken)

    @property
    def parked(self) -> int:
        return sum(map(len, self._waiting_on.values()))

    def close(self) -> None:
        """Answers all parked and woken pulls with what can be read now, usually nothing; the broker stops."""
        while self._woken:
            self._finish(self._woken.popleft())
        for pull in self._parked.drain():
            self._finish(pull)

    def _redirect(self, pull: Pull) -> GetResult | None:
        """Returns a result without messages that moves the consumer to another offset; None if it may read.

        Either an operator reset the group, or the offset is void (`reused_offsets.py`).
        """
        offsets, reused, queue = self._offsets, self._reused, pull.queue
        # The usual case, on the hot path: no reset is pending and no offset can be void.
        if not offsets.has_resets and not reused.is_active:
            return None
        header = pull.request.header
        group, topic, queue_id = header.consumerGroup, header.topic, header.queueId
        if (offset := offsets.take_reset(group, topic, queue_id)) >= 0:
            reused.set_by_tool(group, topic, queue_id, offset)
            return GetResult(GetStatus.OFFSET_RESET, offset, queue.min_offset, queue.max_offset)
        # A reader that keeps its own offsets may read anywhere.
        if header.sysFlag & (PULL_SUBSCRIPTION | PULL_LITE) == PULL_SUBSCRIPTION:
            return None
        peer = pull.request.connection
        committed = offsets.query(group, topic, queue_id)
        if not reused.is_void(peer, group, topic, queue_id, pull.offset, committed):
            return None
        back = self._last_safe(pull)
        reused.handed(peer, group, topic, queue_id, back)
        words = "Group %s was beyond the recovered end of %s queue %d: moved back from %d to %d"
        log.warning(words, group, topic, queue_id, pull.offset, back)
        return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, back, queue.min_offset, queue.max_offset)

    def _last_safe(self, pull: Pull) -> int:
        """Returns the queue offset to send a consumer back to: all messages before it have been handled.

        That is what the group has committed, or what this consumer says it has handled as far as that is not
        void; without either, the first message of the queue.
        """
        header, queue = pull.request.header, pull.queue
        safe = self._offsets.query(header.consumerGroup, header.topic, header.queueId)
        end = self._reused.end(header.topic, header.queueId)
        if header.sysFlag & PULL_COMMIT_OFFSET and end is not None:
            safe = max(safe, min(header.commitOffset, end))
        return min(max(safe, queue.min_offset), queue.max_offset)

    def _read(self, pull: Pull) -> GetResult:
        header = pull.request.header
        began = self._clock.monotonic()
        result = self._store.reader.get(
            pull.queue,
            pull.offset,
            header.maxMsgNums,
            header.maxMsgBytes,
            pull.accepts,
            may_wait=pull.fetches >= MAX_FETCHES,
            matches=pull.matches,
            most=SCAN_UNITS if pull.filter is None else pull.filter.max_scanned,
            bits=None if pull.filter is None else pull.filter.bits,
            bulk_bytes=header.bulkBytes or 0,
        )
        took_ms = int((self._clock.monotonic() - began) * 1000)
        if took_ms:  # rare: messages that had to be read from the disk
            self._traffic.waited_to_get(pull.queue, header.consumerGroup, took_ms)
        return result

    def _record_given(self, pull: Pull, result: GetResult) -> None:
        """Records `result.next_offset` as given to this consumer, which may therefore pull and commit it."""
        header = pull.request.header
        where = header.consumerGroup, header.topic, header.queueId
        self._offsets.pulled(*where, result.next_offset)
        if self._reused.is_active:
            self._reused.handed(pull.request.connection, *where, result.next_offset)

    def _park(self, pull: Pull) -> bool:
        connection = pull.request.connection
        here = self._waiting_on.get(connection, ())
        if len(here) >= MAX_PARKED_PER_CONNECTION or connection.is_closing or not self._parked.park(pull):
            return False
        if self._servers.keeps_offsets:
            self._check_outside(pull)
        if connection not in self._waiting_on:
            self._waiting_on[connection] = set()
            connection.on_closed.append(self._forget)
        self._waiting_on[connection].add(pull)
        pull.request.was_parked = True
        wait_ms = (
            min(pull.request.header.suspendTimeoutMillis, self._polling.max_suspend_ms)
            if self._polling.long_polling
            else self._polling.short_polling_ms
        )
        wait_s = max(0, wait_ms) / 1000
        if self._servers.has_master:
            wait_s = min(wait_s, MAX_WAIT_BESIDE_MASTER_S)
        pull.parked_at = asyncio.get_running_loop().time()
        self._end_after(pull, wait_s)
        self._store.log.on_arrival = self.arrived
        # A message arrived while a filter module was still at work on this pull: `arrived` was not called.
        if pull.queue.max_offset > pull.offset:
            self._shorten_wait(pull)
        return True

    def _check_outside(self, pull: Pull) -> None:
        """Logs a parked pull outside this slave's queue; one below the queue is woken by no arrival then."""
        header, queue = pull.request.header, pull.queue
        if queue.min_offset <= pull.offset <= queue.max_offset:
            return
        if pull.offset < queue.min_offset:
            pull.accepts = _nothing  # what arrives is behind it
        words = (
            "Group %s is at offset %d of %s queue %d, of which this slave has %d to %d: it waits for the "
            "master. To let it go on with what is here, set offsetCheckInSlave=true"
        )
        now = self._clock.monotonic()
        ends = queue.min_offset, queue.max_offset
        self._outside.log(now, words, header.consumerGroup, pull.offset, header.topic, header.queueId, *ends)

    def _end_after(self, pull: Pull, seconds: float) -> None:
        """Sets the timeout of a parked pull, in seconds from when it was parked."""
        if pull.timer is not None:
            pull.timer.cancel()
        pull.timer = asyncio.get_running_loop().call_at(pull.parked_at + seconds, self._finish_parked, pull)

    def _shorten_wait(self, pull: Pull) -> None:
        """Shortens a parked pull's timeout to the next multiple of `SWEEP_S`: its filter rejected a message.

        The consumer's offset moves past that message: the pull is answered when the sweep interval ends.
        """
        pull.was_passed = True
        waited_s = asyncio.get_running_loop().time() - pull.parked_at
        end_s = SWEEP_S * (waited_s // SWEEP_S + 1)
        if pull.timer is not None and pull.parked_at + end_s < pull.timer.when():
            self._end_after(pull, end_s)

    def _finish_parked(self, pull: Pull) -> None:
        """Answers a parked pull whose timeout ended."""
        if self._parked.withdraw(pull):
            self._finish(pull)

    def _forget(self, connection: Connection) -> None:
        """Drops the parked pulls of a closed connection without answering them."""
        for pull in self._waiting_on.pop(connection, ()):
            self._parked.withdraw(pull)
            if pull.timer is not None:
                pull.timer.cancel()

    def _answer_woken(self) -> None:
        """Answers up to `WOKEN_PER_TURN` woken pulls, and schedules the rest for the next event loop turn.

        Between turns other requests are served, and connections that do not read their answers are closed,
        which frees those answers.
        """
        now = [self._woken.popleft() for _ in range(min(WOKEN_PER_TURN, len(self._woken)))]
        if self._woken:
            asyncio.get_running_loop().call_soon(self._answer_woken)
        for pull in now:
            self._finish(pull)

    def _finish(self, pull: Pull) -> None:
        if pull.timer is not None:
            pull.timer.cancel()
        connection = pull.request.connection
        self._waiting_on.get(connection, set()).discard(pull)
        if not connection.is_closing:
            self._read_and_answer(pull)

    def _read_and_answer(self, pull: Pull) -> None:
        try:
            # Topics, groups or filters changed while the pull was parked: check again whether it may read.
            if pull.rules != self._versions():
                pull = self._checked(pull.request)
            result = self._redirect(pull)
            if result is None and pull.module is not None:
                self._answer_later(pull, self._read_through_module(pull, pull.module, may_park=False))
                return
            result = result or self._read(pull)
            self._record_given(pull, result)
        except Refused as refused:
            pull.request.answer(_refusal(pull.request, refused))
        except NotInMemory as missing:
            self._fetch(pull, missing)
        except OSError as error:
            # Answered here instead of raised: other pulls are answered after this one.
            log.error("Cannot read a pull of topic %s: %s", pull.queue.topic, error)
            request = pull.request
            request.answer(reply(request.command, ResponseCode.SYSTEM_ERROR, str(error), {}))
        else:
            self._answer(pull, result, self._code(result, pull.offset))

    def _fetch(self, pull: Pull, missing: NotInMemory) -> None:
        """Starts a task that loads missing data from disk in a thread, then reads and answers the pull."""
        pull.fetches += 1
        self._answer_later(pull, self._fetch_and_read(pull, missing))

    def _answer_later(self, pull: Pull, work: Coroutine[None, None, None]) -> None:
        """Starts the task `work`, which answers the pull and counts as a request in flight until it ends."""
        connection = pull.request.connection
        connection.begin(0)
        task = self._reads.start(work, name="read a pull")
        task.add_done_callback(lambda _: connection.end(0))

    async def _fetch_and_read(self, pull: Pull, missing: NotInMemory) -> None:
        began = self._clock.monotonic()
        with contextlib.suppress(OSError):  # the read below fails with the same error and answers it
            await self._store.reader.fetch(missing.places)
        took_ms = int((self._clock.monotonic() - began) * 1000)
        self._traffic.waited_to_get(pull.queue, pull.request.header.consumerGroup, took_ms)
        if not pull.request.connection.is_closing:
            self._read_and_answer(pull)

    async def _read_through_module(self, pull: Pull, module: FilterModule, may_park: bool) -> None:
        """Reads messages through a filter module, then answers or parks the pull; a failure is answered too.

        After a failure of the module the answer is an error: no message is skipped.
        """
        request = pull.request
        try:
            result = await self._module_pulls.choose(
                pull.queue, pull.offset, request.header.maxMsgNums, module
            )
        except (FilterFailed, OSError) as failed:
            request.answer(reply(request.command, ResponseCode.SYSTEM_ERROR, str(failed), {}))
            return
        self._record_given(pull, result)
        if request.connection.is_closing:
            return
        if may_park:
            self._park_or_answer(pull, result)
        else:
            self._answer(pull, result, self._code(result, pull.offset))

    async def cancel_reads(self) -> None:
        """Cancels the tasks that still read pulls from the disk or through a module; the broker stops."""
        await self._reads.close()

    def _answer(self, pull: Pull, result: GetResult, code: int) -> None:
        if result.count:
            group = pull.request.header.consumerGroup
            self._traffic.got(pull.queue, group, result.count, result.size, result.next_offset)
            if self._charge is not None:
                self._charge(pull.request, result.size)
        else:
            self._traffic.pulls_missed += 1
        suggested = self._suggested
        ext = {
            "suggestWhichBrokerId": (
                MASTER if suggested is None else suggested(pull.request.header.consumerGroup, result.is_old)
            ),
            "nextBeginOffset": str(result.next_offset),
            "minOffset": str(result.min_offset),
            "maxOffset": str(result.max_offset),
            "topicSysFlag": str(pull.topic_sys_flag),
            "groupSysFlag": str(pull.group_sys_flag),
        }
        request = pull.request
        if not request.command.is_oneway:
            answer = reply(request.command, code, result.status.name, ext)
            request.connection.write(encode_with(answer, result.chunks))
            request.answered(code)


def _refusal(request: Request[PullMessageRequest], refused: Refused) -> Command:
    fields = {"forbiddenType": refused.kind} if isinstance(refused, ReadForbidden) else {}
    return reply(request.command, refused.code, refused.remark, fields)


def _code(result: GetResult, asked: int) -> int:
    if result.status in EMPTY and asked != 0:
        return ResponseCode.PULL_OFFSET_MOVED
    return CODES[result.status]


def _code_on_slave(result: GetResult, asked: int) -> int:
    """Returns the code on a slave; PULL_NOT_FOUND if the offset is outside of its queue and is not moved.

    Apache's slave answers it at once, and it asks the same again more than a thousand times a second.
    """
    is_left = result.status in OUTSIDE and result.next_offset == asked
    return ResponseCode.PULL_NOT_FOUND if is_left else _code(result, asked)


def _nothing(tags_code: int) -> bool:
    """Accepts no message: the filter of a pull that no arrival can help."""
    return False
