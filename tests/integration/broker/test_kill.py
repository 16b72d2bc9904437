"""A broker process is killed at random moments while three connections send; what it acknowledged is there.

Each round restarts `turbopump up` on the directory the last one left, reads every queue of every topic over
the wire, then sends to old topics and to new ones, many requests at a time, until signal 9. Some starts are
killed before they are ready. The flush mode changes from round to round. `KILLS` in the environment sets the
number of rounds, `KILL_SEED` what the rounds do; when the kill hits is as random as the machine. A failure
says both and leaves the directory, with what the servers printed, where it is.
"""

import asyncio
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from turbopump.protocol import ids, properties, record
from turbopump.protocol.bodies import TopicConfigSerializeWrapper
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import Command, request
from turbopump.protocol.headers.pull import PullMessageRequest, PullMessageResponse
from turbopump.protocol.headers.query import QueryMessageRequest, ViewMessageRequest
from turbopump.protocol.headers.send import SendMessageRequest, SendMessageResponse, SendMessageV2Request
from turbopump.protocol.record import Record
from turbopump.remoting.client import Client
from turbopump.runtime.clock import SystemClock
from turbopump.runtime.network import SystemNetwork

ROUNDS = int(os.environ.get("KILLS") or 10)
SEED = int(os.environ.get("KILL_SEED") or 1)
ROUNDS_PER_DIRECTORY = 10
MODES = ("ASYNC_FLUSH", "SYNC_FLUSH")
SIZES = """\
mappedFileSizeCommitLog=1048576
mappedFileSizeConsumeQueue=2000
waitTimeMillsInSendQueue=20000
osPageCacheBusyTimeOutMills=20000
maxHashSlotNum=500
maxIndexNum=2000
"""
CONNECTIONS = 3
IN_FLIGHT = 48
QUEUES = 4
TOPIC = "topic-"
SAMPLE = 40
PATIENCE_S = 30.0
HAS_SUBSCRIPTION = 4  # of a pull's sysFlag
EVER = 1 << 62

Place = tuple[str, int, int]  # topic, queue, queue offset


@dataclass(frozen=True)
class Attempt:
    topic: str
    queue_id: int
    key: str
    body: bytes


@dataclass
class History:
    """All that was ever tried on one directory."""

    tried: dict[str, Attempt] = field(default_factory=dict)  # by unique key
    acknowledged: dict[str, tuple[Place, str]] = field(
        default_factory=dict
    )  # by unique key: place, offset id
    read: dict[tuple[str, int], list[bytes]] = field(default_factory=dict)  # what a queue held when last read

    @property
    def topics(self) -> list[str]:
        return sorted({attempt.topic for attempt in self.tried.values()})


# --- the victim --------------------------------------------------------------------------------------


