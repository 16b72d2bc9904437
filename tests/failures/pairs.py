"""A master and a slave of one kind as processes, each with a link before its replication port.

The name server is ours for every kind: it stores nothing. Both brokers have the same configuration except
for role, id and how a slave learns the address of its master's link: by `haMasterAddress`, which keeps it
from using the replication address that the name server knows. A slave of 5.5.0 with that key connects to
nothing at all, so there a link before the name server replaces the address in its answers.
"""

from __future__ import annotations

import re
import shutil
import signal
import time
from collections.abc import Mapping
from pathlib import Path

from tests.failures import disks
from tests.failures.count import Found, History, Loss
from tests.failures.links import HOST, Links
from tests.interop import peers, topics
from tests.interop.asking import asked
from tests.interop.replica_pair import eventually, fast, pull_records
from tests.interop.stores import SMALL_FILES

from turbopump.protocol import record
from turbopump.protocol.bodies import KVTable
from turbopump.protocol.codes import RequestCode

KINDS = (peers.OURS, "4.9.7", "5.5.0")
LEARNS_FROM_NAME_SERVER = "5.5.0"
BROKER = "broker-a"
TOPIC = "failures"
QUEUES = 4
SIZES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20}

CONFIGURATION = {
    **SMALL_FILES,
    "brokerRole": "SYNC_MASTER",
    "inSyncReplicas": "2",  # 5.x waits for no slave otherwise
    "slaveReadEnable": "true",
    "slaveTimeout": "1000",
    "haSendHeartbeatInterval": "1000",
    "haHousekeepingInterval": "4000",
    "fileReservedTime": "10000",
}


class Node:
    """One broker of a pair: its process, its directory, and the link before its replication port."""

    def __init__(self, name: str, cluster: peers.Cluster, links: Links) -> None:
        self.name = name
        self.cluster = cluster
        self.ha_address = f"{HOST}:{cluster.place.broker_port + 1}"
        self.link = links.open(self.ha_address)

    @property
    def address(self) -> str:
        return self.cluster.broker_addr

    @property
    def is_running(self) -> bool:
        return bool(self.cluster.servers)

    def kill(self) -> None:
        """Ends the process with SIGKILL."""
        self.cluster.kill_broker()

    def stop(self) -> None:
        """Ends the process as an operator does."""
        self.cluster.stop_broker()

    def start(self) -> None:
        self.cluster.start_broker()

    def pause(self) -> None:
        self.cluster.servers[-1].signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.cluster.servers[-1].signal(signal.SIGCONT)

    def destroy_disk(self) -> None:
        shutil.rmtree(self.cluster.store_dir)

    def synced(self) -> int:
        """Returns how much of its log the broker says is on its disk."""
        figures = KVTable.decode(asked(self.address, RequestCode.GET_BROKER_RUNTIME_INFO).body).table
        return int(figures["commitLogMaxOffset"]) - size_of(figures["remainHowManyDataToFlush"])

    def cut_power(self, unit: int = disks.PAGE) -> int:
        """Kills the broker when it has synced something, and takes the rest; returns how many bytes.

        What it had synced is rounded down to a multiple of `unit`.
        """
        eventually(lambda: self.synced() > 0, f"{self.name} has synced nothing")
        synced = self.synced()
        self.kill()
        return disks.lose_unsynced(self.cluster.store_dir / "commitlog", synced, unit)

    def read(self) -> list[Found]:
        """Returns the messages that this broker gives out."""
        return [
            Found(queue, one.queue_offset, name_of(record.body_of(one)))
            for queue in range(QUEUES)
            for one in pull_records(self.address, TOPIC, queue)
        ]


