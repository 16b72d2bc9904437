"""Keeps statistics by topic, queue and group, with the names and keys of Apache's tools (315, 202, 208).

In: every ten seconds, what the store and `traffic.py` counted since. Out: sum, rate and average over the last
minute, hour and day. The windows are Apache's:

    minute   a snapshot every 10 s, 7 kept      first figures 10 s after the first message
    hour     a snapshot every 10 min, 7 kept    first figures after 10 min
    day      a snapshot every hour, 25 kept     first figures after 1 h

Apache takes a snapshot of every item each time. Here only items that changed are touched; the snapshots
between equal the one before and are not kept, so ten thousand idle topics cost nothing. Items of one queue
are dropped when the queue was idle for so long that all its figures are zero.

A thousand groups on fifty queues make 150,000 items: a loop that may touch them all is split into turns, and
only one such loop runs at a time.
"""

import asyncio
import time
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from turbopump.broker.metrics.traffic import Gets, Traffic
from turbopump.broker.storage import Storage
from turbopump.runtime.clock import Clock
from turbopump.store.consume_queue import ConsumeQueue
from turbopump.store.queues import QueueCounts
from turbopump.store.times import record_time

TICK_S = 10.0
QUEUES_PER_TURN = 200  # queues, or groups of queues, that are counted at once: about two milliseconds
ITEMS_PER_TURN = 2000  # items that are only compared or dropped


@dataclass(frozen=True, slots=True)
class SnapshotWindow:
    """Snapshot schedule of a window: ticks of 10 s between two snapshots, and how many are kept."""

    every: int  # ticks between two snapshots
    kept: int


WINDOWS = (SnapshotWindow(1, 7), SnapshotWindow(60, 7), SnapshotWindow(360, 25))
MINUTE, HOUR, DAY = range(3)
EVERY_WINDOW = (1 << len(WINDOWS)) - 1
IDLE_TICKS = WINDOWS[DAY].every * WINDOWS[DAY].kept

