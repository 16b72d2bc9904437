"""The one object that decides when a stored message is answered, and what its answer says."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.kit import in_loop

from turbopump.broker.acknowledgement import Acknowledgement, Safety, choose
from turbopump.broker.config import ReplicationRules
from turbopump.broker.replicas.acknowledgement import ReplicaAcknowledgement
from turbopump.protocol.codes import ResponseCode
from turbopump.protocol.command import Command, reply
from turbopump.protocol.errors import FlushDiskTimeout
from turbopump.replication.copies import Copies
from turbopump.runtime.clock import SystemClock
from turbopump.store.config import StoreConfig
from turbopump.store.flush import Durability

MEMORY = StoreConfig()
POOL = StoreConfig(transient_pool=True)
DISK = StoreConfig(flush_disk_type="SYNC_FLUSH")


class PlayedSyncs:
    """Reports a sync when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[int, Callable[[Durability], None]]] = []
        self.unsynced_bytes = 100

    def durable(self, offset: int, done: Callable[[Durability], None]) -> None:
        self.waiting.append((offset, done))

    async def wait_durable(self, offset: int) -> Durability:
        return Durability.TIMEOUT if offset > 100 else Durability.DISK

    def end(self, durability: Durability) -> None:
        for _, done in self.waiting:
            done(durability)
        self.waiting.clear()


class PlayedRequest:
    """A request, its answers, and the bytes that it has in flight."""

    def __init__(self) -> None:
        self.command = Command(10)
        self.answers: list[Command] = []
        self.in_flight = 0
        self.connection = SimpleNamespace(begin=self._begin, end=self._end)

    def answer(self, answer: Command) -> None:
        self.answers.append(answer)

    def _begin(self, size: int) -> None:
        self.in_flight += size

    def _end(self, size: int) -> None:
        self.in_flight -= size


def told(acknowledgement: Acknowledgement, syncs: PlayedSyncs, ends: Durability) -> list[Safety]:
    heard: list[Safety] = []
    acknowledgement.when_safe(50, heard.append)
    syncs.end(ends)
    return heard


@pytest.mark.parametrize(("config", "durability"), [(MEMORY, "memory"), (POOL, "buffer")])
def test_without_sync_flush_a_sender_that_waits_is_answered_at_once(
    config: StoreConfig, durability: str
) -> None:
    syncs = PlayedSyncs()
    acknowledgement = choose(config, syncs)
    assert acknowledgement.immediate is acknowledgement.unawaited
    assert told(acknowledgement, syncs, Durability.DISK) == [acknowledgement.immediate]
    assert acknowledgement.immediate is not None
    assert (acknowledgement.immediate.durability, acknowledgement.immediate.replicas) == (durability, 1)
    assert ("operating system" in acknowledgement.promise) == (config is MEMORY)
    assert acknowledgement.unsafe_bytes == 0


@pytest.mark.parametrize(
    ("ends", "durability", "code", "is_safe"),
    [
        (Durability.DISK, "disk", ResponseCode.SUCCESS, True),
        (Durability.TIMEOUT, "memory", ResponseCode.FLUSH_DISK_TIMEOUT, False),
        (Durability.FAILED, "memory", ResponseCode.FLUSH_DISK_TIMEOUT, False),
    ],
)
def test_with_sync_flush_the_answer_says_what_became_of_the_sync(
    ends: Durability, durability: str, code: ResponseCode, is_safe: bool
) -> None:
    syncs = PlayedSyncs()
    acknowledgement = choose(DISK, syncs)
    assert acknowledgement.immediate is None
    assert (acknowledgement.unawaited.durability, acknowledgement.unawaited.code) == ("memory", 0)
    (safety,) = told(acknowledgement, syncs, ends)
    assert (safety.durability, safety.code, safety.is_safe) == (durability, code, is_safe)
    assert acknowledgement.unsafe_bytes == 100


@pytest.mark.parametrize("config", [MEMORY, DISK])
def test_a_sync_master_without_a_slave_tells_those_who_wait(config: StoreConfig) -> None:
    syncs = PlayedSyncs()
    acknowledgement = ReplicaAcknowledgement(
        syncs, choose(config, syncs), Copies(), ReplicationRules(), SystemClock(), lambda: 50
    )
    first, second = (told(acknowledgement, syncs, Durability.DISK) for _ in range(2))
    assert first == second, "the same outcome is the same object: answers are cached by it"
    assert (first[0].code, first[0].is_safe) == (ResponseCode.SLAVE_NOT_AVAILABLE, True)
    assert acknowledgement.unawaited.code == ResponseCode.SUCCESS


def test_a_request_that_waits_counts_as_bytes_in_flight_until_it_is_answered() -> None:
    syncs, request = PlayedSyncs(), PlayedRequest()
    waiting: Any = request
    acknowledgement = choose(DISK, syncs)

    def make(safety: Safety) -> Command:
        return reply(request.command, safety.code)

    assert acknowledgement.answer(waiting, 50, 7, make) is None
    assert (request.in_flight, [end for end, _ in syncs.waiting]) == (7, [50])
    syncs.end(Durability.DISK)
    assert (request.in_flight, [one.code for one in request.answers]) == (0, [ResponseCode.SUCCESS])


def test_a_request_that_is_safe_at_once_is_answered_by_its_handler() -> None:
    request = PlayedRequest()
    waiting: Any = request
    acknowledgement = choose(MEMORY, PlayedSyncs())
    answer = acknowledgement.answer(waiting, 50, 7, lambda safety: reply(request.command, safety.code))
    assert answer is not None
    assert (answer.code, request.in_flight, request.answers) == (0, 0, [])


@pytest.mark.parametrize("config", [MEMORY, DISK])
def test_progress_waits_for_the_disk_under_every_rule(config: StoreConfig) -> None:
    acknowledgement = choose(config, PlayedSyncs())
    assert asyncio.run(acknowledgement.on_disk(100)) is True
    assert asyncio.run(acknowledgement.on_disk(101)) is False


@in_loop
async def test_what_the_disk_did_not_get_in_time_is_refused_by_name() -> None:
    acknowledgement = choose(DISK, PlayedSyncs())
    await acknowledgement.require_on_disk(100, "the decision")
    with pytest.raises(FlushDiskTimeout, match="the decision is not on disk; ask again"):
        await acknowledgement.require_on_disk(101, "the decision")


@in_loop
async def test_a_cancelled_waiter_does_not_disturb_the_next_sync() -> None:
    syncs = PlayedSyncs()
    acknowledgement = choose(DISK, syncs)
    gone = asyncio.create_task(acknowledgement.safe(50))
    stays = asyncio.create_task(acknowledgement.safe(50))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.sleep(0)
    syncs.end(Durability.DISK)
    assert (await stays).durability == "disk"
