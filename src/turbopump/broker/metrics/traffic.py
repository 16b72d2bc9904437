"""Counts messages that sends and pulls transfer, with rates over 10, 60 and 600 seconds.

In: counts added by the send and pull handlers: plain additions per read event or pull, because this is the
hot path (the store already knows how many messages each queue got). Out: the numbers that tools show, and
what `statistics.py` takes every ten seconds to keep by topic and group. One sample per second is kept for the
rates.
"""

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from turbopump.runtime.clock import Clock
from turbopump.store.consume_queue import ConsumeQueue

WINDOWS_S = (10, 60, 600)
SAMPLE_S = 1.0
DISTRIBUTION_S = 60

BUCKETS_FROM_MS = (1, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10_000)
BUCKETS = (
    *("[<=0ms]", "[0~10ms]", "[10~50ms]", "[50~100ms]", "[100~200ms]", "[200~500ms]", "[500ms~1s]"),
    *("[1~2s]", "[2~3s]", "[3~4s]", "[4~5s]", "[5~10s]", "[10s~]"),
)


@dataclass(frozen=True, slots=True)
class Sample:
    """Totals of messages and pulls at one moment, from which rates are computed."""

    at: float
    put: int
    got: int
    found: int
    missed: int


class Gets:
    """Counts of what one group pulled from one queue since `take_gets` was last called."""

    __slots__ = ("messages", "milliseconds", "next_offset", "pulls", "size")

    def __init__(self) -> None:
        self.messages = 0
        self.size = 0
        self.pulls = 0
        self.milliseconds = 0
        self.next_offset = 0


class Traffic:
    """Counters of sends and pulls; `put_messages` returns the number of messages stored since the start."""

    def __init__(self, clock: Clock, put_messages: Callable[[], int] = lambda: 0) -> None:
        self._clock = clock
        self._put_messages = put_messages
        self.booted_ms = clock.now_ms()
        self.put_failures = 0
        self.got_messages = 0
        self.pulls_found = 0
        self.pulls_missed = 0
        self.slowest_put_ms = 0
        self.slowest_get_ms = 0
        self._gets: dict[tuple[ConsumeQueue, str], Gets] = {}
        self.slow_ms: Counter[ConsumeQueue] = Counter()  # time of puts that took a millisecond or more
        self.sent_back: Counter[tuple[str, str]] = Counter()  # group and topic -> messages sent back
        self.dead_letters: Counter[tuple[str, str]] = Counter()  # group and topic -> dead letters
        self.together: Counter[ConsumeQueue] = Counter()  # messages that came with another in one request
        self._put_times: Counter[int] = Counter()  # milliseconds -> messages, in this minute
        self._put_times_before: Counter[int] | None = None  # in the minute before
        self._put_times_past: Counter[int] = Counter()  # in all minutes before this one
        self._minute_began = clock.monotonic()
        self._samples: deque[Sample] = deque([self._sample()], maxlen=WINDOWS_S[-1] + 1)

    # counting

    def took(self, milliseconds: int, queues: Sequence[ConsumeQueue]) -> None:
        """Records the time to store one message in each of these queues, until it could be acknowledged."""
        self._put_times[milliseconds] += len(queues)
        if milliseconds > 0:  # rare, unless sends wait for the disk
            self.slowest_put_ms = max(self.slowest_put_ms, milliseconds)
            for queue in queues:
                self.slow_ms[queue] += milliseconds

    def got(self, queue: ConsumeQueue, group: str, messages: int, size: int, next_offset: int) -> None:
        """Counts a group's pull that found `messages` messages of `size` bytes together."""
        self.pulls_found += 1
        self.got_messages += messages
        gets = self._gets.get((queue, group))
        if gets is None:
            gets = self._gets[queue, group] = Gets()
        gets.messages += messages
        gets.size += size
        gets.pulls += 1
        gets.next_offset = next_offset

    def waited_to_get(self, queue: ConsumeQueue, group: str, milliseconds: int) -> None:
        """Records the time of a pull that took a millisecond or more to read."""
        self.slowest_get_ms = max(self.slowest_get_ms, milliseconds)
        self._gets.setdefault((queue, group), Gets()).milliseconds += milliseconds

    def take_gets(self) -> dict[tuple[ConsumeQueue, str], Gets]:
        taken, self._gets = self._gets, {}
        return taken

    def forget_deleted(self) -> None:
        """Drops counts of deleted queues, left when a queue is deleted while a put waits for the disk."""
        for counts in (self.slow_ms, self.together):
            for queue in [queue for queue in counts if queue.is_deleted]:
                del counts[queue]

    # reading

    @property
    def put_messages(self) -> int:
        return self._put_messages()

    @property
    def puts_by_time(self) -> list[int]:
        """Messages by time to store, one count per bucket of BUCKETS, in the last full minute.

        Before the first full minute has passed, in this minute.
        """
        counts = [0] * len(BUCKETS)
        for milliseconds, messages in self._recent_times().items():
            counts[bisect_right(BUCKETS_FROM_MS, milliseconds)] += messages
        return counts

    @property
    def put_times(self) -> Counter[int]:
        """Counter of messages since the start, by the milliseconds that it took to store them."""
        return self._put_times_past + self._put_times

    def put_latency_ms(self, share: float) -> int:
        """Returns the ms within which this share, 0 to 1, of the last full minute's messages was stored."""
        times = self._recent_times()
        left = times.total() * share
        for milliseconds in sorted(times):
            left -= times[milliseconds]
            if left <= 0:
                return milliseconds
        return 0

    def _recent_times(self) -> Counter[int]:
        return self._put_times if self._put_times_before is None else self._put_times_before

    def sample(self) -> None:
        self._samples.append(self._sample())
        if self._samples[-1].at - self._minute_began >= DISTRIBUTION_S:
            self._minute_began = self._samples[-1].at
            self._put_times_before, self._put_times = self._put_times, Counter()
            self._put_times_past.update(self._put_times_before)

    async def watch(self) -> None:
        """Takes a sample of the totals every second, for the rates; runs until cancelled."""
        while True:
            await self._clock.sleep(SAMPLE_S)
            self.sample()

    def put_rates(self) -> str:
        return self._rates(lambda sample: sample.put)

    def got_rates(self) -> str:
        return self._rates(lambda sample: sample.got)

    def found_rates(self) -> str:
        return self._rates(lambda sample: sample.found)

    def missed_rates(self) -> str:
        return self._rates(lambda sample: sample.missed)

    def pull_rates(self) -> str:
        return self._rates(lambda sample: sample.found + sample.missed)

    def _rates(self, count: Callable[[Sample], int]) -> str:
        """Returns as text the rates per second over 10, 60 and 600 s; shorter if the broker is younger."""
        last = self._samples[-1]
        rates = []
        for window in WINDOWS_S:
            first = self._samples[max(0, len(self._samples) - 1 - window)]
            seconds = last.at - first.at
            rates.append((count(last) - count(first)) / seconds if seconds > 0 else 0.0)
        return " ".join(f"{rate:.2f}" for rate in rates)

    def _sample(self) -> Sample:
        return Sample(
            self._clock.monotonic(), self.put_messages, self.got_messages, self.pulls_found, self.pulls_missed
        )
