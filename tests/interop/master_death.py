"""Producers and consumers of each client while one of two masters is killed and comes back.

broker-a has a SYNC_MASTER and a slave, broker-b a master. Each client has a producer and two groups:

    stay     consumes all the time, but is behind when the master of broker-a is killed: it must read the rest
             from the slave
    leave    is started while the master is away, commits at the slave and ends; it is started again when the
             master is back

Go's client has no `leave`: it asks the master alone for offsets, and commits there alone.

`observe` returns what each client noticed, with times, and what should not have happened.
"""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests import again

from turbopump.protocol.codes import RequestCode as Code

from . import clients, peers, topics, workers
from .asking import ask, asked
from .peers import Cluster
from .stores import SMALL_FILES
from .workers import Crew, Got, Sent, Tally, Worker

A, B = "broker-a", "broker-b"
TOPIC = "orders"
QUEUES = 2
KEYS = 4
INTERVAL_MS = 20
PULL = 32  # messages that a pull which was under way at the kill can have brought
BACKLOG = 3 * PULL  # for each queue
PATIENCE_S = 120.0
POLL_S = 0.5
# On a busy machine the first request of a client may take longer than its limit of 3 s. Java 5.5.0 gives up
# then: three times in a row beside a pair of 5.5.0, which alone keeps two cores busy.
MAX_STARTS = 10
EVERY_MS = "EVERY_MS"
# A 5.5.0 broker that was killed forgets the subscriptions of clients with short heartbeats. They go on with
# short ones when it is back, and for minutes their pulls are answered 24. Stronger than the command line.
FULL_HEARTBEATS = {"_JAVA_OPTIONS": "-Dcom.rocketmq.heartbeat.v2=false"}

MASTER = {
    **SMALL_FILES,
    "brokerRole": "SYNC_MASTER",
    "inSyncReplicas": "2",  # 5.x waits for no slave otherwise
    "slaveReadEnable": "true",
}
SLAVE = {**MASTER, "brokerRole": "SLAVE", "brokerId": "1"}

Offsets = dict[int, int]  # by queue

FORGOTTEN_COMMITS = "D129"  # a row of docs/compatibility.md
REPEATED = "messages came again that no forgotten commit explains"


@dataclass(frozen=True)
class Experience:
    """What a client noticed. Seconds count from the kill, `back_s` from the start of the old master."""

    client: str
    send_s: float  # the first message that was tried after the kill is acknowledged
    pause_s: float  # the longest time without an acknowledgement while the master was away
    read_s: float  # the first message from the slave
    drained_s: float  # all of broker-a is consumed
    back_s: float  # the old master acknowledges a send
    failed: int  # sends that failed while the master was away
    failed_later: int  # sends that failed or were not copied after its return
    stay: Tally
    leave: Tally
    read_again: int  # messages that `leave` got again though it had committed them at the slave
    old_repeats: int  # deliveries again of messages that were sent before the master's return

    def __str__(self) -> str:
        return (
            f"{self.client}: after the kill first send {self.send_s:.1f} s, "
            f"longest pause of sends {self.pause_s:.1f} s, "
            f"first read from the slave {self.read_s:.1f} s, all {self.drained_s:.1f} s; "
            f"first send to the old master {self.back_s:.1f} s after its start; "
            f"sends failed: {self.failed} while it was away, {self.failed_later} later; "
            f"repeated: {self.stay.repeated} of {self.stay.messages} by who stayed, "
            f"{self.leave.repeated} of {self.leave.messages} by who left, "
            f"{self.read_again} of them committed at the slave, "
            f"{self.old_repeats} of all sent before its return"
        )


@dataclass(frozen=True)
class Observed:
    experiences: list[Experience]
    problems: list[str]


def observe(names: Sequence[str], kind: str, home: Path, every_ms: int | None = None) -> Observed:
    """Plays it with a cluster of that kind.

    `every_ms`: how often clients ask for routes and commit if that can be set, instead of every 30 and 5 s.
    """
    logs = home / "logs"
    logs.mkdir(parents=True)
    brokers = [peers.start(kind, peers.place(home / A), MASTER)]
    try:
        brokers.append(peers.join(brokers[0], home / f"{A}-slave", A, SLAVE))
        brokers.append(peers.join(brokers[0], home / B, B, SMALL_FILES))
        env = {} if every_ms is None else {EVERY_MS: str(every_ms)}
        if kind == "5.5.0":
            env |= FULL_HEARTBEATS
        with Crew(brokers[0].namesrv, logs, env) as crew:
            return Scene(names, crew, *brokers).play()
    finally:
        for broker in reversed(brokers):
            broker.discard()