BY_TOPIC = ("TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE")
BY_TOPIC_AND_GROUP = ("GROUP_GET_NUMS", "GROUP_GET_SIZE", "SNDBCK_PUT_NUMS")
BY_QUEUE_AND_TOPIC = ("TOPIC_PUT_LATENCY",)
BY_TOPIC_AND_QUEUE = ("QUEUE_PUT_NUMS", "QUEUE_PUT_SIZE")
BY_TOPIC_QUEUE_AND_GROUP = ("QUEUE_GET_NUMS", "QUEUE_GET_SIZE")
BY_QUEUE_TOPIC_AND_GROUP = ("GROUP_GET_LATENCY",)
BY_ONE_QUEUE = (
    *BY_QUEUE_AND_TOPIC,
    *BY_TOPIC_AND_QUEUE,
    *BY_TOPIC_QUEUE_AND_GROUP,
    *BY_QUEUE_TOPIC_AND_GROUP,
)
MOMENTS = ("GROUP_GET_FALL_SIZE", "GROUP_GET_FALL_TIME")
DEAD = "SNDBCK2DLQ_TIMES"
"""Its key is owner@topic@group@type. Only commercial versions have owners; Apache writes `null`."""
DEAD_KEY = "null@{topic}@{group}@SEND_BACK_TO_DLQ"


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of a window: the sum of the values, the sum per second, and the average value per addition."""

    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0


class StatisticsItem:
    """Growing counter with snapshots, from which the figures of each window are computed."""

    __slots__ = ("_born", "_snapshots", "times", "unseen", "value")

    def __init__(self, born: int) -> None:
        """`born` is the number of ticks before this item was created."""
        self.value = 0
        self.times = 0
        self.unseen = 0  # a bit for each window whose last snapshot is older than the value
        self._born = born
        self._snapshots: list[array[int] | None] = [None] * len(WINDOWS)  # number, value, times, number, ...

    def snapshot(self, window: int, number: int) -> None:
        taken = self._snapshots[window]
        if taken is None:
            taken = self._snapshots[window] = array("q")
        taken.extend((number, self.value, self.times))
        if len(taken) > 3 * (WINDOWS[window].kept + 1):
            del taken[:3]

    def figures(self, window: int, number: int) -> Figures:
        """Returns the figures of the window that ends at snapshot `number`; zeros before the first snapshot.

        Where a window reaches back beyond the first snapshot, the value before counts as zero.
        """
        first = self._born // WINDOWS[window].every + 1
        begin = max(first - 1, number - WINDOWS[window].kept + 1)
        if number < first:
            return Figures()
        value, times = self._at(window, number)
        value_before, times_before = self._at(window, begin)
        total, count = value - value_before, times - times_before
        seconds = (number - begin) * WINDOWS[window].every * TICK_S
        return Figures(total, total / seconds, total / count if count else 0.0)

    def is_idle(self, ticks: int) -> bool:
        """Returns whether nothing was added within the longest window, 25 hours, before tick `ticks`."""
        minutes = self._snapshots[MINUTE]
        changed = minutes[-3] if minutes else self._born
        return not self.unseen and ticks - changed > IDLE_TICKS

    def _at(self, window: int, number: int) -> tuple[int, int]:
        taken = self._snapshots[window] or ()
        for at in range(len(taken) - 3, -1, -3):
            if taken[at] <= number:
                return taken[at + 1], taken[at + 2]
        return 0, 0


@dataclass(frozen=True, slots=True)
class DailyTotals:
    """Messages since the start, as of now, last midnight and the one before; no system topics."""

    now: int = 0
    this_morning: int = 0
    yesterday_morning: int = 0


class Statistics:
    """Table of statistics. Await `fold` before reading totals; other figures are as of the last tick."""

    def __init__(
        self, cluster: str, clock: Clock, traffic: Traffic, store: Storage, is_system: Callable[[str], bool]
    ) -> None:
        """`is_system` returns whether a topic is one of the broker's own, which daily totals leave out."""
        self._cluster = cluster
        self._clock = clock
        self._traffic = traffic
        self._store = store
        self._is_system = is_system
        self._table: defaultdict[str, dict[str, StatisticsItem]] = defaultdict(dict)
        self._reached: dict[tuple[int, str, str], tuple[ConsumeQueue, int]] = {}
        self.dead_letters: Counter[tuple[str, str]] = Counter()  # group and topic -> how many
        self.on_puts: Callable[[QueueCounts], None] | None = None
        self.on_topic_gone: Callable[[str], None] | None = None
        self._changed: list[list[StatisticsItem]] = [[] for _ in WINDOWS]
        self._walk = asyncio.Lock()
        self._ticks = 0
        self._day = self._today()
        self._put_mornings = self._get_mornings = (0, 0)  # today's, yesterday's

    # reading

    def view(self, name: str, key: str) -> tuple[Figures, Figures, Figures] | None:
        """Returns a statistic's figures of the last minute, hour and day; None when nothing was counted."""
        if name in MOMENTS:
            return self._moment(name, key)
        item = self._table[name].get(key) if name in self._table else None
        if item is None:
            return None
        minute, hour, day = (item.figures(window, self._taken(window)) for window in (MINUTE, HOUR, DAY))
        return minute, hour, day

    def topic_put_tps(self, topic: str) -> float:
        return self._minute_tps("TOPIC_PUT_NUMS", topic)

    def group_get_tps(self, group: str, topic: str) -> float:
        return self._minute_tps("GROUP_GET_NUMS", f"{topic}@{group}")

    def totals(self, name: str) -> dict[str, int]:
        """Returns the totals of statistic `name` since the start, by key, such as topic or topic@group."""
        return {key: item.value for key, item in self._table[name].items()}

    @property
    def put_total(self) -> DailyTotals:
        return DailyTotals(self._total("BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC"), *self._put_mornings)

    @property
    def get_total(self) -> DailyTotals:
        return DailyTotals(self._total("BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC"), *self._get_mornings)

    # counting

    async def fold(self) -> None:
        """Adds to the statistics what the store and `Traffic` have counted since the last call.

        Its cost grows with the number of busy queues.
        """
        async with self._walk:
            await self._fold()

    async def forget_topic(self, topic: str) -> None:
        """Removes the statistics of a topic."""
        async with self._walk:
            await self._fold()
            for name in BY_TOPIC:
                self._table[name].pop(topic, None)
            begin, end, amid = f"{topic}@", f"@{topic}", f"@{topic}@"
            for name in (*BY_TOPIC_AND_GROUP, *BY_TOPIC_AND_QUEUE, *BY_TOPIC_QUEUE_AND_GROUP):
                await self._drop(name, lambda key, _: key.startswith(begin))
            for name in BY_QUEUE_AND_TOPIC:
                await self._drop(name, lambda key, _: key.endswith(end))
            for name in BY_QUEUE_TOPIC_AND_GROUP:
                await self._drop(name, lambda key, _: amid in key)
            self._reached = {key: value for key, value in self._reached.items() if key[1] != topic}
        if self.on_topic_gone is not None:
            self.on_topic_gone(topic)

    async def forget_group(self, group: str) -> None:
        """Removes the statistics of a group."""
        async with self._walk:
            await self._fold()
            end = f"@{group}"
            for name in (*BY_TOPIC_AND_GROUP, *BY_TOPIC_QUEUE_AND_GROUP, *BY_QUEUE_TOPIC_AND_GROUP):
                await self._drop(name, lambda key, _: key.endswith(end))
            self._reached = {key: value for key, value in self._reached.items() if key[2] != group}

    async def watch(self) -> None:
        """Calls `tick` once for each ten seconds that have passed; runs until cancelled."""
        began, ticks = self._clock.monotonic(), 0
        while True:
            await self._clock.sleep(TICK_S)
            passed = round((self._clock.monotonic() - began) / TICK_S)
            for _ in range(ticks, passed):  # more than one when the loop was blocked
                await self.tick()
            ticks = passed

    async def tick(self) -> None:
        """Counts one more tick of ten seconds: folds counts in and takes the snapshots that are due."""
        async with self._walk:
            await self._fold()
            ticks = self._ticks + 1
            for window, rule in enumerate(WINDOWS):
                if ticks % rule.every == 0:
                    await self._take_snapshots(window, ticks // rule.every)
            self._ticks = ticks  # set last: readers use the new snapshots only when all are taken
            if ticks % WINDOWS[DAY].every == 0:
                await self._drop_idle()
            self._traffic.forget_deleted()
        today = self._today()
        if today != self._day:
            self._day = today
            self._put_mornings = self.put_total.now, self._put_mornings[0]
            self._get_mornings = self.get_total.now, self._get_mornings[0]

    # internals

    async def _fold(self) -> None:
        traffic = self._traffic
        for count, puts in enumerate(self._store.queues.take_counts(), 1):
            queue, messages, size = puts
            times = messages - traffic.together.pop(queue, 0)
            self._count_puts(queue, messages, size, times, traffic.slow_ms.pop(queue, 0))
            if self.on_puts is not None:
                self.on_puts(puts)
            if count % QUEUES_PER_TURN == 0:
                await asyncio.sleep(0)
        self._count_returned()
        for count, ((queue, group), gets) in enumerate(traffic.take_gets().items(), 1):
            self._count_gets(queue, group, gets)
            if count % QUEUES_PER_TURN == 0:
                await asyncio.sleep(0)

    async def _take_snapshots(self, window: int, number: int) -> None:
        changed, self._changed[window] = self._changed[window], []
        for count, item in enumerate(changed, 1):
            item.snapshot(window, number)
            item.unseen &= ~(1 << window)
            if count % ITEMS_PER_TURN == 0:
                await asyncio.sleep(0)

    async def _drop_idle(self) -> None:
        for name in BY_ONE_QUEUE:
            await self._drop(name, lambda _, item: item.is_idle(self._ticks))
        latencies = self._table["GROUP_GET_LATENCY"]
        self._reached = {
            key: value for key, value in self._reached.items() if "{}@{}@{}".format(*key) in latencies
        }

    def _count_gets(self, queue: ConsumeQueue, group: str, gets: Gets) -> None:
        topic, queue_id = queue.topic, queue.queue_id
        for name, value in (("NUMS", gets.messages), ("SIZE", gets.size)):
            self._add(f"GROUP_GET_{name}", f"{topic}@{group}", value, gets.pulls)
            self._add(f"QUEUE_GET_{name}", f"{topic}@{queue_id}@{group}", value, gets.pulls)
        self._add("GROUP_GET_LATENCY", f"{queue_id}@{topic}@{group}", gets.milliseconds, gets.pulls)
        self._add_to_broker("GET", topic, gets.messages)
        if gets.pulls:
            self._reached[queue_id, topic, group] = queue, gets.next_offset

    def _count_puts(self, queue: ConsumeQueue, messages: int, size: int, times: int, slow_ms: int) -> None:
        topic, queue_id = queue.topic, queue.queue_id
        for name, value in (("NUMS", messages), ("SIZE", size)):
            self._add(f"TOPIC_PUT_{name}", topic, value, times)
            self._add(f"QUEUE_PUT_{name}", f"{topic}@{queue_id}", value, times)
        self._add("TOPIC_PUT_LATENCY", f"{queue_id}@{topic}", slow_ms, times)
        self._add_to_broker("PUT", topic, messages)

    def _count_returned(self) -> None:
        returned, dead = self._traffic.sent_back, self._traffic.dead_letters
        for (group, topic), count in returned.items():
            self._add("SNDBCK_PUT_NUMS", f"{topic}@{group}", count, count)
        for (group, topic), count in dead.items():
            self._add(DEAD, DEAD_KEY.format(topic=topic, group=group), count, count)
        self.dead_letters.update(dead)
        returned.clear()
        dead.clear()

    def _add_to_broker(self, verb: str, topic: str, messages: int) -> None:
        self._add(f"BROKER_{verb}_NUMS", self._cluster, messages, 0)
        if not self._is_system(topic):
            self._add(f"BROKER_{verb}_NUMS_WITHOUT_SYSTEM_TOPIC", self._cluster, messages, 0)

    def _add(self, name: str, key: str, value: int, times: int) -> None:
        items = self._table[name]
        item = items.get(key)
        if item is None:
            item = items[key] = StatisticsItem(self._ticks)
        item.value += value
        item.times += times
        if item.unseen != EVERY_WINDOW:
            for window, changed in enumerate(self._changed):
                if not item.unseen >> window & 1:
                    changed.append(item)
            item.unseen = EVERY_WINDOW

    def _moment(self, name: str, key: str) -> tuple[Figures, Figures, Figures] | None:
        """Returns how far a group's last pull of a queue is behind, bytes or ms by `name`; None if unknown.

        Apache only logs these figures.
        """
        queue_id, _, rest = key.partition("@")
        topic, _, group = rest.partition("@")
        found = self._reached.get((int(queue_id), topic, group)) if queue_id.isdecimal() else None
        if found is None:
            return None
        size, milliseconds = self._behind(*found)
        now = Figures(size if name == "GROUP_GET_FALL_SIZE" else milliseconds)
        return now, now, now

    def _behind(self, queue: ConsumeQueue, offset: int) -> tuple[int, int]:
        """Returns bytes of log and ms since the message at this queue offset; (0, 0) without a message."""
        entry = queue.entry(offset)
        if entry is None:
            return 0, 0
        stored_ms = record_time(self._store.log, entry[0])
        return self._store.log.end - entry[0], self._clock.now_ms() - stored_ms

    async def _drop(self, name: str, matches: Callable[[str, StatisticsItem], bool]) -> None:
        items = self._table[name]
        for count, key in enumerate(list(items), 1):
            if matches(key, items[key]):
                del items[key]
            if count % ITEMS_PER_TURN == 0:
                await asyncio.sleep(0)

    def _minute_tps(self, name: str, key: str) -> float:
        item = self._table[name].get(key)
        return item.figures(MINUTE, self._taken(MINUTE)).tps if item is not None else 0.0

    def _total(self, name: str) -> int:
        item = self._table[name].get(self._cluster)
        return item.value if item is not None else 0

    def _taken(self, window: int) -> int:
        return self._ticks // WINDOWS[window].every

    def _today(self) -> int:
        return time.localtime(self._clock.now_ms() / 1000).tm_yday
