"""Statistics by topic, queue and group, under the names and keys that Apache's tools ask for (315, 202, 208).

In: every ten seconds, what the store and `traffic.py` counted since. Out: sum, rate and average over the last
minute, hour and day. The windows are Apache's:

    minute   one snapshot each 10 s, 7 kept     so it says something 10 s after the first message,
    hour     one each 10 min, 7 kept            an hour 10 min after it, a day 1 h after it
    day      one each hour, 25 kept

Apache takes a snapshot of every item each time. Here only items that changed are touched; the snapshots
between are the same as the one before and are not kept, so ten thousand quiet topics cost nothing.
"""

import time
from bisect import bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass

from turbopump.broker.traffic import Traffic
from turbopump.runtime.clock import Clock
from turbopump.store.store import ConsumeQueue, Puts, Store
from turbopump.store.times import record_time

TICK_S = 10.0


@dataclass(frozen=True, slots=True)
class Window:
    every: int  # ticks between two snapshots
    kept: int


WINDOWS = (Window(1, 7), Window(60, 7), Window(360, 25))
MINUTE, HOUR, DAY = range(3)

BY_TOPIC = ("TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE")
BY_TOPIC_AND_GROUP = ("GROUP_GET_NUMS", "GROUP_GET_SIZE", "SNDBCK_PUT_NUMS")
BY_QUEUE_AND_TOPIC = ("TOPIC_PUT_LATENCY",)
BY_TOPIC_AND_QUEUE = ("QUEUE_PUT_NUMS", "QUEUE_PUT_SIZE")
BY_TOPIC_QUEUE_AND_GROUP = ("QUEUE_GET_NUMS", "QUEUE_GET_SIZE")
BY_QUEUE_TOPIC_AND_GROUP = ("GROUP_GET_LATENCY",)
MOMENTS = ("GROUP_GET_FALL_SIZE", "GROUP_GET_FALL_TIME")
DEAD = "SNDBCK2DLQ_TIMES"
"""owner@topic@group@type. The owner is a word of commercial versions; Apache's text without one is `null`."""
DEAD_KEY = "null@{topic}@{group}@SEND_BACK_TO_DLQ"


@dataclass(frozen=True, slots=True)
class Figures:
    """What happened in a window: the sum of values, per second, and per time that something was added."""

    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0


Snapshot = tuple[int, int, int]
"""Number of the snapshot, value, times."""


class Item:
    """One number that grows, and what it was when snapshots were taken of it."""

    __slots__ = ("_first", "_snapshots", "times", "value")

    def __init__(self, taken: tuple[int, ...]) -> None:
        """`taken`: how many snapshots each window has had before this item."""
        self.value = 0
        self.times = 0
        self._first = tuple(number + 1 for number in taken)
        self._snapshots: tuple[deque[Snapshot], ...] = tuple(
            deque(maxlen=window.kept + 1) for window in WINDOWS
        )

    def snapshot(self, window: int, number: int) -> None:
        self._snapshots[window].append((number, self.value, self.times))

    def figures(self, window: int, number: int) -> Figures:
        """As of snapshot `number`. Before the first there is one of zero."""
        first = self._first[window]
        begin = max(first - 1, number - WINDOWS[window].kept + 1)
        if number < first:
            return Figures()
        value, times = self._at(window, number)
        value_before, times_before = self._at(window, begin)
        total, count = value - value_before, times - times_before
        seconds = (number - begin) * WINDOWS[window].every * TICK_S
        return Figures(total, total / seconds, total / count if count else 0.0)

    def _at(self, window: int, number: int) -> tuple[int, int]:
        snapshots = self._snapshots[window]
        found = bisect_right(snapshots, number, key=lambda snapshot: snapshot[0])
        return snapshots[found - 1][1:] if found else (0, 0)


@dataclass(frozen=True, slots=True)
class Daily:
    """Messages since the start, and what that was at the last two midnights; system topics do not count."""

    now: int = 0
    this_morning: int = 0
    yesterday_morning: int = 0


