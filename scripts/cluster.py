"""Starts a cluster of processes, kills one of its masters, and prints what clients notice: `make cluster`.

`pairs`: two name servers, two masters and a slave of each, configured as in conf/2m-2s-sync. `dledger`: two
name servers and a group of three brokers that elect their leader, configured as in conf/dledger. Everything
they write is below one directory. After the demonstration the cluster runs until Ctrl-C; with --once it is
stopped.
"""

import argparse
import contextlib
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from turbopump import Admin, Message, Producer, PullConsumer
from turbopump.errors import Refused, SendFailed
from turbopump.protocol.addresses import FAST_PORT_STEP, HA_PORT_STEP
from turbopump.protocol.bodies import TopicConfig
from turbopump.runtime.ports import reserved_port

ROOT = Path(__file__).parents[1]
PAIRS_CONF = ROOT / "conf" / "2m-2s-sync"
GROUP_CONF = ROOT / "conf" / "dledger"
HOST = "127.0.0.1"
TOPIC = "ClusterTopic"
QUEUES = 4
MESSAGES = 200
READY_S = 60.0
PATIENCE_S = 90.0
ROUTES_S = 2.0  # clients ask for routes this often here; 30 s is the default


class Node:
    """One server: its directory, its configuration and its process."""

    def __init__(self, directory: Path, name: str, program: str, conf: str, port: int) -> None:
        self.name = name
        self.address = f"{HOST}:{port}"
        self._program = program
        self._home = directory / name
        self._home.mkdir(parents=True, exist_ok=True)
        self._conf = self._home / f"{program}.conf"
        self._conf.write_text(f"{conf}listenPort={port}\nbindAddress={HOST}\n")
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Starts the process, without waiting until it serves."""
        words = [self._program, "-c", str(self._conf), "--log-dir", str(self._home / "logs")]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "turbopump", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # Ctrl-C is for this script, which stops them in order
        )

    def wait_ready(self) -> None:
        """Waits for the ready line, and lets nothing that is printed later block the process."""
        assert self.process is not None, "the process was not started"
        assert self.process.stdout is not None, "its output is read"
        printed = []
        for line in self.process.stdout:
            printed.append(line)
            if "boot success" in line:
                threading.Thread(target=_drain, args=(self.process.stdout,), daemon=True).start()
                return
        raise SystemExit(f"{self.name} did not start:\n{''.join(printed)}")

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self.process is not None and self.is_running:
            self.process.send_signal(number)
            self.process.wait(READY_S)


def _drain(lines: Iterator[str]) -> None:
    for _ in lines:
        pass


class Cluster:
    """Two name servers and brokers, in the order in which they start."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ports = contextlib.ExitStack()
        self.name_servers = [
            Node(directory, f"namesrv-{number}", "namesrv", "", self._port()) for number in (1, 2)
        ]
        self.name_server_addresses = ";".join(node.address for node in self.name_servers)
        self.brokers: dict[str, Node] = {}

    def _add_broker(self, name: str, conf: str) -> None:
        conf += (
            f"brokerIP1={HOST}\nnamesrvAddr={self.name_server_addresses}\nslaveReadEnable=true\n"
            f"storePathRootDir={self._directory / name / 'store'}\nmappedFileSizeCommitLog={64 << 20}\n"
        )
        port = self._port(FAST_PORT_STEP, HA_PORT_STEP)
        self.brokers[name] = Node(self._directory, name, "broker", conf, port)

    def _port(self, *steps: int) -> int:
        """Returns a port that stays reserved, so that a killed broker finds it free when it comes back."""
        return self._ports.enter_context(reserved_port(HOST, steps))

    def start(self) -> None:
        for nodes in (self.name_servers, list(self.brokers.values())):
            for node in nodes:
                node.start()
            for node in nodes:
                node.wait_ready()

    def stop(self) -> None:
        """Stops slaves before masters, and name servers last."""
        for node in (*reversed(self.brokers.values()), *self.name_servers):
            node.stop()
        self._ports.close()


class Pairs(Cluster):
    """Two masters and a slave of each."""

    words = "two masters and two slaves"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        for name in ("broker-a", "broker-b", "broker-a-s", "broker-b-s"):
            self._add_broker(name, (PAIRS_CONF / f"{name}.properties").read_text())


