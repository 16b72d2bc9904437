"""How much goes in and out: totals, and rates over the last 10, 60 and 600 seconds.

In: counts, added by whoever sends and pulls (plain additions: this is the hot path). Out: the numbers that
tools show. One sample a second is kept; nothing else is remembered.
"""

import bisect
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from turbopump.runtime.clock import Clock

WINDOWS_S = (10, 60, 600)
SAMPLE_S = 1.0

SLOWER_THAN_MS = (0, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10_000)
BUCKETS = (
    *("[<=0ms]", "[0~10ms]", "[10~50ms]", "[50~100ms]", "[100~200ms]", "[200~500ms]", "[500ms~1s]"),
    *("[1~2s]", "[2~3s]", "[3~4s]", "[4~5s]", "[5~10s]", "[10s~]"),
)


@dataclass(frozen=True, slots=True)
class Sample:
    at: float
    put: int
    got: int
    found: int
    missed: int


class Traffic:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.booted_ms = clock.now_ms()
        self.put_messages = 0
        self.put_bytes = 0
        self.put_failures = 0
        self.got_messages = 0
        self.pulls_found = 0
        self.pulls_missed = 0
        self.slowest_put_ms = 0
        self.puts_by_time = [0] * len(BUCKETS)
        self.put_total_yesterday = self.put_total_this_morning = 0
        self.got_total_yesterday = self.got_total_this_morning = 0
        self._day = self._today()
        self._samples: deque[Sample] = deque([self._sample()], maxlen=WINDOWS_S[-1] + 1)

    def took(self, milliseconds: int) -> None:
        """How long one append took, whatever it held."""
        if not milliseconds:  # nearly always
            self.puts_by_time[0] += 1
            return
        self.slowest_put_ms = max(self.slowest_put_ms, milliseconds)
        self.puts_by_time[bisect.bisect_left(SLOWER_THAN_MS, milliseconds)] += 1

    def sample(self) -> None:
        self._samples.append(self._sample())
        today = self._today()
        if today != self._day:
            self._day = today
            self.put_total_yesterday, self.put_total_this_morning = (
                self.put_total_this_morning,
                self.put_messages,
            )
            self.got_total_yesterday, self.got_total_this_morning = (
                self.got_total_this_morning,
                self.got_messages,
            )

    async def watch(self) -> None:
        """Runs until cancelled."""
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
        """Three numbers. A broker younger than a window gives the rate since it started."""
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

    def _today(self) -> int:
        return time.localtime(self._clock.now_ms() / 1000).tm_yday