class Pair:
    """Two brokers of one name; `a` begins as the master, `b` as its slave."""

    def __init__(self, kind: str, home: Path, conf: Mapping[str, str], disk_of: str, disk_size: int) -> None:
        self.kind = kind
        self._conf = {**CONFIGURATION, **conf}
        self._links = Links()
        self.disk: disks.SmallDisk | None = None
        self.nodes: list[Node] = []
        self._namesrv: peers.Cluster | None = None
        self._home = home
        self.disk_of, self._disk_size = disk_of, disk_size
        self.history = History(frozenset("ab"))

    def __enter__(self) -> Pair:
        try:
            self._start_both()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for node in reversed(self.nodes):
            node.cluster.discard()
        if self._namesrv is not None:
            self._namesrv.kill()
        if self.disk is not None:
            self.disk.close()
        self._links.close()

    @property
    def a(self) -> Node:
        return self.nodes[0]

    @property
    def b(self) -> Node:
        return self.nodes[1]

    @property
    def namesrv(self) -> str:
        return self.a.cluster.namesrv

    def node_at(self, port: int) -> str:
        """Returns the name of the broker with this port."""
        return next((node.name for node in self.nodes if node.cluster.place.broker_port == port), "")

    def lost(self, node: Node) -> None:
        """Notes that a broker has lost messages, or does not belong to the pair's log any more."""
        self.history.losses.append(Loss(time.monotonic(), node.name))

    def destroy(self, node: Node) -> None:
        """Kills a broker and destroys its disk."""
        node.kill()
        node.destroy_disk()
        self.lost(node)

    def promote(self, node: Node) -> None:
        """Restarts a slave as the master, as an operator does by hand."""
        if node.is_running:
            node.stop()
        self._configure(node, None)
        node.start()

    def follow(self, node: Node, master: Node) -> None:
        """Starts a stopped broker as the slave of another one."""
        self._configure(node, master)
        node.start()

    def follow_empty(self, node: Node, master: Node) -> None:
        """Starts a broker without a store as a slave."""
        self._give_topics(node, master)
        self.follow(node, master)

    def make_topic(self, node: Node) -> None:
        topics.create(node.cluster, TOPIC, QUEUES)

    def _start_both(self) -> None:
        place = peers.place(self._home / "a")
        first = peers.Cluster(self.kind, place, prefix=self._prefix("a", place.store_dir))
        self.nodes.append(Node("a", first, self._links))
        self._name_link = self._links.open(place.namesrv)
        self._name_link.replace(self.a.ha_address, self.a.link.address)
        self._configure(self.a, None)
        self._namesrv = peers.Cluster(peers.OURS, place)
        self._namesrv.start_namesrv()
        self.a.start()
        self.make_topic(self.a)
        other = peers.place(self._home / "b")
        second = peers.Cluster(
            self.kind,
            peers.Place(other.home, place.namesrv_port, other.broker_port),
            prefix=self._prefix("b", other.store_dir),
        )
        self.nodes.append(Node("b", second, self._links))
        self._name_link.replace(self.b.ha_address, self.b.link.address)
        self.follow_empty(self.b, self.a)

    def _give_topics(self, node: Node, master: Node) -> None:
        """Gives an Apache slave its master's topics: 5.5 copies them only after its first minute."""
        if self.kind == peers.OURS:
            return
        store = node.cluster.store_dir
        config = (self.disk.inside if self.disk and node.name == self.disk_of else store) / "config"
        config.mkdir(parents=True)
        table = asked(fast(master.address), RequestCode.GET_ALL_TOPIC_CONFIG).body
        (config / "topics.json").write_bytes(table)

    def _prefix(self, name: str, store_dir: Path) -> tuple[str, ...]:
        if name != self.disk_of:
            return ()
        self.disk = disks.SmallDisk(store_dir, self._disk_size)
        return self.disk.prefix

    def _configure(self, node: Node, master: Node | None) -> None:
        role = {"brokerRole": self._conf["brokerRole"], "brokerId": "0"}
        if master is not None:
            role = {"brokerRole": "SLAVE", "brokerId": "1"}
            if self.kind != LEARNS_FROM_NAME_SERVER:
                role["haMasterAddress"] = master.link.address
        if self.kind == LEARNS_FROM_NAME_SERVER:
            role["namesrvAddr"] = self._name_link.address
        peers.configure(node.cluster, {"brokerName": BROKER, **self._conf, **role})


def size_of(text: str) -> int:
    """Reads a number of bytes as brokers print it, such as `1.5 MiB`; rounded up by one step of its unit."""
    found = re.fullmatch(r"([\d.]+) (B|KiB|MiB)", text)
    assert found is not None, f"a size must be such as `1.5 MiB`, got {text!r}"
    unit = SIZES[found[2]]
    return int(float(found[1]) * unit) + (unit // 10 if unit > 1 else 0)


def body_of(name: str, size: int) -> bytes:
    """Returns a body of that many bytes that begins with the message's name."""
    return name.encode().ljust(size, b".")


def name_of(body: bytes) -> str:
    return body.rstrip(b".").decode()
