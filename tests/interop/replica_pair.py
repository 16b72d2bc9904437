"""A master and its slave, each Apache's or ours, behind our name server; what is sent, and what can be seen.

Both have small files, so that a load of a few megabytes rolls the log.
"""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import signal
import struct
import time
from collections.abc import Callable
from pathlib import Path

from turbopump import Message, Producer
from turbopump.client.message import SendResult, SendStatus
from turbopump.errors import NotPrepared, Refused
from turbopump.protocol import dialect, record
from turbopump.protocol.bodies import KVTable
from turbopump.protocol.codes import RequestCode as Code
from turbopump.protocol.codes import ResponseCode

from . import peers, topics
from .asking import Refusal, ask, asked
from .stores import SMALL_FILES

BROKER = "broker-a"
PATIENCE_S = 90.0
SEND_S = 30.0
POLL_S = 0.2
QUEUES = 2
FILL = 50_000
FILE_SIZE = int(SMALL_FILES["mappedFileSizeCommitLog"])
PLAIN, TAGGED, DELAYED, PAID = TOPICS = ("plain", "tagged", "delayed", "paid")
GROUP, COMMITTED = "readers", 7
TIMER_CHECK = struct.Struct(">7q")
MOVED = (ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED)  # the queue begins later
READ_UNKNOWN_GROUP = 4  # flag of a pull that brings its subscription along

MASTER = {
    **SMALL_FILES,
    "brokerRole": "SYNC_MASTER",
    "inSyncReplicas": "2",  # 5.x waits for no slave otherwise
    "slaveReadEnable": "true",
    "messageDelayLevel": "1s 2s",
    "fileReservedTime": "10000",
}
SPLIT = {"splitMetadataSize": "5"}  # a 5.5 master has more topics than that; it must be asked for all of them
SLAVE = {**MASTER, "brokerRole": "SLAVE", "brokerId": "1"}


