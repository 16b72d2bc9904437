"""Broker, producers and consumers of each language killed at random by a seed, and what must hold even so.

Every language has a producer and, of an ordered and of a concurrent group, two members in two processes. All
groups consume all messages. The offsets that the broker has for each group are looked at twice a second: when
a consumer starts again it may repeat what was not committed, and no more. After a kill of the broker,
committed is what its `consumerOffset.json` says.
"""

from __future__ import annotations

import random
import re
import threading
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from . import topics, workers
from .asking import ask
from .peers import Cluster
from .workers import Crew, Got, Worker

TOPIC = "churn"
QUEUES = 4
KEYS = 8
INTERVAL_MS = 20
MODES = ("ordered", "concurrent")

QUERY_OFFSET = 14
SAMPLE_S = 0.5
SESSION_GAP_S = 3.0  # a member that got nothing for so long may have lost the queue and got it again
DRAIN_S = 300.0  # Go looks after a queue whose pulls have stopped after 120 s, and its locks take 40 s more

Queue = tuple[str, int]  # group and queue
STEP_BACK = re.compile(rf"Commit of group (\S+) on {TOPIC} queue (\d+) goes back from (\d+) to (\d+)")
NOTHING = 1 << 62  # beyond every offset


class Offsets:
    """What is committed, over time."""

    def __init__(self) -> None:
        self._steps: dict[Queue, list[tuple[int, int]]] = defaultdict(list)
        self._times: dict[Queue, list[float]] = defaultdict(list)
        self._values: dict[Queue, list[int]] = defaultdict(list)
        self._kept: dict[Queue, list[tuple[float, int]]] = defaultdict(list)

    def note(self, queue: Queue, at: float, offset: int) -> None:
        self._times[queue].append(at)
        self._values[queue].append(offset)

    def killed(self, at: float, kept: dict[Queue, int]) -> None:
        """From now on, committed is what was written down."""
        for queue in {*self._times, *kept}:
            self.note(queue, at, kept.get(queue, 0))
            self._kept[queue].append((at, kept.get(queue, 0)))

    def kept_since(self, queue: Queue, since: float, until: float) -> int:
        """The lowest that kills in that time left."""
        return min((offset for at, offset in self._kept[queue] if since <= at <= until), default=NOTHING)

    def stepped_back(self, queue: Queue, before: int, after: int) -> None:
        """A member that did not know that it had lost the queue committed what it had handled. That may be
        over before anybody looks, but not before another member has asked where to go on.
        """
        self._steps[queue].append((after, before))

    def may_repeat(self, queue: Queue, offset: int) -> bool:
        return any(after <= offset < before for after, before in self._steps[queue])

    def least(self, queue: Queue, since: float, until: float) -> int:
        """The lowest that a consumer may have been told in that time."""
        times, values = self._times[queue], self._values[queue]
        first = bisect_right(times, since - SAMPLE_S) - 1
        return min(values[first : bisect_right(times, until)], default=0) if first >= 0 else 0


def went_back(
    group: str, got: Iterable[Got], offsets: Offsets, began: Callable[[str, float], float]
) -> list[str]:
    """Deliveries from before the committed offset.

    One that did not notice that it had lost a queue for a while, because it had no answers, goes on where it
    was: that is no way back. `began` tells when the process of a member was started.
    """
    sessions: dict[tuple[str, float, int], Session] = defaultdict(Session)
    found = []
    for one in got:
        if one.times > 0:
            continue
        started = began(one.member, one.at)
        session = sessions[one.member, started, one.queue]
        if one.at - session.last_at > SESSION_GAP_S:
            committed = offsets.least((group, one.queue), session.last_at or started, one.at)
            session.floor, session.since = min(committed, session.reached + 1), one.at
        session.floor = min(session.floor, offsets.kept_since((group, one.queue), session.since, one.at))
        session.last_at = one.at
        session.reached = one.offset if session.reached == NOTHING else max(session.reached, one.offset)
        if one.offset < session.floor and not offsets.may_repeat((group, one.queue), one.offset):
            found.append(
                f"{one.member} got {one.queue}/{one.offset} at {one.at:.3f}, committed was {session.floor}"
            )
    return found


@dataclass
class Session:
    """A process and a queue: until when it got something, up to where, and what it must not go below, since
    when; a broker that is killed meanwhile may send it back to what was written down.
    """

    last_at: float = 0.0
    reached: int = NOTHING
    floor: int = 0
    since: float = 0.0


