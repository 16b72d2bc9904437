"""The files of timers, one damaged at a time: a broker must start, and new timers be delivered in time.

The first byte of an input selects the file and how the last process ended; the rest is its content. Data that
is only in that file may be lost. Messages in the log are never delivered before their time.
"""

import asyncio
import functools
from collections.abc import Iterator

from tests.fuzz.targets import Target
from tests.writers import writer_of

from turbopump.broker.config import BrokerIdentity, TimerRules, TopicRules
from turbopump.broker.delay.timer_intake import TimerIntake
from turbopump.broker.delay.timers import FILE, TimedMessages
from turbopump.broker.topics import Topic, TopicTable
from turbopump.protocol import properties
from turbopump.protocol.record import decode_all
from turbopump.runtime.chance import Chance
from turbopump.store import timer_check, timer_wheel
from turbopump.store.append import Draft
from turbopump.store.config import StoreConfig
from turbopump.store.config_files import ConfigFiles
from turbopump.store.store import Store
from turbopump.store.timer_log import BLANK_MAGIC
from turbopump.testing.disk import SimulatedDisk, SimulatedWorkers
from turbopump.testing.loop import VirtualClock, run_virtual
from turbopump.testing.simulated_files import Survival

ROOT = "/store"
FILES = ("timerlog/00000000000000000000", "timerwheel", f"config/{FILE}")
KILLED = 4  # a bit of the first byte; those below are the number of the file
DELAYS_MS = (500, 900, 5_000, 5_500, 60_000, 600_000)
RULES = TimerRules(roll_window_slots=100, log_file_size=1_000)
CONFIG = StoreConfig(
    root_dir=ROOT, commit_log_file_size=16_384, consume_queue_file_size=400, index_enabled=False
)


def timer_files(data: bytes) -> None:
    how = data[0] if data else 0
    name = FILES[how % KILLED % len(FILES)]
    _made()
    slots, timer_wheel.SLOTS = timer_wheel.SLOTS, 400
    try:
        run_virtual(_opened(name, data[1:], bool(how & KILLED)))
    finally:
        timer_wheel.SLOTS = slots


async def _opened(name: str, contents: bytes, killed: bool) -> None:
    clock = VirtualClock(start_ms=_stopped_ms())
    disk = SimulatedDisk(Chance(1), clock)
    for path, good in _good().items():
        disk.write(path, contents if path == f"{ROOT}/{name}" else good, sync=False)
    if killed:
        disk.write(f"{ROOT}/abort", b"", sync=False)
    life = BrokerRun(disk, clock)
    life.send(b"new", 3_000)
    due_ms = clock.now_ms() + 3_000
    await asyncio.sleep(30)
    assert not life.tasks[0].done(), "timers have come to an end"
    queue = life.store.queues.queue("T", 0)
    found = [
        record
        for offset in range(queue.max_offset)
        for record in decode_all(life.store.reader.get(queue, offset, 1).body)
    ]
    new = [record.store_timestamp - due_ms for record in found if record.body == b"new"]
    assert new == [0], f"a new timer was late by {new} ms"
    await life.stop()


class BrokerRun:
    def __init__(self, disk: SimulatedDisk, clock: VirtualClock) -> None:
        workers = SimulatedWorkers(disk)
        self.clock = clock
        self.store = Store.open(CONFIG, disk, clock, workers)
        topics = TopicTable(TopicRules(), BrokerIdentity(broker_name="a"), clock)
        topics.update(Topic("T", 1, 1), {})
        files = ConfigFiles(CONFIG.config_dir, disk)
        self.timing = TimerIntake(self.store, lambda: RULES, "a", clock, RULES.precision_ms)
        self.timers = TimedMessages(
            self.store, topics, writer_of(self.store, clock), files.save, workers, clock, disk, RULES
        )
        files.load(FILE, lambda data: self.timers.load(data) >= 0)
        self.timers.open()
        self.timing.on_postponed = self.timers.postponed
        self.store.flusher.start()
        self.tasks = [
            asyncio.create_task(self.timers.run()),
            asyncio.create_task(self.timers.keep(1.0)),
        ]

    def send(self, body: bytes, delay_ms: int) -> None:
        pairs = {properties.UNIQUE_KEY: body.decode(), properties.TIMER_DELAY_MS: str(delay_ms)}
        postponed = self.timing.postpone(pairs, "T", 0)
        assert postponed is not None
        packed = properties.pack(pairs).encode() + postponed.suffix
        self.store.log.append([Draft(postponed.queue, body, packed, 0, 0, self.clock.now_ms(), bytes(8))])
        self.timing.on_postponed()

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.timers.close()
        await self.store.close()


# --- the store they damage ---------------------------------------------------------------------------


@functools.cache
def _made() -> tuple[dict[str, bytes], int]:
    slots, timer_wheel.SLOTS = timer_wheel.SLOTS, 400
    try:
        return run_virtual(_make())
    finally:
        timer_wheel.SLOTS = slots


async def _make() -> tuple[dict[str, bytes], int]:
    clock = VirtualClock()
    disk = SimulatedDisk(Chance(1), clock)
    life = BrokerRun(disk, clock)
    for number, delay_ms in enumerate(DELAYS_MS):
        life.send(b"%d" % number, delay_ms)
    await asyncio.sleep(2.5)
    await life.stop()
    after = disk.crash(Survival.KEPT)
    names = [path for path in after._names.nodes if not path.endswith(("/lock", ".bak", "sync-probe"))]
    return {path: after.read(path) for path in names}, clock.now_ms()


def _good() -> dict[str, bytes]:
    return _made()[0]


def _stopped_ms() -> int:
    return _made()[1]


def _seeds() -> Iterator[bytes]:
    for number, name in enumerate(FILES):
        for how in (0, KILLED):
            yield bytes([number | how]) + _good()[f"{ROOT}/{name}"]


TARGETS = {
    "timers": Target(
        timer_files,
        _seeds,
        (),
        words=(
            timer_check.LETTERS,
            (52).to_bytes(4, "big"),
            (BLANK_MAGIC & 0xFFFFFFFF).to_bytes(4, "big"),
            b"\xff" * 8,
            b"\x7f" + b"\xff" * 7,
            b"\0" * 8,
            b"\x80" + b"\0" * 7,
        ),
        taste=60,
    ),
}
