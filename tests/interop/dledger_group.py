"""Three brokers in one DLedger group, each Apache's or ours: what is started, killed, moved and seen.

A node keeps its ports and directories whatever runs there, so that one kind can go on with what the other has
stored. The name server is a process of its own, which no kill of a broker touches.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from turbopump.protocol import dialect
from turbopump.protocol.codes import RequestCode as Code
from turbopump.protocol.dledger.entry import DLedgerEntry
from turbopump.protocol.record import Record
from turbopump.runtime.disk import SystemDisk
from turbopump.store.config import StoreConfig
from turbopump.store.dledger.entry_log import EntryLog

from . import peers
from .asking import Answer, Refusal, ask, asked
from .replica_pair import eventually, pull_records

APACHE = "4.9.7"  # DLedger 0.3.1.2
GROUP = "broker-a"
FILE_SIZE = 1 << 22
SIZES = {"mappedFileSizeCommitLog": str(FILE_SIZE), "maxMessageSize": "1048576"}
MASTER_ID = "0"
PATIENCE_S = 90.0
POLL_S = 0.05


class DLedgerBrokers:
    """A name server and the brokers n0, n1, n2, of the kinds given."""

    def __init__(
        self,
        home: Path,
        kinds: Sequence[str],
        namesrv: str = peers.OURS,
        conf: Mapping[str, str] | None = None,
    ) -> None:
        self.home = home
        ports = [peers.free_port() for _ in kinds]
        self.members = ";".join(f"n{number}-{peers.HOST}:{port}" for number, port in enumerate(ports))
        self._conf = {**SIZES, **(conf or {})}
        places = [peers.place(home / f"n{number}") for number in range(len(kinds))]
        shared = places[0].namesrv_port
        self.brokers = [
            peers.Cluster(kind, peers.Place(place.home, shared, place.broker_port))
            for kind, place in zip(kinds, places, strict=True)
        ]
        self._namesrv_kind = namesrv
        self._namesrv = peers.Cluster(namesrv, peers.Place(home / "namesrv", shared, 0))
        self._threads = ThreadPoolExecutor()  # a server ends with the thread that started it

    def __enter__(self) -> DLedgerBrokers:
        try:
            self._namesrv.place.home.mkdir(parents=True)
            peers.configure(self._namesrv, {})
            self._namesrv.start_namesrv()
            self.start(*range(len(self.brokers)))
            self.leader()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for broker in self.brokers:
            broker.kill()
        self._namesrv.kill()
        self._threads.shutdown()
        for broker in self.brokers:
            shutil.rmtree(broker.store_dir, ignore_errors=True)  # the logs stay for a look

    @property
    def namesrv(self) -> str:
        return self._namesrv.namesrv

    # what happens to the members

    def start(self, *numbers: int) -> None:
        """Starts members together: Apache's register when the group has a leader."""
        for number in numbers:
            peers.configure(self.brokers[number], self._settings(number))
        starts = [self._threads.submit(self.brokers[number].start_broker) for number in numbers]
        for one in starts:
            one.result()

    def start_as(self, number: int, kind: str) -> None:
        """Starts a member as the other kind, on the same directory and ports."""
        self.brokers[number] = peers.Cluster(kind, self.brokers[number].place)
        self.start(number)

    def kill(self, number: int) -> None:
        self.brokers[number].kill_broker()

    def stop(self, number: int) -> None:
        self.brokers[number].stop_broker()

    def lose_disk(self, number: int) -> None:
        """Removes the directory of a member that does not run."""
        shutil.rmtree(self.brokers[number].store_dir)

    def _settings(self, number: int) -> dict[str, str]:
        return {
            "enableDLegerCommitLog": "true",
            "dLegerGroup": GROUP,
            "dLegerSelfId": f"n{number}",
            "dLegerPeers": self.members,
            **self._conf,
        }

    # what can be seen

    def addresses(self) -> dict[str, str]:
        """Returns the addresses by broker id, as the name server knows them."""
        table = dialect.loads(asked(self.namesrv, Code.GET_BROKER_CLUSTER_INFO).body)["brokerAddrTable"]
        found = table.get(GROUP, {}).get("brokerAddrs", {})
        return {str(number): str(address) for number, address in found.items()}

    def leader(self, within_s: float = PATIENCE_S) -> int:
        """Waits for a member that the name server knows as the master; returns its number."""
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError, Refusal):
                address = self.addresses().get(MASTER_ID)
                for number, broker in enumerate(self.brokers):
                    if broker.broker_addr == address and broker.servers:
                        return number
            time.sleep(POLL_S)
        raise AssertionError(f"no leader in {within_s} s:\n{self.tails()}")

    def lead_with(self, kind: str, excluded: Sequence[int] = (), tries: int = 8) -> int:
        """Kills leaders until one of this kind leads, with all members up; returns its number."""
        for _ in range(tries):
            number = self.leader()
            if self.brokers[number].kind == kind and number not in excluded:
                return number
            self.kill(number)
            self.leader()
            self.start(number)
        raise AssertionError(f"no member of {kind} became the leader in {tries} elections")

    def tails(self) -> str:
        return "\n".join(f"n{number}: {one.broker_log[-1500:]}" for number, one in enumerate(self.brokers))

    def expect(self, seen: Callable[[], bool], what: str) -> None:
        eventually(seen, lambda: f"{what}\n{self.tails()}", PATIENCE_S)

    def records(self, number: int, topic: str, queues: int) -> list[Record]:
        """Returns the messages of a topic as one member gives them out."""
        address = self.brokers[number].broker_addr
        return [one for queue in range(queues) for one in pull_records(address, topic, queue)]

    def entries(self, number: int) -> list[DLedgerEntry]:
        """Returns the log of a member that does not run."""
        directory = str(self.brokers[number].place.store_dir)
        config = StoreConfig(root_dir=directory, dledger_id=f"n{number}", commit_log_file_size=FILE_SIZE)
        log = EntryLog.open(config, SystemDisk())
        try:
            return log.entries(log.begin_index, 1 << 24, 1 << 30)
        finally:
            log.close()


def send(address: str, topic: str, body: bytes, queue: int = 0) -> Answer:
    """Sends one message, past every client."""
    return ask(address, Code.SEND_MESSAGE, body, **send_fields(topic, queue))


def send_fields(topic: str, queue: int) -> dict[str, object]:
    """Returns the fields of a send as a client writes them."""
    return {
        "producerGroup": "p",
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 4,
        "queueId": queue,
        "sysFlag": 0,
        "bornTimestamp": 1_794_733_741_890,
        "flag": 0,
        "properties": "",
        "reconsumeTimes": 0,
        "unitMode": False,
        "batch": False,
    }


def compared(entry: DLedgerEntry) -> tuple[object, ...]:
    """Returns everything but the checksum, which Apache does not write."""
    return entry.magic, entry.size, entry.index, entry.term, entry.pos, entry.channel, entry.body