@dataclass
class Churn:
    cluster: Cluster
    work: Path
    languages: dict[str, str]  # name -> client
    seed: int
    seconds: float
    offsets: Offsets = field(default_factory=Offsets)
    kills: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def run(self) -> Crew:
        """The crew is dead when it is returned; its logs are there."""
        topics.create(self.cluster, TOPIC, QUEUES)
        with Crew(self.cluster.namesrv, self.work) as crew:
            producers, consumers = self._recruit(crew)
            crew.wait_ready()
            ended = threading.Event()
            sampler = threading.Thread(target=self._sample, args=(ended,))
            sampler.start()
            try:
                self._kill_at_random([*producers, *consumers])
                for producer in producers:
                    producer.stop()
                self._drain(crew)
            finally:
                ended.set()
                sampler.join()
            return crew

    def judged(self, crew: Crew) -> tuple[list[str], list[str]]:
        """What happened, and what should not have."""
        self._note_steps_back()
        sent = crew.acknowledged(TOPIC)
        clients = " and ".join(self.languages.values())
        told = [f"seed {self.seed}, {clients}, {self.seconds:.0f} s, {len(sent)} messages acknowledged"]
        told.append(f"{dict(self.kills)}")
        problems = [] if len(sent) > self.seconds else ["nothing was tried"]
        for group, mode in self.groups:
            got = crew.got(group)
            told.append(f"{group}: {workers.tally(got)}")
            problems += [f"{group} lost {one}" for one in workers.lost(sent, got)]
            problems += went_back(group, got, self.offsets, crew.began)
            if mode == "ordered":
                problems += workers.disorder(got)
        return told, problems

    @property
    def groups(self) -> list[tuple[str, str]]:
        """Name and mode."""
        return [(f"{language}-{mode}", mode) for language in self.languages for mode in MODES]

    def _recruit(self, crew: Crew) -> tuple[list[Worker], list[Worker]]:
        producers, consumers = [], []
        for language, client in self.languages.items():
            producers.append(crew.add(client, f"produce:{language}:{TOPIC}:{KEYS}:{INTERVAL_MS}:keyed"))
            for number in (1, 2):
                jobs = [
                    f"consume:{language}-{mode}-{number}:{language}-{mode}:{TOPIC}:{mode}" for mode in MODES
                ]
                consumers.append(crew.add(client, *jobs))
        return producers, consumers

    def _kill_at_random(self, crew: list[Worker]) -> None:
        chance = random.Random(self.seed)
        deadline = time.monotonic() + self.seconds
        while time.monotonic() < deadline:
            time.sleep(chance.uniform(2.0, 5.0))
            down_s = chance.uniform(0.2, 2.0)
            gently = chance.random() < 0.2
            if chance.random() < 0.35:
                self._end_broker(gently, down_s)
            else:
                self._end(chance.choice(crew), gently, down_s)

    def _end_broker(self, gently: bool, down_s: float) -> None:
        if gently:
            self.cluster.stop_broker()
        else:
            self.cluster.kill_broker()
            self.offsets.killed(time.time(), self._kept_offsets())
        self.kills["broker stopped" if gently else "broker killed"] += 1
        time.sleep(down_s)
        self.cluster.start_broker()

    def _end(self, worker: Worker, gently: bool, down_s: float) -> None:
        if gently:
            worker.stop()
        else:
            worker.kill()
        self.kills[f"{worker} {'stopped' if gently else 'killed'}"] += 1
        time.sleep(down_s)
        worker.start()

    def _drain(self, crew: Crew) -> None:
        """Until every group has got all that was acknowledged."""
        sent = crew.acknowledged(TOPIC)
        workers.eventually(
            lambda: not any(workers.lost(sent, crew.got(group)) for group, _ in self.groups),
            DRAIN_S,
            poll_s=1.0,
        )

    def _sample(self, ended: threading.Event) -> None:
        while not ended.wait(SAMPLE_S):
            for group, _ in self.groups:
                for queue in range(QUEUES):
                    try:
                        answer = ask(
                            self.cluster.broker_addr,
                            QUERY_OFFSET,
                            consumerGroup=group,
                            topic=TOPIC,
                            queueId=queue,
                        )
                    except OSError:
                        break  # nobody there at the moment
                    if answer.code == 0:
                        self.offsets.note((group, queue), time.time(), int(answer.ext["offset"]))

    def _note_steps_back(self) -> None:
        """As the broker's log tells them."""
        for group, queue, before, after in STEP_BACK.findall(self.cluster.broker_log):
            self.offsets.stepped_back((group, int(queue)), int(before), int(after))

    def _kept_offsets(self) -> dict[Queue, int]:
        file = self.cluster.store_dir / "config" / "consumerOffset.json"
        text = file.read_text() if file.exists() else ""
        kept = {}
        for group, _ in self.groups:
            found = re.search(rf'"{TOPIC}@{group}"\s*:\s*\{{([^}}]*)\}}', text)
            for queue, offset in re.findall(r'"?(\d+)"?\s*:\s*(\d+)', found[1] if found else ""):
                kept[group, int(queue)] = int(offset)
        return kept
