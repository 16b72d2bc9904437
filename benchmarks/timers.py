"""Measures a million timers, from a millisecond to 400 days: their cost, and that each fires exactly once.

`python -m benchmarks.timers [--messages N]`: the store and the timers of a broker on this machine's disk with
a virtual clock, which skips the time in which nothing is due. The logarithms of the delays are distributed
evenly. Several times the broker is stopped or killed and restarted from its files. Then as many timers that
are all due within one minute. All times are CPU time of the process, all threads included.

    put     from the queue of timers into the wheel fired   out of the wheel into the topic, timers that are
    rolled over included; spread over 400 days most are
            alone in their millisecond and need an append and a turn of the loop each
    start   reading the timer log while all of them wait
    memory  growth of the process's own memory (RssAnon)
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from turbopump.broker.acknowledgement import choose
from turbopump.broker.config import BrokerIdentity, TimerRules, TopicRules
from turbopump.broker.delay import timers
from turbopump.broker.delay.timer_intake import TimerIntake
from turbopump.broker.delay.timers import FILE, TimedMessages
from turbopump.broker.metrics.traffic import Traffic
from turbopump.broker.produce.writer import MessageWriter
from turbopump.broker.topics import Topic, TopicTable
from turbopump.protocol import properties
from turbopump.protocol.names import TIMER_TOPIC
from turbopump.runtime.disk import SystemDisk, SystemWorkers
from turbopump.store.append import Draft
from turbopump.store.config import StoreConfig
from turbopump.store.config_files import ConfigFiles
from turbopump.store.store import Store
from turbopump.testing.loop import VirtualClock, run_virtual

from . import report
from .__main__ import write_results
from .compare import print_now

DAY_MS = 86_400_000
MAX_DELAY_MS = 400 * DAY_MS
TOPIC = "T"
SAVE_INTERVAL_S = 86_400.0
LIVES_END_AFTER_DAYS = (0.001, 0.01, 1, 30, 150)  # stopped and killed in turns
WINDOW_DAYS = 13


class Life:
    """The parts of a broker that matter here, from opening to a stop or a kill."""

    def __init__(self, root: str, clock: VirtualClock) -> None:
        self.clock = clock
        self.disk, self.workers = SystemDisk(), SystemWorkers()
        config = StoreConfig(root_dir=root, commit_log_file_size=1 << 28, index_enabled=False)
        self.store = Store.open(config, self.disk, clock, self.workers)
        topics = TopicTable(TopicRules(), BrokerIdentity(broker_name="a"), clock)
        topics.update(Topic(TOPIC, 1, 1), {})
        files = ConfigFiles(config.config_dir, self.disk)
        rules = TimerRules(roll_window_slots=WINDOW_DAYS * 86_400)
        self.timing = TimerIntake(self.store, lambda: rules, "a", clock, rules.precision_ms)
        acknowledgement = choose(config, self.store.flusher)
        writer = MessageWriter(self.store.log, self.store.compiled, acknowledgement, Traffic(clock), clock)
        self.timers = TimedMessages(
            self.store, topics, writer, files.save, self.workers, clock, self.disk, rules
        )
        files.load(FILE, lambda data: self.timers.load(data) >= 0)
        self.timers.open()
        self.timing.on_postponed = self.timers.postponed

    async def start(self) -> float:
        """Starts the timers; returns the CPU seconds until they are ready."""
        self.store.flusher.start()
        began = time.process_time()
        self.tasks = [
            asyncio.create_task(self.timers.run()),
            asyncio.create_task(self.timers.keep(SAVE_INTERVAL_S)),
        ]
        while not self.timers._is_ready:  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.001)
        return time.process_time() - began

    async def end(self, killed: bool) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        if killed:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            self.store.commit_log.close()
            self.store._lock.release()
        else:
            await self.timers.close()
            await self.store.close()
        self.workers.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.timers", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=128, help="bytes of a body")
    options = parser.parse_args()
    timers.MAX_PAUSE_S = 86_400.0  # the virtual clock is never set
    row: dict[str, Any] = {}
    for measure in (spread, together):
        root = tempfile.mkdtemp(prefix="timers-")
        try:
            row |= run_virtual(measure(root, options.messages, options.size))
        finally:
            shutil.rmtree(root)
    print_now(str(row))
    write_results("timers", {"machine": report.machine(), "rows": [row]}, markdown(row))


async def spread(root: str, messages: int, size: int) -> dict[str, Any]:
    clock, chance = VirtualClock(), random.Random(1)
    life = Life(root, clock)
    before_mib = memory_mib()
    began_ms = clock.now_ms()
    due_ms = [began_ms + int(MAX_DELAY_MS ** chance.random()) for _ in range(messages)]
    send(life, due_ms, bytes(size - 8))
    await life.store.upkeep.take_checkpoint()
    sent_mib = memory_mib()
    put_s = await life.start()
    waiting_mib = memory_mib()
    fired_s, starts = 0.0, []
    for number, days in enumerate((*LIVES_END_AFTER_DAYS, MAX_DELAY_MS / DAY_MS + 1)):
        began = time.process_time()
        await asyncio.sleep((began_ms + days * DAY_MS - clock.now_ms()) / 1000)
        fired_s += time.process_time() - began
        print_now(
            f"day {(clock.now_ms() - began_ms) / DAY_MS:.4f}: {delivered(life.store):,} of {messages:,}"
        )
        await life.end(killed=number % 2 == 1)
        life = Life(root, clock)
        starts.append(await life.start())
    row = judged(life.store, due_ms)
    rolled = life.store.queues.queue(TIMER_TOPIC, 0).max_offset - messages
    await life.end(killed=False)
    return {
        "messages": messages,
        "rolled": rolled,
        "put_us": put_s / messages * 1e6,
        "fired_us": fired_s / (messages + rolled) * 1e6,
        "first_start_s": starts[0],
        "waiting_mib": waiting_mib - sent_mib,
        "sending_mib": sent_mib - before_mib,
        "lives": len(LIVES_END_AFTER_DAYS) + 1,
        **row,
    }


async def together(root: str, messages: int, size: int) -> dict[str, Any]:
    """Measures timers that are all due within a minute, so that many are appended together."""
    clock, chance = VirtualClock(), random.Random(1)
    life = Life(root, clock)
    first_ms = clock.now_ms() + 3_600_000
    due_ms = [first_ms + chance.randrange(60_000) for _ in range(messages)]
    send(life, due_ms, bytes(size - 8))
    await life.store.upkeep.take_checkpoint()
    put_s = await life.start()
    began = time.process_time()
    await asyncio.sleep((first_ms + 120_000 - clock.now_ms()) / 1000)
    fired_s = time.process_time() - began
    judgement = judged(life.store, due_ms)
    await life.end(killed=False)
    assert (judgement["missing"], judgement["twice"], judgement["early"]) == (0, 0, 0), judgement
    return {"together_put_us": put_s / messages * 1e6, "together_fired_us": fired_s / messages * 1e6}


def send(life: Life, due_ms: list[int], filling: bytes) -> None:
    for number, due in enumerate(due_ms):
        pairs = {properties.UNIQUE_KEY: f"{number:032d}", properties.TIMER_DELIVER_MS: str(due)}
        postponed = life.timing.postpone(pairs, TOPIC, 0)
        queue = postponed.queue if postponed is not None else life.store.queues.queue(TOPIC, 0)
        exact = postponed.suffix if postponed is not None else b""
        packed = properties.pack(pairs).encode() + exact
        body = number.to_bytes(8, "big") + filling
        life.store.log.append([Draft(queue, body, packed, 0, 0, life.clock.now_ms(), bytes(8))])
    life.timing.on_postponed()


def delivered(store: Store) -> int:
    return store.queues.queue(TOPIC, 0).max_offset


def judged(store: Store, due_ms: list[int]) -> dict[str, int]:
    """Counts lateness, losses and duplicates from the stored records."""
    queue = store.queues.queue(TOPIC, 0)
    late: list[int] = []
    seen = bytearray(len(due_ms))
    twice = 0
    for offset in range(queue.max_offset):
        entry = queue.entry(offset)
        record = store.log.look_up(entry[0]) if entry is not None else None
        if record is None:
            continue
        number = int.from_bytes(record.body[:8], "big")
        twice += seen[number]
        seen[number] = 1
        late.append(record.store_timestamp - due_ms[number])
    late.sort()
    return {
        "missing": seen.count(0),
        "twice": twice,
        "early": sum(one < 0 for one in late),
        "late_p50_ms": late[len(late) // 2],
        "late_p99_ms": late[len(late) * 99 // 100],
        "late_max_ms": late[-1],
    }


def memory_mib() -> float:
    """Anonymous memory of this process; pages of files are left out, since the system can take them back."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("RssAnon:"))


def markdown(row: dict[str, Any]) -> str:
    names = ["timers", "rolled", "us put", "us fired", "all in a minute: us put + fired"]
    names += ["start with all s", "bytes in memory for each that waits"]
    names += ["late p50 / p99 / max ms (virtual)", "early", "twice", "missing"]
    cells = [
        f"{row['messages']:,}",
        f"{row['rolled']:,}",
        f"{row['put_us']:.1f}",
        f"{row['fired_us']:.1f}",
        f"{row['together_put_us']:.1f} + {row['together_fired_us']:.1f}",
        f"{row['first_start_s']:.1f}",
        f"{row['waiting_mib'] * (1 << 20) / row['messages']:,.0f}",
        f"{row['late_p50_ms']:,} / {row['late_p99_ms']:,} / {row['late_max_ms']:,}",
        *(f"{row[name]:,}" for name in ("early", "twice", "missing")),
    ]
    return f"{report.table(names, [cells])}\n"


if __name__ == "__main__":
    main()