class Statistics:
    def __init__(
        self, cluster: str, clock: Clock, traffic: Traffic, store: Store, is_system: Callable[[str], bool]
    ) -> None:
        """`is_system`: whether a topic is one of the broker's own, which daily totals leave out."""
        self._cluster = cluster
        self._clock = clock
        self._traffic = traffic
        self._store = store
        self._is_system = is_system
        self._table: defaultdict[str, dict[str, Item]] = defaultdict(dict)
        self._reached: dict[tuple[int, str, str], tuple[ConsumeQueue, int]] = {}
        self.dead_letters: Counter[tuple[str, str]] = Counter()  # group and topic -> how many
        self.on_puts: Callable[[Puts], None] | None = None
        self.on_topic_gone: Callable[[str], None] | None = None
        self._changed: tuple[set[Item], ...] = tuple(set() for _ in WINDOWS)
        self._ticks = 0
        self._day = self._today()
        self._put_mornings = self._get_mornings = (0, 0)  # today's, yesterday's

    # asking

    def view(self, name: str, key: str) -> tuple[Figures, Figures, Figures] | None:
        """Of the last minute, hour and day; None when nothing of that name was ever counted."""
        self.fold()
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
        """Everything counted under a name since the start, by key."""
        self.fold()
        return {key: item.value for key, item in self._table[name].items()}

    @property
    def put_total(self) -> Daily:
        self.fold()
        return Daily(self._total("BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC"), *self._put_mornings)

    @property
    def get_total(self) -> Daily:
        self.fold()
        return Daily(self._total("BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC"), *self._get_mornings)

    # counting

    def fold(self) -> None:
        """Takes what was counted since the last time. Costs as much as there are busy queues."""
        traffic = self._traffic
        for puts in self._store.puts():
            queue, messages, size = puts
            times = messages - traffic.together.pop(queue, 0)
            self._count_puts(queue, messages, size, times, traffic.slow_ms.pop(queue, 0))
            if self.on_puts is not None:
                self.on_puts(puts)
        self._count_returned()
        for (queue, group), gets in traffic.take_gets().items():
            topic, queue_id = queue.topic, queue.queue_id
            for name, value in (("NUMS", gets.messages), ("SIZE", gets.size)):
                self._add(f"GROUP_GET_{name}", f"{topic}@{group}", value, gets.pulls)
                self._add(f"QUEUE_GET_{name}", f"{topic}@{queue_id}@{group}", value, gets.pulls)
            self._add("GROUP_GET_LATENCY", f"{queue_id}@{topic}@{group}", gets.milliseconds, gets.pulls)
            self._add_to_broker("GET", topic, gets.messages)
            if gets.pulls:
                self._reached[queue_id, topic, group] = queue, gets.next_offset

    def forget_topic(self, topic: str) -> None:
        self.fold()
        for name in BY_TOPIC:
            self._table[name].pop(topic, None)
        for name in (*BY_TOPIC_AND_GROUP, *BY_TOPIC_AND_QUEUE, *BY_TOPIC_QUEUE_AND_GROUP):
            self._drop(name, lambda key: key.startswith(f"{topic}@"))
        for name in BY_QUEUE_AND_TOPIC:
            self._drop(name, lambda key: key.endswith(f"@{topic}"))
        for name in BY_QUEUE_TOPIC_AND_GROUP:
            self._drop(name, lambda key: f"@{topic}@" in key)
        self._reached = {key: value for key, value in self._reached.items() if key[1] != topic}
        if self.on_topic_gone is not None:
            self.on_topic_gone(topic)

    def forget_group(self, group: str) -> None:
        self.fold()
        for name in (*BY_TOPIC_AND_GROUP, *BY_TOPIC_QUEUE_AND_GROUP, *BY_QUEUE_TOPIC_AND_GROUP):
            self._drop(name, lambda key: key.endswith(f"@{group}"))
        self._reached = {key: value for key, value in self._reached.items() if key[2] != group}

    async def watch(self) -> None:
        """Runs until cancelled."""
        while True:
            await self._clock.sleep(TICK_S)
            self.tick()

    def tick(self) -> None:
        """Ten seconds are over."""
        self.fold()
        self._ticks += 1
        for window, changed in enumerate(self._changed):
            if self._ticks % WINDOWS[window].every == 0:
                for item in changed:
                    item.snapshot(window, self._taken(window))
                changed.clear()
        today = self._today()
        if today != self._day:
            self._day = today
            self._put_mornings = self.put_total.now, self._put_mornings[0]
            self._get_mornings = self.get_total.now, self._get_mornings[0]

    # inside

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
            item = items[key] = Item(tuple(map(self._taken, range(len(WINDOWS)))))
        item.value += value
        item.times += times
        for changed in self._changed:
            changed.add(item)

    def _moment(self, name: str, key: str) -> tuple[Figures, Figures, Figures] | None:
        """Apache only logs these; here one can ask for how far behind a group's last pull of a queue was."""
        queue_id, _, rest = key.partition("@")
        topic, _, group = rest.partition("@")
        found = self._reached.get((int(queue_id), topic, group)) if queue_id.isdecimal() else None
        if found is None:
            return None
        size, milliseconds = self._behind(*found)
        now = Figures(size if name == "GROUP_GET_FALL_SIZE" else milliseconds)
        return now, now, now

    def _behind(self, queue: ConsumeQueue, offset: int) -> tuple[int, int]:
        """Bytes of the log and milliseconds since the message at this offset; zeros when there is none."""
        entry = queue.entry(offset)
        if entry is None:
            return 0, 0
        stored_ms = record_time(self._store.log, entry[0])
        return self._store.max_offset - entry[0], self._clock.now_ms() - stored_ms

    def _drop(self, name: str, matches: Callable[[str], bool]) -> None:
        items = self._table[name]
        for key in [key for key in items if matches(key)]:
            del items[key]

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