class ReplicaPair:
    """A master and its slave. The slave is started by `start_slave`."""

    def __init__(self, master: str, slave: str, home: Path) -> None:
        self.slave_kind = slave
        self.home = home
        conf = MASTER | SPLIT if master == "5.5.0" else MASTER
        self.master = peers.start(master, peers.place(home / "master"), conf, namesrv=peers.OURS)
        self.sent: dict[str, list[bytes]] = {topic: [] for topic in TOPICS}
        """The bodies that consumers must see, by topic."""
        self._slave: peers.Cluster | None = None
        self._round = 0
        self.producer = Producer(
            "senders",
            name_servers=self.master.namesrv,
            send_msg_timeout=SEND_S,
            retry_times_when_send_failed=0,
        )

    def __enter__(self) -> ReplicaPair:
        for topic in TOPICS:
            topics.create(self.master, topic, QUEUES)
        self.producer.start()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.producer.close()
        finally:
            if self._slave is not None:
                self._slave.discard()
            self.master.discard()

    @property
    def slave(self) -> peers.Cluster:
        assert self._slave is not None, "the slave was not started"
        return self._slave

    def start_slave(self) -> None:
        """Starts the slave on an empty store."""
        self._slave = peers.join(self.master, self.home / "slave", BROKER, SLAVE, self.slave_kind)

    # sending

    def send(self, text: str = "one") -> SendStatus:
        body = f"{self._round}-{len(self.sent[PLAIN])}-{text}".encode()
        result = self.producer.send(Message(PLAIN, body))
        self.sent[PLAIN].append(body)
        return result.status

    def send_until(self, wanted: SendStatus) -> None:
        """Sends one message after the other until one is answered with this status."""
        eventually(lambda: self.send("until") is wanted, f"no send was answered {wanted.name}")

    def load(self, count: int = 40, size: int = 500) -> set[SendStatus]:
        """Sends messages of all kinds; returns the statuses of the answers."""
        self._round += 1
        padding = b"." * size
        results: list[SendResult] = []
        for number in range(count):
            name = f"{self._round}-{number}".encode()
            results.append(self._sent(Message(PLAIN, name + padding)))
            tagged = Message(TAGGED, name + padding, tags=f"t{number % 3}", keys=f"k{number}")
            results.append(self._sent(tagged))
        batch = [Message(TAGGED, b"%d-batch-%d" % (self._round, number), keys="b") for number in range(10)]
        results += self.producer.send_batch(batch)
        self.sent[TAGGED] += [message.body for message in batch]
        results.append(self._sent(Message(DELAYED, b"%d-late" % self._round, delay_level=1)))
        if self.knows_5:
            results.append(self._sent(Message(DELAYED, b"%d-timed" % self._round, delay=2.0)))
        with contextlib.suppress(NotPrepared):  # without a slave, the client rolls half messages back
            self._send_transactions()
        return {result.status for result in results}

    def _send_transactions(self) -> None:
        """Commits a transaction and rolls another one back."""
        paid, given_up = b"%d-paid" % self._round, b"%d-given up" % self._round
        with self.producer.transaction(Message(PAID, paid)):
            pass
        self.sent[PAID].append(paid)
        transaction = self.producer.transaction(Message(PAID, given_up))
        transaction.begin()
        transaction.rollback()

    def fill(self, size: int) -> None:
        """Sends so many bytes to the plain topic, in messages of 50 kB that cannot be compressed.

        All at once: a 5.x master without a slave answers each of them after three seconds.
        """
        chance = random.Random(size)
        messages = [Message(PLAIN, chance.randbytes(FILL)) for _ in range(size // FILL + 1)]
        for sending in [self.producer.send_async(message) for message in messages]:
            sending.result(SEND_S)
        self.sent[PLAIN] += [message.body for message in messages]

    def _sent(self, message: Message) -> SendResult:
        result = self.producer.send(message)
        self.sent[message.topic].append(message.body)
        return result

    # metadata

    def make_group(self) -> None:
        """Creates a group and commits an offset for it, at the master; since 5.0 also its request mode."""
        config = {"groupName": GROUP, "retryMaxTimes": 5}
        asked(self.master.broker_addr, Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, json.dumps(config).encode())
        header = {"consumerGroup": GROUP, "topic": PLAIN, "queueId": 1, "commitOffset": COMMITTED}
        asked(self.master.broker_addr, Code.UPDATE_CONSUMER_OFFSET, **header)
        if self.knows_5:
            mode = {"consumerGroup": GROUP, "topic": PLAIN, "mode": "PULL", "popShareQueueNum": 3}
            asked(self.master.broker_addr, Code.SET_MESSAGE_REQUEST_MODE, json.dumps(mode).encode())

    @property
    def knows_5(self) -> bool:
        """Whether both know the requests of slaves since 5.0: for request modes (402) and timers (60)."""
        return "4.9.7" not in (self.master.kind, self.slave_kind)

    def metadata_at(self, broker: peers.Cluster) -> dict[str, object]:
        """Returns topics, settings of the group, its offset, and how far delays and timers are."""
        table = dialect.loads(asked(fast(broker.broker_addr), Code.GET_ALL_TOPIC_CONFIG).body)
        groups = dialect.loads(asked(broker.broker_addr, Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body)
        file = broker.store_dir / "config" / "delayOffset.json"  # which a slave only keeps
        delays = dialect.loads(file.read_bytes()) if file.exists() else {}
        offset = ask(
            broker.broker_addr, Code.QUERY_CONSUMER_OFFSET, consumerGroup=GROUP, topic=PLAIN, queueId=1
        )
        rows = table["topicConfigTable"]
        group = groups["subscriptionGroupTable"].get(GROUP, {})
        return {
            "topics": {name: rows.get(name, {}).get("readQueueNums") for name in TOPICS},
            "retries of the group": group.get("retryMaxTimes"),
            "its offset": offset.ext.get("offset"),
            "delays": {int(level): int(at) for level, at in delays.get("offsetTable", {}).items() if int(at)},
        } | (self._metadata_since_5(broker) if self.knows_5 else {})

    def _metadata_since_5(self, broker: peers.Cluster) -> dict[str, object]:
        modes = dialect.loads(asked(broker.broker_addr, Code.GET_ALL_MESSAGE_REQUEST_MODE).body)
        mode = modes["messageRequestModeMap"].get(PLAIN, {}).get(GROUP, {})
        found: dict[str, object] = {"mode of the group": (mode.get("mode"), mode.get("popShareQueueNum"))}
        if self.slave_kind != peers.OURS:  # a slave of ours finds its timers in the log when it is promoted
            check = TIMER_CHECK.unpack_from(asked(fast(broker.broker_addr), Code.GET_TIMER_CHECK_POINT).body)
            found["timers in the wheel of the master"] = check[3]
        return found

    # looking

    def extent(self, broker: peers.Cluster) -> tuple[int, int]:
        """Returns where a broker's log begins and ends."""

        def answers() -> bool:  # 4.9.7 fails with an exception of its own in its first seconds
            found[:] = [asked(broker.broker_addr, Code.GET_BROKER_RUNTIME_INFO).body]
            return True

        found: list[bytes] = []
        eventually(answers, f"{broker.broker_addr} does not say where its log ends")
        figures = KVTable.decode(found[0]).table
        return int(figures["commitLogMinOffset"]), int(figures["commitLogMaxOffset"])

    def wait_copied(self) -> None:
        """Returns when the slave's log ends where the master's does."""
        eventually(
            lambda: self.extent(self.slave)[1] == self.extent(self.master)[1],
            lambda: f"the slave has {self.extent(self.slave)}, the master {self.extent(self.master)}",
        )

    def difference(self) -> str:
        """Compares the files of both logs over their common extent; empty when they are equal."""
        mine, theirs = self.extent(self.master), self.extent(self.slave)
        begin, end = max(mine[0], theirs[0]), min(mine[1], theirs[1])
        assert begin < end, f"nothing in common: {mine}, {theirs}"
        one, other = (log_bytes(broker, begin, end) for broker in (self.master, self.slave))
        if one == other:
            return ""
        at = next(at for at, pair in enumerate(zip(one, other, strict=True)) if pair[0] != pair[1])
        return f"the logs differ at {begin + at} of {begin} to {end}"

    def read(self, broker: peers.Cluster, topic: str) -> list[bytes]:
        """Returns the bodies of a topic as one broker gives them out."""
        return [body for queue in range(QUEUES) for body in pull_all(broker.broker_addr, topic, queue)]

    def unread(self, broker: peers.Cluster) -> dict[str, int]:
        """Returns how many of the messages sent a broker does not give out, by topic."""
        missing = {topic: len(set(self.sent[topic]) - set(self.read(broker, topic))) for topic in TOPICS}
        return {topic: count for topic, count in missing.items() if count}

    def freeze_slave(self) -> None:
        self.slave.servers[-1].freeze()

    def thaw_slave(self) -> None:
        self.slave.servers[-1].signal(signal.SIGCONT)

    def empty_master(self) -> None:
        """Kills the master and starts it on an empty store."""
        self.master.kill_broker()
        shutil.rmtree(self.master.store_dir)
        self.master.start_broker()
        for topic in TOPICS:
            topics.create(self.master, topic, QUEUES)
        self.sent = {topic: [] for topic in TOPICS}


def log_bytes(broker: peers.Cluster, begin: int, end: int) -> bytes:
    """Returns a part of a log as it lies in its files."""
    pieces = []
    for start in range(begin - begin % FILE_SIZE, end, FILE_SIZE):
        data = (broker.store_dir / "commitlog" / f"{start:020d}").read_bytes()
        pieces.append(data[max(begin - start, 0) : min(end - start, FILE_SIZE)])
    return b"".join(pieces)


def pull_all(address: str, topic: str, queue: int) -> list[bytes]:
    """Returns the bodies of a queue as one broker gives them out, whichever its role."""
    return [record.body_of(one) for one in pull_records(address, topic, queue)]


def pull_records(address: str, topic: str, queue: int) -> list[record.Record]:
    """Reads a queue at one broker, whichever its role, from the first message that the broker has."""
    found: list[record.Record] = []
    offset = int(ask(address, Code.GET_MIN_OFFSET, topic=topic, queueId=queue).ext.get("offset", 0))
    while True:
        answer = ask(
            address, Code.PULL_MESSAGE, consumerGroup=GROUP, topic=topic, queueId=queue, queueOffset=offset,
            maxMsgNums=32, sysFlag=READ_UNKNOWN_GROUP, commitOffset=0, suspendTimeoutMillis=0,
            subscription="*", subVersion=0,
        )  # fmt: skip
        after = int(answer.ext.get("nextBeginOffset", 0))
        if answer.code == 0:
            found += record.decode_all(answer.body)
        elif answer.code not in MOVED or after <= offset:
            return found
        offset = after


def fast(address: str) -> str:
    """Returns the address of the fast port."""
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) - 2}"


def eventually(
    seen: Callable[[], bool], otherwise: str | Callable[[], str], within_s: float = PATIENCE_S
) -> None:
    """Waits until something can be seen; a refusal on the way counts as not yet."""
    deadline = time.monotonic() + within_s
    while True:
        try:
            if seen():
                return
            said = ""
        except (OSError, Refused, Refusal) as error:
            said = f" ({error})"
        if time.monotonic() > deadline:
            raise AssertionError(f"{otherwise if isinstance(otherwise, str) else otherwise()}{said}")
        time.sleep(POLL_S)