class Broker:
    """One life of `turbopump up` on a directory."""

    def __init__(self, directory: Path, life: int, mode: str) -> None:
        conf = directory / "broker.conf"
        conf.write_text(f"{SIZES}flushDiskType={mode}\n")
        self._said = directory / f"life-{life}.out"
        words = ["up", "--data", str(directory / "data"), "--host", "127.0.0.1", "-c", str(conf)]
        with self._said.open("wb") as said:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "turbopump", *words, "--namesrv-port", "0", "--broker-port", "0"],
                stdout=said,
                stderr=subprocess.STDOUT,
                env={**os.environ, "HOME": str(directory)},
            )

    async def ready(self) -> str:
        """Its address."""
        deadline = time.monotonic() + PATIENCE_S
        while "Ctrl-C" not in (said := self._said.read_text()):
            assert self._process.poll() is None, f"it ended by itself: {said}"
            assert time.monotonic() < deadline, f"not ready after {PATIENCE_S} s: {said}"
            await asyncio.sleep(0.01)
        found = re.search(r"broker +\S+ at (\S+)", said)
        assert found is not None, said
        return found[1]

    def kill(self) -> None:
        assert self._process.poll() is None, f"it ended by itself: {self._said.read_text()}"
        self.end()

    def end(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()


@asynccontextmanager
async def connection() -> AsyncIterator[Client]:
    client = Client(SystemNetwork(), SystemClock())
    try:
        yield client
    finally:
        await client.close()


async def call(client: Client, address: str, command: Command) -> Command:
    return await client.call(address, command, PATIENCE_S)


# --- sending -----------------------------------------------------------------------------------------


async def send_until_killed(broker: Broker, address: str, history: History, chance: random.Random) -> None:
    life_s = chance.choice((0.0, 0.03, 0.1, 0.3, 0.6)) * (0.5 + chance.random())
    topics = [*history.topics[-5:], *(f"{TOPIC}{len(history.tried)}-{number}" for number in range(3))]
    senders = [
        asyncio.create_task(send_forever(address, history, topics, chance.randrange(1 << 30)))
        for _ in range(CONNECTIONS)
    ]
    await asyncio.sleep(life_s)
    broker.kill()
    for sender in senders:
        await sender


async def send_forever(address: str, history: History, topics: list[str], seed: int) -> None:
    """One connection with requests in flight, until it is cut. All answers that arrived count."""
    chance = random.Random(seed)
    async with connection() as client:
        while True:
            attempts = [new_attempt(history, topics, chance) for _ in range(chance.randrange(1, IN_FLIGHT))]
            sends = (send(client, address, attempt, history, chance) for attempt in attempts)
            if not all(await asyncio.gather(*sends)):
                return
            if chance.random() < 0.1:
                topics = [*topics, f"{TOPIC}{len(history.tried)}-new"]


def new_attempt(history: History, topics: list[str], chance: random.Random) -> Attempt:
    key = f"K{len(history.tried):08d}"
    body = f"{key} ".encode() + chance.randbytes(chance.choice((0, 20, 300, 3000)))
    attempt = Attempt(chance.choice(topics), chance.randrange(QUEUES), key, body)
    history.tried[key] = attempt
    return attempt


async def send(
    client: Client, address: str, attempt: Attempt, history: History, chance: random.Random
) -> bool:
    """False when the connection is gone."""
    try:
        answer = await call(client, address, send_request(attempt, chance.random() < 0.2))
    except OSError:
        return False
    if answer.code == ResponseCode.SUCCESS:
        sent = SendMessageResponse.from_ext(answer.ext)
        place = (attempt.topic, sent.queueId, sent.queueOffset)
        history.acknowledged[attempt.key] = (place, sent.msgId)
    return True


def send_request(attempt: Attempt, is_old: bool) -> Command:
    kind = SendMessageRequest if is_old else SendMessageV2Request
    header = kind(
        queueId=attempt.queue_id,
        sysFlag=0,
        bornTimestamp=1_700_000_000_000,
        flag=0,
        producerGroup="senders",
        topic=attempt.topic,
        defaultTopic="TBW102",
        defaultTopicQueueNums=QUEUES,
        properties=properties.pack({"UNIQ_KEY": attempt.key, "TAGS": "a", "KEYS": f"k{attempt.key}"}),
    )
    code = RequestCode.SEND_MESSAGE if is_old else RequestCode.SEND_MESSAGE_V2
    return request(code, header, attempt.body)


# --- reading back ------------------------------------------------------------------------------------


async def check_everything(address: str, history: History, chance: random.Random) -> None:
    async with connection() as client:
        answer = await call(client, address, request(RequestCode.GET_ALL_TOPIC_CONFIG))
        table = TopicConfigSerializeWrapper.decode(answer.body).topicConfigTable or {}
        known = {name for name in table if name.startswith(TOPIC)}
        strange = known - set(history.topics)
        assert not strange, f"topics nobody sent to: {strange}"
        forgotten = {place[0] for place, _ in history.acknowledged.values()} - known
        assert not forgotten, f"topics with acknowledged messages that are not known any more: {forgotten}"
        found: dict[str, tuple[Place, int]] = {}
        for topic in sorted(known):
            for queue_id in range(table[topic].readQueueNums):
                records = await read_queue(client, address, topic, queue_id)
                check_queue(topic, queue_id, records, history, found)
        for key, (place, offset_id) in history.acknowledged.items():
            assert key in found, f"{key} was acknowledged at {place} and is gone"
            offset = ids.parse_offset_id(offset_id)[2]
            assert found[key] == (place, offset), f"{key} was acknowledged at {place}, {offset}: {found[key]}"
        for key in chance.sample(sorted(found), min(SAMPLE, len(found))):
            await check_found(client, address, history.tried[key], *found[key])


async def read_queue(client: Client, address: str, topic: str, queue_id: int) -> list[Record]:
    records: list[Record] = []
    while True:
        header = PullMessageRequest(
            consumerGroup="readers",
            topic=topic,
            queueId=queue_id,
            queueOffset=len(records),
            maxMsgNums=32,
            sysFlag=HAS_SUBSCRIPTION,
            subscription="*",
        )
        answer = await call(client, address, request(RequestCode.PULL_MESSAGE, header))
        where = f"{topic}/{queue_id} from {len(records)}"
        if answer.code == ResponseCode.PULL_NOT_FOUND:
            return records
        if answer.code == ResponseCode.PULL_OFFSET_MOVED:  # of an empty queue too
            bounds = PullMessageResponse.from_ext(answer.ext)
            assert (bounds.minOffset, bounds.maxOffset) == (0, len(records)), f"{where}: {bounds}"
            return records
        assert answer.code == ResponseCode.SUCCESS, f"{where}: {answer.code} {answer.remark}"
        records += record.decode_all(answer.body)


def check_queue(
    topic: str,
    queue_id: int,
    records: list[Record],
    history: History,
    found: dict[str, tuple[Place, int]],
) -> None:
    where = f"{topic}/{queue_id}"
    assert [one.queue_offset for one in records] == list(range(len(records))), f"{where} has gaps"
    offsets = [one.physical_offset for one in records]
    assert offsets == sorted(set(offsets)), f"{where} is out of order"
    for one in records:
        attempt = history.tried.get(one.unique_key or "")
        assert attempt is not None, f"{where} has what nobody sent: {one}"
        assert attempt.key not in found, f"{attempt.key} is stored twice"
        assert (one.topic, one.queue_id, one.body) == (attempt.topic, attempt.queue_id, attempt.body)
        found[attempt.key] = ((topic, queue_id, one.queue_offset), one.physical_offset)
    contents = [record.encode(one) for one in records]
    before = history.read.get((topic, queue_id), [])
    assert contents[: len(before)] == before, f"{where} had other messages before the last kill"
    history.read[topic, queue_id] = contents


async def check_found(client: Client, address: str, attempt: Attempt, place: Place, offset: int) -> None:
    by_key = QueryMessageRequest(
        attempt.topic, attempt.key, maxNum=32, beginTimestamp=0, endTimestamp=EVER, unique_key_query=True
    )
    for command in (
        request(RequestCode.QUERY_MESSAGE, by_key),
        request(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequest(offset)),
    ):
        answer = await call(client, address, command)
        assert answer.code == ResponseCode.SUCCESS, f"{attempt.key}: {command.code} says {answer.remark}"
        one = next(record.decode_all(answer.body))
        assert (one.unique_key, one.body) == (attempt.key, attempt.body), f"{attempt.key}: {command.code}"
        assert (one.topic, one.queue_id, one.queue_offset) == place
        assert one.physical_offset == offset


# --- the rounds --------------------------------------------------------------------------------------


async def live_and_die(directory: Path, rounds: int, chance: random.Random) -> tuple[int, int]:
    """So many kills of a working broker on one directory; what was tried and what was acknowledged."""
    history = History()
    for life in range(rounds + 1):
        mode = MODES[life % len(MODES)]
        if chance.random() < 0.2:
            await die_young(directory, life, mode, chance)
        broker = Broker(directory, life, mode)
        try:
            address = await broker.ready()
            await check_everything(address, history, chance)
            if life < rounds:
                await send_until_killed(broker, address, history, chance)
        except BaseException as error:
            error.add_note(f"life {life}, {mode}")
            raise
        finally:
            broker.end()
    return len(history.tried), len(history.acknowledged)


async def die_young(directory: Path, life: int, mode: str, chance: random.Random) -> None:
    """A start that is killed, as often as not in its recovery."""
    broker = Broker(directory, life, mode)
    await asyncio.sleep(0.1 + chance.random() * 0.4)
    broker.kill()


def test_what_a_killed_broker_acknowledged_is_read_back_over_the_wire() -> None:
    tried = acknowledged = 0
    for first in range(0, ROUNDS, ROUNDS_PER_DIRECTORY):
        directory = Path(tempfile.mkdtemp(prefix="turbopump-kill-"))
        rounds = min(ROUNDS_PER_DIRECTORY, ROUNDS - first)
        try:
            sums = asyncio.run(live_and_die(directory, rounds, random.Random(f"{SEED}/{first}")))
        except BaseException as error:
            error.add_note(f"KILL_SEED={SEED}, rounds from {first}; the files are in {directory}")
            raise
        tried, acknowledged = tried + sums[0], acknowledged + sums[1]
        shutil.rmtree(directory)
    print(f"{ROUNDS} kills, {tried} sends, {acknowledged} acknowledged")
    assert acknowledged
