"""Pull: what may be read, which records, and what the consumer is told (codes 11 and 361).

In: a pull request. Out: one answer with the records joined to its header in a single buffer, or a pull that
waits in `parked.py` until a message arrives or its time is over. Offsets are committed here when the
request carries one. A consumer whose offset was reset, or whose offset a crash made void, is told here where
to go on; the offset that such a pull carries is not committed.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from functools import lru_cache

from turbopump.broker.config import PollConfig
from turbopump.broker.consume.filter_modules import FilterFailed, FilterModule
from turbopump.broker.consume.filters import GroupFilters, PullFilter, is_tag
from turbopump.broker.consume.module_pulls import ModulePulls
from turbopump.broker.consume.parked import ParkedPulls
from turbopump.broker.consume.reused_offsets import ReusedOffsets
from turbopump.broker.groups.groups import SubscriptionGroup, SubscriptionGroups
from turbopump.broker.groups.members import Members
from turbopump.broker.groups.offsets import CommittedOffsets
from turbopump.broker.metrics.traffic import Traffic
from turbopump.broker.storage import Storage
from turbopump.broker.topics import FAQ, Topics
from turbopump.filter import tags_of
from turbopump.protocol.bodies import SubscriptionData
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import Command, encode_with, reply
from turbopump.protocol.errors import Refused
from turbopump.protocol.hashing import java_hash
from turbopump.protocol.headers.pull import PullMessageRequest
from turbopump.protocol.names import WASM
from turbopump.protocol.permissions import READ
from turbopump.protocol.sysflag import PULL_COMMIT_OFFSET, PULL_LITE, PULL_SUBSCRIPTION, PULL_SUSPEND
from turbopump.remoting.connection import Connection
from turbopump.remoting.router import Request, Route, Routes
from turbopump.runtime.clock import Clock
from turbopump.store.consume_queue import ConsumeQueue
from turbopump.store.errors import NotInMemory
from turbopump.store.reading import SCAN_UNITS, GetResult, GetStatus

log = logging.getLogger(__name__)

MAX_PARKED_PER_CONNECTION = (
    4096  # one client waits on so many queues at once; more are answered without waiting
)
MAX_FETCHES = 3  # entries of the queue, then records; what is gone again then is waited for
SWEEP_S = 5.0
"""Messages that its filter did not want move a parked pull on too: it is answered at the end of the interval,
of those that began when it was parked, in which one arrived."""

WOKEN_PER_TURN = 32
"""Pulls that are answered before others have their turn."""

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


@dataclass(eq=False, slots=True)
class Pull:
    """One checked pull: what to read for whom, and the end of its time when it waits."""

    request: Request[PullMessageRequest]
    queue: ConsumeQueue
    offset: int
    accepts: Callable[[int], bool] | None
    filter: PullFilter | None  # by properties
    topic_sys_flag: int
    group_sys_flag: int
    rules: tuple[int, int, int]  # the versions of topics, groups and filters that it was checked with
    module: FilterModule | None = None
    parked_at: float = 0.0
    timer: asyncio.TimerHandle | None = None
    is_passed: bool = False  # while parked, by a message that it does not want
    fetches: int = 0  # how often its messages had to come from the disk

    @property
    def matches(self) -> Callable[[bytes], bool] | None:
        return None if self.filter is None else self.filter.matches


class PullHandler:
    """Answers pulls, now or when there is something to read."""

    def __init__(
        self,
        store: Storage,
        topics: Topics,
        groups: SubscriptionGroups,
        members: Members[Connection],
        offsets: CommittedOffsets,
        clock: Clock,
        polling: PollConfig,
        traffic: Traffic,
        reused: ReusedOffsets,
        filters: GroupFilters,
        broker_readable: Callable[[], bool] = lambda: True,
        serves_lite: Callable[[], bool] = lambda: True,
        broker_ip: str = "",
    ) -> None:
        self._store = store
        self._topics = topics
        self._groups = groups
        self._members = members
        self._offsets = offsets
        self._clock = clock
        self._polling = polling
        self._traffic = traffic
        self._reused = reused
        self._filters = filters
        self._module_pulls = ModulePulls(store.reader)
        self._broker_readable = broker_readable
        self._serves_lite = serves_lite
        self._broker_ip = broker_ip
        self._parked: ParkedPulls[Pull] = ParkedPulls(polling.max_parked)
        self._waiting_on: dict[Connection, set[Pull]] = {}  # until it is closed, also when nothing waits
        self._woken: deque[Pull] = deque()
        self._fetching: set[asyncio.Task[None]] = set()

    def configure(self, polling: PollConfig) -> None:
        self._polling = polling

    def routes(self) -> Routes:
        route = Route(PullMessageRequest, self.pull)
        return {RequestCode.PULL_MESSAGE: route, RequestCode.LITE_PULL_MESSAGE: route}

    def pull(self, request: Request[PullMessageRequest]) -> Command | None:
        header = request.header
        try:
            pull = self._checked(request)
        except Refused as refused:
            return _refusal(request, refused)
        result = self._elsewhere(pull)
        if result is None:
            if header.sysFlag & PULL_COMMIT_OFFSET and header.commitOffset >= 0:
                self._offsets.commit(header.consumerGroup, header.topic, header.queueId, header.commitOffset)
            if pull.module is not None:
                self._beside(pull, self._chosen(pull, pull.module, may_park=True))
                return None
            try:
                result = self._read(pull)
            except NotInMemory as missing:
                self._fetch(pull, missing)
                return None
            self._handed(pull, result)
        self._park_or_answer(pull, result)
        return None

    def _park_or_answer(self, pull: Pull, result: GetResult) -> None:
        code = _code(result, pull.offset)
        may_park = code == ResponseCode.PULL_NOT_FOUND and pull.request.header.sysFlag & PULL_SUSPEND
        if not may_park or not self._park(pull):
            self._answer(pull, result, code)

    def offsets_reset(self, group: str, topic: str, queue_ids: Iterable[int]) -> None:
        """Consumers that wait for a message there are told at once where to go on instead."""
        for queue_id in queue_ids:
            queue = self._store.queues.find(topic, queue_id)
            for pull in self._parked.waiting(queue) if queue is not None else ():
                if pull.request.header.consumerGroup == group and self._parked.withdraw(pull):
                    self._finish(pull)

    def arrived(self, queue: ConsumeQueue, next_offset: int, tags_code: int) -> None:
        """The store has a new entry. Those who wait for it are answered after this pass, in one go."""
        if not self._parked:  # nobody is left: the store need not call for every message
            self._store.log.on_arrival = None
        if not self._parked.waits_on(queue):
            return
        woken = self._parked.arrived(
            queue, next_offset, tags_code, lambda: self._store.reader.properties(queue, next_offset - 1)
        )
        for pull in self._parked.waiting(queue):
            if pull.offset < next_offset and not pull.is_passed:
                self._pass(pull)
        if woken and not self._woken:
            asyncio.get_running_loop().call_soon(self._answer_woken)
        self._woken.extend(woken)

    @property
    def parked(self) -> int:
        return sum(map(len, self._waiting_on.values()))

    def close(self) -> None:
        """Answers everyone who still waits: nothing was found."""
        while self._woken:
            self._finish(self._woken.popleft())
        for pull in self._parked.drain():
            self._finish(pull)

    def _checked(self, request: Request[PullMessageRequest]) -> Pull:
        """The checks in Apache's order; each refusal has the code and the words of Apache's broker."""
        header = request.header
        if not self._broker_readable():
            raise ReadForbidden(f"the broker[{self._broker_ip}] pulling message is forbidden", "1")
        if request.command.code == RequestCode.LITE_PULL_MESSAGE and not self._serves_lite():
            raise ReadForbidden(f"the broker[{self._broker_ip}] for lite pull consumer is forbidden", "1")
        group = self._groups.for_consume(header.consumerGroup)
        if not group.consume_enable:
            raise ReadForbidden(f"subscription group no permission, {header.consumerGroup}", "2")
        topic = self._topics.find(header.topic)
        if topic is None:
            remark = f"topic[{header.topic}] not exist, apply first please! {FAQ}"
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, remark)
        if not topic.perm & READ:
            raise ReadForbidden(f"the topic[{header.topic}] pulling message is forbidden", "3")
        if not 0 <= header.queueId < topic.read_queues:
            ip, port = request.connection.peer
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{header.queueId}] is illegal, topic:[{header.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queues}] consumer:[/{ip}:{port}]",
            )
        accepts, wanted, module = self._filter(header, group)
        is_light = self._topics.is_light(header.topic)
        return Pull(
            request,
            self._store.queues.light(header.topic)
            if is_light
            else self._store.queues.queue(header.topic, header.queueId),
            header.queueOffset,
            accepts,
            wanted,
            topic.sys_flag,
            group.sys_flag,
            self._rules(),
            module,
        )

    def _rules(self) -> tuple[int, int, int]:
        return self._topics.version.counter, self._groups.version.counter, self._filters.version

    def _filter(
        self, header: PullMessageRequest, group: SubscriptionGroup
    ) -> tuple[Callable[[int], bool] | None, PullFilter | None, FilterModule | None]:
        """By tag code, by properties, or by a module."""
        is_alone = header.sysFlag & PULL_SUBSCRIPTION  # it brings its expression along
        if is_alone:
            kind, expression = header.expressionType, header.subscription or ""
        else:
            subscription = self._subscription(header, group)
            kind, expression = subscription.expressionType, subscription.subString or ""
        if is_tag(kind):
            return tag_filter(expression), None, None
        if kind == WASM:
            return None, None, self._filters.module(expression)
        if is_alone:
            return None, self._filters.of_pull(kind, expression), None
        name, topic = header.consumerGroup, header.topic
        return None, self._filters.of_group(name, topic, kind, header.subVersion), None

    def _subscription(self, header: PullMessageRequest, group: SubscriptionGroup) -> SubscriptionData:
        """What the group's heartbeats said, when nothing forbids that it reads."""
        name, topic = header.consumerGroup, header.topic
        members = self._members.consumer_group(name)
        if members is None:
            remark = f"the consumer's group info not exist{FAQ}"
            raise Refused(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
        if members.is_broadcasting and not group.may_broadcast:
            raise ReadForbidden(f"the consumer group[{name}] can not consume by broadcast way", "4")
        if self._groups.is_forbidden(name, topic):
            raise ReadForbidden(f"the consumer group[{name}] is forbidden for topic[{topic}]", "5")
        subscription = members.subscriptions.get(topic)
        if subscription is None:
            remark = f"the consumer's subscription not exist{FAQ}"
            raise Refused(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
        if subscription.subVersion < header.subVersion:
            raise Refused(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
        return subscription

    def _elsewhere(self, pull: Pull) -> GetResult | None:
        """For a consumer that has to go on from another offset than it asks for: which, and why."""
        offsets, reused, queue = self._offsets, self._reused, pull.queue
        if not offsets.has_resets and not reused.is_active:
            return None
        header = pull.request.header
        group, topic, queue_id = header.consumerGroup, header.topic, header.queueId
        if (offset := offsets.take_reset(group, topic, queue_id)) >= 0:
            reused.set_by_tool(group, topic, queue_id, offset)
            return GetResult(GetStatus.OFFSET_RESET, offset, queue.min_offset, queue.max_offset)
        if header.sysFlag & (PULL_SUBSCRIPTION | PULL_LITE) == PULL_SUBSCRIPTION:
            return None  # a reader that keeps its offsets itself: it may look where it likes
        peer = pull.request.connection
        committed = offsets.query(group, topic, queue_id)
        if not reused.is_void(peer, group, topic, queue_id, pull.offset, committed):
            return None
        back = self._last_safe(pull)
        reused.handed(peer, group, topic, queue_id, back)
        words = "Group %s was beyond what there is now of %s queue %d: back from %d to %d"
        log.warning(words, group, topic, queue_id, pull.offset, back)
        return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, back, queue.min_offset, queue.max_offset)

    def _last_safe(self, pull: Pull) -> int:
        """All before it is handled: what the group has committed, or what this consumer says it has handled,
        as far as that is not void; otherwise nothing."""
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
        if took_ms:  # seldom: messages that had to come from the disk
            self._traffic.waited_to_get(pull.queue, header.consumerGroup, took_ms)
        return result

    def _handed(self, pull: Pull, result: GetResult) -> None:
        """What the group has got, and therefore may speak of."""
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
        pull.parked_at = asyncio.get_running_loop().time()
        self._end_after(pull, max(0, wait_ms) / 1000)
        self._store.log.on_arrival = self.arrived
        if pull.queue.max_offset > pull.offset:  # it arrived while a module was choosing
            self._pass(pull)
        return True

    def _end_after(self, pull: Pull, seconds: float) -> None:
        """Of waiting."""
        if pull.timer is not None:
            pull.timer.cancel()
        pull.timer = asyncio.get_running_loop().call_at(pull.parked_at + seconds, self._finish_parked, pull)

    def _pass(self, pull: Pull) -> None:
        """What arrived is not for this one, but moves it on: it does not wait for the end of its time."""
        pull.is_passed = True
        waited_s = asyncio.get_running_loop().time() - pull.parked_at
        end_s = SWEEP_S * (waited_s // SWEEP_S + 1)
        if pull.timer is not None and pull.parked_at + end_s < pull.timer.when():
            self._end_after(pull, end_s)

    def _finish_parked(self, pull: Pull) -> None:
        """Its time is over."""
        if self._parked.withdraw(pull):
            self._finish(pull)

    def _forget(self, connection: Connection) -> None:
        """It is closed: nobody waits there any more."""
        for pull in self._waiting_on.pop(connection, ()):
            self._parked.withdraw(pull)
            if pull.timer is not None:
                pull.timer.cancel()

    def _answer_woken(self) -> None:
        """Some in each turn of the loop: between them others are served, and the answers are freed that are
        left unread by peers which were given up for that.
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
            if pull.rules != self._rules():  # topics or groups changed meanwhile: may it still read?
                pull = self._checked(pull.request)
            result = self._elsewhere(pull)
            if result is None and pull.module is not None:
                self._beside(pull, self._chosen(pull, pull.module, may_park=False))
                return
            result = result or self._read(pull)
            self._handed(pull, result)
        except Refused as refused:
            pull.request.answer(_refusal(pull.request, refused))
        except NotInMemory as missing:
            self._fetch(pull, missing)
        except OSError as error:  # others wait to be answered after this one
            log.error("A pull of %s cannot be read: %s", pull.queue.topic, error)
            request = pull.request
            request.answer(reply(request.command, ResponseCode.SYSTEM_ERROR, str(error), {}))
        else:
            self._answer(pull, result, _code(result, pull.offset))

    def _fetch(self, pull: Pull, missing: NotInMemory) -> None:
        """Messages of long ago: they come from the disk beside the loop, then it is read again."""
        pull.fetches += 1
        self._beside(pull, self._fetched(pull, missing))

    def _beside(self, pull: Pull, work: Coroutine[None, None, None]) -> None:
        """It is answered later; until then its connection owes an answer."""
        connection = pull.request.connection
        connection.begin(0)
        task = asyncio.get_running_loop().create_task(work)
        self._fetching.add(task)
        task.add_done_callback(self._fetching.discard)
        task.add_done_callback(lambda _: connection.end(0))

    async def _fetched(self, pull: Pull, missing: NotInMemory) -> None:
        began = self._clock.monotonic()
        with contextlib.suppress(OSError):  # reading it says what is wrong
            await self._store.reader.fetch(missing.places)
        took_ms = int((self._clock.monotonic() - began) * 1000)
        self._traffic.waited_to_get(pull.queue, pull.request.header.consumerGroup, took_ms)
        if not pull.request.connection.is_closing:
            self._read_and_answer(pull)

    async def _chosen(self, pull: Pull, module: FilterModule, may_park: bool) -> None:
        """Message by message. A module that fails ends the pull with an error: nothing is passed over."""
        request = pull.request
        try:
            result = await self._module_pulls.choose(
                pull.queue, pull.offset, request.header.maxMsgNums, module
            )
        except (FilterFailed, OSError) as failed:
            request.answer(reply(request.command, ResponseCode.SYSTEM_ERROR, str(failed), {}))
            return
        self._handed(pull, result)
        if request.connection.is_closing:
            return
        if may_park:
            self._park_or_answer(pull, result)
        else:
            self._answer(pull, result, _code(result, pull.offset))

    async def abandon(self) -> None:
        """Nobody is there any more for whom it is fetched."""
        fetching = list(self._fetching)
        for task in fetching:
            task.cancel()
        await asyncio.gather(*fetching, return_exceptions=True)

    def _answer(self, pull: Pull, result: GetResult, code: int) -> None:
        if result.count:
            group = pull.request.header.consumerGroup
            self._traffic.got(pull.queue, group, result.count, result.size, result.next_offset)
        else:
            self._traffic.pulls_missed += 1
        ext = {
            "suggestWhichBrokerId": "0",
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


class ReadForbidden(Refused):
    """No permission, with what it was that forbade (the `forbiddenType` of the answer)."""

    def __init__(self, remark: str, kind: str) -> None:
        super().__init__(ResponseCode.NO_PERMISSION, remark)
        self.kind = kind


def _refusal(request: Request[PullMessageRequest], refused: Refused) -> Command:
    fields = {"forbiddenType": refused.kind} if isinstance(refused, ReadForbidden) else {}
    return reply(request.command, refused.code, refused.remark, fields)


def tag_filter(expression: str) -> Callable[[int], bool] | None:
    """What a consume queue can tell about `A || B`: the hash of a tag. None lets everything pass."""
    return _tag_filter(expression) if len(expression) <= 1024 else _tag_filter.__wrapped__(expression)


@lru_cache(maxsize=1024)
def _tag_filter(expression: str) -> Callable[[int], bool] | None:
    tags = tags_of(expression)
    return frozenset(java_hash(tag) for tag in tags).__contains__ if tags else None


def _code(result: GetResult, asked: int) -> int:
    if result.status in EMPTY and asked != 0:
        return ResponseCode.PULL_OFFSET_MOVED
    return CODES[result.status]
