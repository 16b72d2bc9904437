"""Simulates a store: a machine with a disk and a clock, a sender, and faults."""

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable
from typing import Any

from tests.simulation.checks import check_files, check_readable, check_recovered
from tests.simulation.model import Model, SentMessage

from turbopump.compiled import twins
from turbopump.protocol import batch, inner
from turbopump.protocol import properties as props
from turbopump.protocol.errors import Refused
from turbopump.protocol.hashing import java_hash
from turbopump.protocol.names import SCHEDULE_TOPIC
from turbopump.protocol.sysflag import COMMIT, PREPARED, ROLLBACK
from turbopump.store.append import Draft
from turbopump.store.config import StoreConfig
from turbopump.store.consume_queue import ConsumeQueue
from turbopump.store.flush import Durability
from turbopump.store.segment import file_name
from turbopump.store.store import Store
from turbopump.testing.disk import PowerCut, SimulatedDisk, SimulatedWorkers
from turbopump.testing.loop import VirtualClock, run_virtual
from turbopump.testing.simulated_files import Survival

ROOT = "/store"
TOPICS = ["orders", "payments", "%RETRY%" + "group" * 30]
BATCHES = "batches"
TABLE = b'{"topicConfigTable":{"batches":{"topicName":"batches","attributes":{"queue.type":"BatchCQ"}}}}'
LIGHTS = ["%LMQ%a", "%LMQ%b", "%LMQ%c"]
LARGE = 4_000  # a queue file of several sectors, so that entries lie in two of them
HIGH = 1 << 32  # from here on the pointers of queue entries have more than four bytes that are not zero
ANSWER_S = 8.0  # greatest time until a send is answered
PATIENCE_S = 5.0  # time after the last fault until the store accepts messages again

log = logging.getLogger(__name__)


class JumpingClock(VirtualClock):
    """Virtual clock whose wall time can be set; the monotonic time goes on."""

    jump_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.jump_ms


def run(seed: int) -> None:
    """Runs a seed. Raises AssertionError for a broken guarantee."""
    run_virtual(StoreSimulation(seed).run())