class Group(Cluster):
    """Three members of a DLedger group."""

    words = "three members of a DLedger group"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        peers = ";".join(f"{member}-{HOST}:{self._port()}" for member in MEMBERS)
        own_keys = ("listenPort", "storePathRootDir", "dLegerPeers")
        for member in MEMBERS:
            lines = (GROUP_CONF / f"broker-{member}.conf").read_text().splitlines()
            kept = [line for line in lines if not line.startswith(own_keys)]
            self._add_broker(member, "\n".join([*kept, f"dLegerPeers={peers}", ""]))


MEMBERS = ("n0", "n1", "n2")


class Story:
    """Sends and reads, counts, and prints what happened with the time since the start."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._began = time.monotonic()
        self._number = 0
        self.acknowledged: set[str] = set()
        self.read: dict[str, str] = {}  # text of a message, and the broker name it was read from

    def tell(self, text: str) -> None:
        print(f"{time.monotonic() - self._began:6.1f} s  {text}", flush=True)

    def send(self, producer: Producer, count: int) -> str:
        """Sends messages; returns a summary of the receipts."""
        receipts: Counter[str] = Counter()
        failed = 0
        for _ in range(count):
            text = f"message {self._number}"
            self._number += 1
            try:
                sent = producer.send(Message(TOPIC, text.encode()))
            except SendFailed:
                failed += 1
                continue
            self.acknowledged.add(text)
            copies = f"replicas={sent.replicas}" if sent.term is None else f"quorum in term {sent.term}"
            receipts[f"{sent.queue.broker}: {sent.status.name}, {copies}"] += 1
        shown = "; ".join(f"{number} x {words}" for words, number in sorted(receipts.items()))
        return shown + (f"; {failed} failed" if failed else "")

    def until(self, what: Callable[[], bool], words: str) -> float:
        """Waits until something holds; returns how long that took."""
        began = time.monotonic()
        while not what():
            if time.monotonic() - began > PATIENCE_S:
                raise SystemExit(f"not within {PATIENCE_S:g} s: {words}")
            time.sleep(0.1)
        return time.monotonic() - began


def show_a_masters_death(cluster: Cluster, story: Story) -> None:
    name_servers = cluster.name_server_addresses
    masters = [cluster.brokers[name] for name in ("broker-a", "broker-b")]
    producer = Producer("cluster-demo", name_servers=name_servers, poll_name_server_interval=ROUTES_S)
    with Admin(name_servers) as admin, producer:
        config = TopicConfig(topicName=TOPIC, readQueueNums=QUEUES, writeQueueNums=QUEUES)
        for master in masters:
            admin.topics.create(master.address, config)

        def in_sync(master: Node) -> bool:
            return admin.brokers.ha_status(master.address).inSyncSlaveNums == 1

        took = story.until(lambda: all(map(in_sync, masters)), "slaves follow their masters")
        story.tell(f"both slaves follow their masters ({took:.1f} s after the topic was made)")
        story.tell(f"sent: {story.send(producer, MESSAGES)}")
        victim = masters[0]
        killed = time.monotonic()
        victim.stop(signal.SIGKILL)
        story.tell("killed the master of broker-a with SIGKILL")
        story.tell(f"sent: {story.send(producer, MESSAGES)}")
        first_read = read_all(cluster, story, killed)
        from_dead = sum(name == "broker-a" for name in story.read.values())
        story.tell(
            f"read {from_dead} messages of broker-a from its slave, the first {first_read:.1f} s after it"
        )
        victim.start()
        victim.wait_ready()
        story.tell("started the master of broker-a again")
        took = story.until(lambda: in_sync(victim), "the slave follows again")
        story.tell(f"its slave follows again, {took:.1f} s later")
        took = story.until(
            lambda: "broker-a: SEND_OK" in story.send(producer, 2 * QUEUES), "a send goes to broker-a"
        )
        story.tell(f"sends go to broker-a again, {took:.1f} s later")
    read_all(cluster, story, killed)
    count(story)


def show_an_election(cluster: Cluster, story: Story) -> None:
    name_servers = cluster.name_server_addresses
    members = cluster.brokers
    producer = Producer("cluster-demo", name_servers=name_servers, poll_name_server_interval=ROUTES_S)
    with Admin(name_servers) as admin, producer:

        def leader() -> str | None:
            """Returns the member that leads by the word of all that run, and serves as master."""
            found = {
                admin.brokers.raft_status(node.address).leader for node in members.values() if node.is_running
            }
            return found.pop() if len(found) == 1 and "" not in found else None

        def reached(name: str) -> int:
            return admin.brokers.raft_status(members[name].address).committedIndex

        took = story.until(lambda: leader() is not None, "a leader is elected")
        first = leader()
        assert first is not None
        story.tell(f"{first} leads ({took:.1f} s after the start)")
        config = TopicConfig(topicName=TOPIC, readQueueNums=QUEUES, writeQueueNums=QUEUES)
        story.until(lambda: _is_made(admin, members[first].address, config), "the topic is made")
        story.tell(f"sent: {story.send(producer, MESSAGES)}")
        killed = time.monotonic()
        members[first].stop(signal.SIGKILL)
        story.tell(f"killed the leader {first} with SIGKILL")
        took = story.until(lambda: "SEND_OK" in story.send(producer, 1), "a send is acknowledged")
        story.until(lambda: leader() not in (None, first), "the others know their leader")
        second = leader()
        assert second is not None
        story.tell(f"{second} leads: the first send was acknowledged {took:.1f} s after the kill")
        story.tell(f"sent: {story.send(producer, MESSAGES)}")
        members[first].start()
        members[first].wait_ready()
        took = story.until(
            lambda: leader() == second and reached(first) >= reached(second), f"{first} follows"
        )
        story.tell(f"started {first} again: it follows {second} and has all entries, {took:.1f} s later")
    read_all(cluster, story, killed)
    count(story)


def _is_made(admin: Admin, address: str, config: TopicConfig) -> bool:
    try:
        admin.topics.create(address, config)
    except Refused:  # the member that was elected does not serve as master yet
        return False
    return True


def count(story: Story) -> None:
    missing = len(story.acknowledged - story.read.keys())
    story.tell(f"{len(story.acknowledged)} messages were acknowledged, {missing} of them are missing")
    if missing:
        raise SystemExit(1)


def read_all(cluster: Cluster, story: Story, since: float) -> float:
    """Reads everything from the first message on; returns when the first one of broker-a came."""
    first_read = -1.0
    group = f"cluster-demo-{len(story.read)}"
    with PullConsumer(group, topics=[TOPIC], name_servers=cluster.name_server_addresses) as consumer:
        deadline = time.monotonic() + PATIENCE_S
        while story.acknowledged - story.read.keys() and time.monotonic() < deadline:
            for message in consumer.poll(timeout=1.0):
                if message.queue.broker == "broker-a" and first_read < 0:
                    first_read = time.monotonic() - since
                story.read[message.text] = message.queue.broker
    return first_read


KINDS = {"pairs": (Pairs, show_a_masters_death), "dledger": (Group, show_an_election)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", nargs="?", choices=KINDS, default="pairs", help="what to start (pairs)")
    parser.add_argument("--data", default="data-cluster", metavar="DIR", help="directory of all data")
    parser.add_argument("--once", action="store_true", help="stop the cluster after the demonstration")
    options = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # a shell's background job ignores SIGINT
        signal.signal(number, signal.default_int_handler)
    kind, demonstrate = KINDS[options.kind]
    cluster = kind(Path(options.data).absolute())
    story = Story(cluster)
    try:
        cluster.start()
        story.tell(f"two name servers ({cluster.name_server_addresses}) and {kind.words} serve")
        demonstrate(cluster, story)
        if not options.once:
            print(f"\nThe cluster runs. export NAMESRV_ADDR='{cluster.name_server_addresses}'")
            print("Try: turbopump health, mqadmin clusterList. Ctrl-C stops it.", flush=True)
            signal.pause()
    except KeyboardInterrupt:
        print()
    finally:
        cluster.stop()
        print("All servers have stopped.", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