class Member:
    """A client's producer and its two groups."""

    def __init__(self, client: str, crew: Crew) -> None:
        self.client = client
        name = client.replace(".", "_")
        self.sender, self.stay, self.leave = (f"{word}-{name}" for word in ("send", "stay", "leave"))
        self.commits_at_slave = client != clients.GO
        self.groups = (self.stay, self.leave) if self.commits_at_slave else (self.stay,)
        self._crew = crew
        self.stays = self._started(f"consume:{self.stay}:{self.stay}:{TOPIC}:concurrent")
        self.producer: Worker | None = None
        self.leaves: Worker | None = None

    def _started(self, job: str) -> Worker:
        worker = self._crew.add(self.client, job)
        wait_ready(worker)
        return worker

    def start_sending(self) -> None:
        self.producer = self._started(f"produce:{self.sender}:{TOPIC}:{KEYS}:{INTERVAL_MS}:sync")

    def end_sending(self) -> None:
        assert self.producer is not None
        self.producer.stop()

    def start_leaving(self) -> None:
        """Starts the second group, for the first time or again."""
        if self.leave not in self.groups:
            return
        if self.leaves is None:
            self.leaves = self._started(f"consume:{self.leave}:{self.leave}:{TOPIC}:concurrent")
        else:
            self.leaves.start()
            wait_ready(self.leaves)

    def leaves_now(self) -> None:
        if self.leaves is not None:
            self.leaves.stop()

    def acknowledged(self) -> list[Sent]:
        return self._mine(self._crew.acknowledged(TOPIC))

    def failed(self) -> list[Sent]:
        return self._mine(self._crew.failed(TOPIC))

    def _mine(self, sends: list[Sent]) -> list[Sent]:
        return [one for one in sends if one.key.startswith(f"{self.sender}-")]