class StoreSimulation:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.twins = twins() if seed % 2 else None
        self.config = self._any_config()
        self.model = Model()
        self.runs = self.chance.randint(2, 6)
        self.begins_high = self.config.consume_queue_file_size == LARGE
        # The 12th entry of a batch queue lies in two sectors, of other queues the 52nd: many queues reach it.
        self.queue_ids, self.batch_ids, self.batch_share = (1, 6, 0.5) if self.begins_high else (3, 2, 0.1)
        self.serial = 0
        self.waiting: dict[int, float] = {}  # unanswered messages -> time of the send
        self.surprises: list[BaseException] = []

    async def run(self) -> None:
        asyncio.get_running_loop().set_exception_handler(self._note_surprise)
        self.clock = JumpingClock()
        self.disk = SimulatedDisk(self.chance, self.clock)
        self.disk.make_dirs(self.config.config_dir)
        self.disk.write(f"{self.config.config_dir}/topics.json", TABLE)
        for directory in ("/", ROOT, self.config.config_dir):
            self.disk.sync_dir(directory)
        if self.begins_high:
            self._begin_high()
        log.info("%s", self.config)
        least_end, why = self.model.synced, "nothing was promised"
        for _ in range(self.runs):
            store = await self._open(least_end, why)
            least_end, why = await self._live(store)
        self.disk.cut_power_after(None)
        store = await self._open(least_end, why)
        await store.close()
        check_files(self.disk, self.config, self.model, failures=0)
        assert not self.surprises, f"an unforeseen exception: {self.surprises[0]!r}"

    def _begin_high(self) -> None:
        """Makes the first file of a log that begins near 4 GiB, as after years of messages and deletions.

        There the second part of a queue entry alone points to an offset that was deleted.
        """
        size = self.config.commit_log_file_size
        start = HIGH - HIGH % size + self.chance.randint(-1, 2) * size
        self.disk.create_mapped(f"{self.config.log_dir}/{file_name(start)}", size)
        self.disk.sync_dir(self.config.log_dir)
        self.model.synced = self.model.deleted_below = start

    async def _open(self, least_end: int, why: str) -> Store:
        """Starts the store, perhaps after crashes during earlier starts."""
        for attempt in range(10):
            if attempt < 5 and self.chance.random() < 0.3:
                self.disk.cut_power_after(self.chance.randint(0, 200))
            workers = SimulatedWorkers(self.disk)
            self.disk.used_ratio, self.disk.capacity = 0.5, 1 << 40
            try:
                store = Store.open(self.config, self.disk, self.clock, workers, twins=self.twins)
            except PowerCut:
                survival = self._any_survival()
                log.info("crash during the start: %s", survival.name)
                self.disk = self.disk.crash(survival)
                if survival is not Survival.KEPT:
                    least_end, why = self.model.synced, "this was synced"
                continue
            self.disk.cut_power_after(None)
            log.info("opened: %d..%d", store.log.min_offset, store.log.end)
            check_recovered(store, self.model, least_end, why)
            self.workers = workers
            return store
        raise AssertionError("the store does not come up")

    async def _live(self, store: Store) -> tuple[int, str]:
        """Simulates one run of the process. Returns the least end of the log after it, and why."""
        await store.start()
        if self.chance.random() < 0.3:
            self.disk.cut_power_after(self.chance.randint(0, 500))
        actions = self._any_mood()
        for _ in range(self.chance.randint(0, 60)):
            with contextlib.suppress(PowerCut):
                await self.chance.choices(*actions)[0](store)
            self._check_waiting()
            if self.disk.is_off:
                return await self._power_fails(store)
        if self.chance.random() < 0.6:
            return await self._power_fails(store)
        return await self._stop(store)

    def _any_mood(self) -> tuple[list[Callable[[Store], Any]], list[int]]:
        """Chooses the actions of this run and their weights."""
        usual = {self.append: 10, self.wait: 6, self.read: 3}
        if self.begins_high:
            usual[self.write_queues] = 3
        unusual = {
            self.wait_long: 1,
            self.set_clock: 1,
            self.fail_a_sync: 1,
            self.stall: 1,
            self.fill_disk: 1,
            self.delete_files: 2,
            self.query: 1,
            self.delete_topic: 1,
            self.write_queues: 3,
        }
        weights = usual | {what: often for what, often in unusual.items() if self.chance.random() < 0.4}
        return list(weights), list(weights.values())

    # --- ends of a run ---

    async def _power_fails(self, store: Store) -> tuple[int, str]:
        survival = self._any_survival()
        end, committed, synced = store.log.end, store.log.committed, store.log.synced
        log.info("crash: %s, log %d..%d synced %d", survival.name, store.log.min_offset, end, synced)
        was_off = self.disk.is_off
        self.model.synced = max(self.model.synced, synced)
        self.disk = self.disk.crash(survival)
        await _end_tasks()
        self.waiting.clear()
        if survival is Survival.KEPT and not was_off:
            return committed, "the process was killed, the machine was not"
        return self.model.synced, "this was synced"

    async def _stop(self, store: Store) -> tuple[int, str]:
        failures = self.model.disk_failures
        await self._recover_from_faults(store)
        self.disk.cut_power_after(self.chance.randint(0, 60) if self.chance.random() < 0.3 else None)
        end = store.log.end
        with contextlib.suppress(PowerCut):
            await store.close()
        if self.disk.is_off:
            return await self._power_fails(store)
        self.disk.cut_power_after(None)
        log.info("closed at %d", end)
        check_files(self.disk, self.config, self.model, failures)
        if self.chance.random() < 0.5:
            self.disk = self.disk.crash(self._any_survival())
        self.waiting.clear()
        self.model.synced = max(self.model.synced, end)
        return end, "the store was closed"

    async def _recover_from_faults(self, store: Store) -> None:
        """Runs without new faults: all sends are answered, and messages are accepted again."""
        self.disk._syncs_to_fail.clear()
        self.workers.stall(0)
        self.disk.used_ratio, self.disk.capacity = 0.5, 1 << 40
        await asyncio.sleep(ANSWER_S + PATIENCE_S)
        if self.disk.is_off:
            return
        self._check_waiting()
        assert not self.waiting, "some were never told what became of their messages"
        assert store.flags.reason is None, f"still refused long after the last fault: {store.flags.reason}"

    # --- actions ---

    async def append(self, store: Store) -> None:
        drafts = [self._any_draft(store) for _ in range(self.chance.choice([1, 1, 2, 5, 20]))]
        try:
            appended = store.log.append(drafts, together=len(drafts) > 1 and self.chance.random() < 0.3)
        except Refused as refused:
            log.info("refused: %s", refused)
            return
        sent = [
            SentMessage(
                offset, size, draft.queue.topic, draft.queue.queue_id, queue_offset, draft.body,
                draft.properties, draft.sys_flag, draft.delay_ms, count=draft.count,
            )
            for draft, (offset, queue_offset, size) in zip(drafts, appended, strict=True)
        ]  # fmt: skip
        log.info("appended %d: %d..%d", len(sent), sent[0].offset, sent[-1].end)
        self.model.sent += sent
        if self.chance.random() < 0.7:
            self._await_disk(store, sent)

    def _await_disk(self, store: Store, sent: list[SentMessage]) -> None:
        self.serial += 1
        number, disk = self.serial, self.disk
        self.waiting[number] = self.clock.monotonic()

        def done(durability: Durability) -> None:
            log.info("%d..%d: %s", sent[0].offset, sent[-1].end, durability.value)
            if disk.is_off:
                return  # the machine is off, and its clients with it
            assert number in self.waiting, "told twice what became of a message"
            del self.waiting[number]
            if durability is Durability.DISK:
                for one in sent:
                    one.on_disk = True

        store.flusher.durable(sent[-1].end, done)

    async def wait(self, store: Store) -> None:
        await asyncio.sleep(self.chance.choice([0, 0, 0.001, 0.01, 0.3, 2]))

    async def wait_long(self, store: Store) -> None:
        await asyncio.sleep(self.chance.uniform(3, 15))

    async def set_clock(self, store: Store) -> None:
        self.clock.jump_ms += round(self.chance.choice([-1, 1]) * 10 ** self.chance.uniform(1, 8))
        log.info("clock set by %d ms in all", self.clock.jump_ms)

    async def fail_a_sync(self, store: Store) -> None:
        part = self.chance.choice(["", "commitlog", "commitlog", "consumequeue", "index", "checkpoint"])
        self.model.disk_failures += 1
        self.disk.fail_sync(self.chance.randint(0, 3), part)
        log.info("a sync will fail: %s", part or "any")

    async def stall(self, store: Store) -> None:
        self.workers.stall(self.chance.choice([0.5, 3, 7]))

    async def fill_disk(self, store: Store) -> None:
        if self.chance.random() < 0.5:
            self.disk.used_ratio = self.chance.choice([0.5, 0.8, 0.95])
        else:
            self.disk.capacity = self.disk._used() + self.chance.choice([0, 1000, 100_000])
        self.model.disk_failures += 1
        log.info("disk: %s used, %d bytes left", self.disk.used_ratio, self.disk.capacity - self.disk._used())

    async def delete_files(self, store: Store) -> None:
        self.disk.used_ratio = 0.88
        try:
            await store.retention.round()
        finally:
            self.disk.used_ratio = 0.5
            self.model.deleted_below = max(self.model.deleted_below, store.log.min_offset)
        log.info("deleted: the log begins at %d", store.log.min_offset)

    async def write_queues(self, store: Store) -> None:
        """Writes the waiting entries of all queues, as for busy ones: a later crash may keep any part."""
        await store.upkeep.write_out(list(store.queues.dirty))

    async def query(self, store: Store) -> None:
        if self.model.sent:
            sent = self.chance.choice(self.model.sent)
            for key in sent.keys[:1]:
                store.queries.query(sent.topic, key, 0, 1 << 62, 32)

    async def read(self, store: Store) -> None:
        queue = store.queues.queue(self.chance.choice(TOPICS), self.chance.randint(0, 2))
        offset = self.chance.randint(0, queue.max_offset)
        check_readable(store, self.model, queue, offset)

    async def delete_topic(self, store: Store) -> None:
        topic = self.chance.choice(TOPICS)
        self.model.forget_queues(topic)  # after a crash during the deletion some may come back
        with contextlib.suppress(OSError):
            await store.upkeep.expect_deletion(topic)
            store.queues.delete_topic(topic)
            await store.upkeep.sync_removals()
            log.info("deleted topic %s", topic)

    # --- chance ---

    def _any_config(self) -> StoreConfig:
        chance = self.chance
        slots, items = chance.choice([(20, 15), (50, 60), (300, 500)])
        queue_file_size = chance.choice([100, 400, 2_000, LARGE])
        return StoreConfig(
            root_dir=ROOT,
            commit_log_file_size=chance.choice([4096, 10_000, 32_768]),
            consume_queue_file_size=queue_file_size,
            index_slots=slots,
            index_items=items,
            index_enabled=chance.random() < 0.9,
            flush_disk_type=chance.choice(["SYNC_FLUSH", "ASYNC_FLUSH"]),
            transient_pool=chance.random() < 0.3,
            flush_least_pages=chance.choice([0, 4]),
            checkpoint_interval_ms=chance.choice([500, 2_000, 10_000]),
            open_log_files=chance.choice([2, 64]),
            open_queue_files=chance.choice([2, 512]),
            write_extensions=chance.random() < 0.3,
            consume_queue_ext_file_size=chance.choice([64, 150, 4096]),
            batch_queue_file_size=4600 if queue_file_size == LARGE else chance.choice([46, 230, 4600]),
            light_queues=True,
            multi_dispatch=True,
        )

    def _any_draft(self, store: Store) -> Draft:
        chance = self.chance
        self.serial += 1
        pairs = {props.UNIQUE_KEY: f"ID{self.serial:06d}"} if chance.random() < 0.9 else {}
        if chance.random() < 0.4:
            pairs[props.KEYS] = " ".join(f"k{chance.randint(0, 20)}" for _ in range(chance.randint(1, 3)))
        if chance.random() < 0.4:
            pairs[props.TAGS] = chance.choice(["a", "b", "größe"])
        if chance.random() < 0.1:
            pairs["note"] = "x" * chance.randint(100, 2000)
        if chance.random() < 0.1:
            pairs["\0" * chance.randint(1, 511)] = "zeros"  # as many as allowed
        if chance.random() < self.batch_share:
            return self._any_batch(store, pairs)
        if chance.random() < 0.2:
            pairs[props.INNER_MULTI_DISPATCH] = ",".join(chance.sample(LIGHTS, k=chance.randint(1, 3)))
        queue, delay_ms = self._any_queue(store, pairs)
        body = chance.randbytes(chance.choice([0, 10, 100, 1000, 3000]))
        return Draft(
            queue=queue,
            body=body,
            properties=props.pack(pairs).encode(),
            flag=chance.randint(0, 3),
            sys_flag=chance.choice([0] * 12 + [PREPARED, ROLLBACK, COMMIT]) if delay_ms < 0 else 0,
            born_timestamp=self.clock.now_ms(),
            born_host=bytes(chance.choice([8, 8, 8, 20])),
            tags_code=java_hash(pairs.get(props.TAGS, "")),
            unique_key=pairs.get(props.UNIQUE_KEY, ""),
            keys=pairs.get(props.KEYS, ""),
            delay_ms=delay_ms,
        )

    def _any_batch(self, store: Store, pairs: dict[str, str]) -> Draft:
        """Returns an inner batch, or a single message of its topic."""
        count = self.chance.randint(0, 4)
        body = batch.join([(0, b"inner", b"")] * count) if count else b"single"
        if count:
            pairs |= {props.INNER_NUM: str(count), props.INNER_BASE: "0"}
        return Draft(
            queue=store.queues.queue(BATCHES, self.chance.randrange(self.batch_ids)),
            body=body,
            properties=props.pack(pairs).encode(),
            flag=0,
            sys_flag=inner.FLAGS if count else 0,
            born_timestamp=self.clock.now_ms(),
            born_host=bytes(8),
            tags_code=java_hash(pairs.get(props.TAGS, "")),
            unique_key=pairs.get(props.UNIQUE_KEY, ""),
            keys=pairs.get(props.KEYS, ""),
            count=max(count, 1),
        )

    def _any_queue(self, store: Store, pairs: dict[str, str]) -> tuple[ConsumeQueue, int]:
        if self.chance.random() < 0.05:
            level = self.chance.randint(1, 18)
            pairs[props.DELAY] = str(level)
            return store.queues.queue(SCHEDULE_TOPIC, level - 1), store.delays.delay_ms(level)
        return store.queues.queue(self.chance.choice(TOPICS), self.chance.randrange(self.queue_ids)), -1

    def _any_survival(self) -> Survival:
        return self.chance.choice(list(Survival))

    # --- verbose output ---

    def _check_waiting(self) -> None:
        now = self.clock.monotonic()
        late = [number for number, since in self.waiting.items() if now - since > ANSWER_S + PATIENCE_S]
        assert not late or self.disk.is_off, f"no word about {len(late)} messages for {ANSWER_S:.0f} s"

    def _note_surprise(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        exception = context.get("exception")
        if not isinstance(exception, PowerCut):
            self.surprises.append(exception or RuntimeError(context["message"]))


async def _end_tasks() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