class Scene:
    def __init__(
        self, names: Sequence[str], crew: Crew, master: Cluster, slave: Cluster, other: Cluster
    ) -> None:
        self._crew = crew
        self._master, self._slave, self._other = master, slave, other
        for broker in (master, other):
            topics.create(broker, TOPIC, QUEUES)
        expect(self._slave_has_topic, "the slave does not know the topic")
        self._members = [Member(name, crew) for name in names]
        self._killed = self._resumed = self._returned = self._restarted = 0.0
        self._remaining: list[Sent] = []  # all that broker-a had acknowledged at the kill
        self._committed: dict[str, Offsets] = {}

    def play(self) -> Observed:
        self._load_both()
        self._fall_behind()
        self._kill_master()
        self._read_from_slave()
        self._commit_at_slave()
        self._return_master()
        self._end()
        return Observed([self._experience(member) for member in self._members], self._problems())

    # what happens

    def _load_both(self) -> None:
        for member in self._members:
            member.start_sending()
        for member in self._members:
            for broker in (A, B):
                self._expect_send(member, broker, since=0.0)
                self._expect_read(member.stay, broker, since=0.0)

    def _fall_behind(self) -> None:
        for member in self._members:
            member.stays.pause()
        since = time.time()

        def enough() -> bool:
            count: dict[tuple[str, int], int] = defaultdict(int)
            for one in self._crew.acknowledged(TOPIC):
                count[one.broker, one.queue] += one.at > since
            return all(count[A, queue] >= BACKLOG for queue in range(QUEUES))

        expect(enough, "there is no backlog")

    def _kill_master(self) -> None:
        self._killed = time.time()
        self._master.kill_broker()
        self._resumed = time.time()
        for member in self._members:
            member.stays.resume()

    def _read_from_slave(self) -> None:
        """Waits until each group has all that broker-a acknowledged."""
        self._remaining = [one for one in self._crew.acknowledged(TOPIC) if one.broker == A]
        for member in self._members:
            self._expect_drained(member.stay)
        for member in self._members:
            member.start_leaving()
        for member in self._members:
            for group in member.groups:
                self._expect_drained(group)
        for member in self._members:
            self._expect_send(member, B, since=self._killed)

    def _expect_drained(self, group: str) -> None:
        expect(
            lambda: not workers.lost(self._remaining, self._crew.got(group)),
            f"{group} did not read the rest from the slave",
        )

    def _commit_at_slave(self) -> None:
        """Waits until the groups have committed at the slave, and ends those that leave."""
        groups = [group for member in self._members if member.commits_at_slave for group in member.groups]
        ends = {queue: self._end_of(queue) for queue in range(QUEUES)}
        for group in groups:
            self._expect_committed(self._slave, group, ends)
        for member in self._members:
            member.leaves_now()
        self._committed = {group: self._offsets(self._slave, group) for group in groups}

    def _return_master(self) -> None:
        self._returned = time.time()
        self._master.start_broker()
        if self._master.kind == peers.OURS:  # Apache's slaves forget what was committed there
            for group, offsets in self._committed.items():
                self._expect_committed(self._master, group, offsets)
        self._restarted = time.time()
        for member in self._members:
            member.start_leaving()
        for member in self._members:
            self._expect_send(member, A, since=self._restarted)
            for group in member.groups:
                self._expect_read(group, A, since=self._restarted)

    def _end(self) -> None:
        for member in self._members:
            member.end_sending()
        sent = self._crew.acknowledged(TOPIC)
        groups = [group for member in self._members for group in member.groups]
        workers.eventually(
            lambda: not any(workers.lost(sent, self._crew.got(group)) for group in groups),
            PATIENCE_S,
            POLL_S,
        )

    # what can be seen

    def _slave_has_topic(self) -> bool:
        return ask(self._slave.broker_addr, Code.GET_TOPIC_STATS_INFO, topic=TOPIC).code == 0

    def _expect_send(self, member: Member, broker: str, since: float) -> None:
        """Waits until this broker acknowledges a message that was first tried since then."""

        def sends() -> bool:
            return any(one.broker == broker and one.sequence > since * 1e6 for one in member.acknowledged())

        expect(sends, f"{member.client} does not send to {broker}")

    def _expect_read(self, group: str, broker: str, since: float) -> None:
        """Waits until the group gets a message of this broker that was first tried since then."""

        def reads() -> bool:
            got = self._crew.got(group)
            return any(one.broker == broker and one.sequence > since * 1e6 for one in got)

        expect(reads, f"{group} does not read from {broker}")

    def _expect_committed(self, broker: Cluster, group: str, offsets: Offsets) -> None:
        """Waits until the group has committed at least these offsets at a broker."""

        def committed() -> bool:
            found = self._offsets(broker, group)
            return all(found.get(queue, -1) >= offset for queue, offset in offsets.items())

        expect(
            committed,
            lambda: (
                f"{group} has committed {self._offsets(broker, group)} of {offsets} at {broker.broker_addr}"
            ),
        )

    def _end_of(self, queue: int) -> int:
        """Returns where a queue of broker-a ends at the slave."""
        answer = asked(self._slave.broker_addr, Code.GET_MAX_OFFSET, topic=TOPIC, queueId=queue)
        return int(answer.ext["offset"])

    def _offsets(self, broker: Cluster, group: str) -> Offsets:
        """Returns what the group has committed at a broker."""
        found = {}
        for queue in range(QUEUES):
            answer = ask(
                broker.broker_addr,
                Code.QUERY_CONSUMER_OFFSET,
                consumerGroup=group,
                topic=TOPIC,
                queueId=queue,
            )
            if answer.code == 0:
                found[queue] = int(answer.ext["offset"])
        return found

    # what came of it

    def _experience(self, member: Member) -> Experience:
        acknowledged = member.acknowledged()
        failed = [one.at for one in member.failed() if one.at > self._killed]
        stay, leave = self._crew.got(member.stay), self._crew.got(member.leave)
        back = (one.at for one in acknowledged if one.broker == A and one.at > self._returned)
        later = (one.at for one in acknowledged if one.sequence > self._killed * 1e6)
        return Experience(
            client=member.client,
            send_s=min(later) - self._killed,
            pause_s=longest_pause((one.at for one in acknowledged), self._killed, self._returned),
            read_s=first_from_slave(stay, self._resumed) - self._killed,
            drained_s=drained_at(self._remaining, stay) - self._killed,
            back_s=min(back) - self._returned,
            failed=sum(at < self._returned for at in failed),
            failed_later=sum(at >= self._returned for at in failed),
            stay=workers.tally(stay),
            leave=workers.tally(leave),
            old_repeats=len(old_repeats(stay, self._returned)) + len(old_repeats(leave, self._returned)),
            read_again=len(read_again(leave, self._restarted, self._committed.get(member.leave, {}))),
        )

    def _problems(self) -> list[str]:
        acknowledged, failed = self._crew.acknowledged(TOPIC), self._crew.failed(TOPIC)
        problems = []
        for member in self._members:
            for group in member.groups:
                got = self._crew.got(group)
                problems += [f"{group} lost {one}" for one in workers.lost(acknowledged, got)]
                problems += [
                    f"{group} got what was never sent: {one}"
                    for one in never_sent(acknowledged + failed, got)
                ]
                problems += [f"{group} got elsewhere: {one}" for one in misplaced(acknowledged, got)]
        return problems


def differences(experiences: Iterable[Experience]) -> set[str]:
    """Returns in what a run differs from what our brokers promise, as rows of docs/compatibility.md."""
    found = set()
    for one in experiences:
        if one.read_again:
            found.add(FORGOTTEN_COMMITS)
        if one.old_repeats > one.read_again:
            found.add(REPEATED)
    return found


def expect(condition: Callable[[], bool], otherwise: str | Callable[[], str]) -> None:
    found = workers.eventually(condition, PATIENCE_S, POLL_S)
    assert found, otherwise if isinstance(otherwise, str) else otherwise()


def wait_ready(worker: Worker) -> None:
    """Waits until a worker is ready, and starts it again if it ended before."""
    for _ in range(MAX_STARTS - 1):
        try:
            worker.wait_ready()
        except RuntimeError as error:
            again.record(f"{worker} did not start", str(error))
            worker.start()
        else:
            return
    worker.wait_ready()


def longest_pause(times: Iterable[float], begin: float, end: float) -> float:
    """Returns the longest time between `begin` and `end` without any of these."""
    points = [begin, *sorted(at for at in times if begin < at < end), end]
    return max(after - before for before, after in itertools.pairwise(points))


def first_from_slave(got: Iterable[Got], resumed: float) -> float:
    """Returns when the first message of broker-a came that no pull under way at the kill can have brought."""
    mine = [one for one in got if one.broker == A]
    reached: dict[int, int] = defaultdict(lambda: -1)
    for one in mine:
        if one.at < resumed:
            reached[one.queue] = max(reached[one.queue], one.offset)
    return min(one.at for one in mine if one.at >= resumed and one.offset > reached[one.queue] + PULL)


def drained_at(sent: Iterable[Sent], got: Iterable[Got]) -> float:
    """Returns when the last of these messages came for the first time."""
    first: dict[tuple[str, int], float] = {}
    for one in got:
        first.setdefault((one.key, one.sequence), one.at)
    return max(first[one.key, one.sequence] for one in sent)


def read_again(got: Iterable[Got], since: float, committed: Offsets) -> list[Got]:
    """Returns the messages of broker-a that came since then though they were committed."""
    return [
        one for one in got if one.broker == A and one.at > since and one.offset < committed.get(one.queue, 0)
    ]


def old_repeats(got: Iterable[Got], returned: float) -> list[Got]:
    """Returns the second and further deliveries of messages that were first tried before then.

    Those that were sent later may come from the slave first, and again from the master, which does not know
    what its slave has given out.
    """
    seen: set[tuple[str, int, int]] = set()
    found = []
    for one in got:
        place = one.broker, one.queue, one.offset
        if place in seen and one.sequence < returned * 1e6:
            found.append(one)
        seen.add(place)
    return found


def never_sent(tried: Iterable[Sent], got: Iterable[Got]) -> list[Got]:
    """Returns what no producer tried. One that is ended may not have written down its very last message."""
    known = set()
    last: dict[str, int] = defaultdict(int)
    for one in tried:
        known.add((one.key, one.sequence))
        last[sender(one.key)] = max(last[sender(one.key)], one.sequence)
    unknown = [one for one in got if (one.key, one.sequence) not in known]
    final = {sender(one.key): one.sequence for one in unknown if one.sequence > last[sender(one.key)]}
    return [one for one in unknown if final.get(sender(one.key)) != one.sequence]


def sender(key: str) -> str:
    """Returns the name of the producer."""
    return key.rpartition("-")[0]


def misplaced(acknowledged: Iterable[Sent], got: Iterable[Got]) -> list[Sent]:
    """Returns what was consumed, but never from the place that was acknowledged."""
    places: dict[tuple[str, int], set[tuple[str, int, int]]] = defaultdict(set)
    for one in got:
        places[one.key, one.sequence].add((one.broker, one.queue, one.offset))
    return [
        one
        for one in acknowledged
        if places[one.key, one.sequence]
        and (one.broker, one.queue, one.offset) not in places[one.key, one.sequence]
    ]
