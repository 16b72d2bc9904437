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
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from . import workers
from .asking import ask, asked
from .peers import Cluster
from .workers import Crew, Got, Worker

TOPIC = "churn"
QUEUES = 4
KEYS = 8
INTERVAL_MS = 20
MODES = ("ordered", "concurrent")

CREATE_TOPIC, QUERY_OFFSET = 17, 14
SAMPLE_S = 0.5
SETTLE_S = 2.5  # an offset read by a consumer is at most this older than the first message it got
SESSION_GAP_S = 3.0  # a member that got nothing for so long may have lost the queue and got it again
DRAIN_S = 150.0

Queue = tuple[str, int]  # group and queue


class Offsets:
    """What is committed, over time."""

    def __init__(self) -> None:
        self._times: dict[Queue, list[float]] = defaultdict(list)
        self._values: dict[Queue, list[int]] = defaultdict(list)
        self._begun: list[float] = [0.0]  # the lives of the broker

    def note(self, queue: Queue, at: float, offset: int) -> None:
        self._times[queue].append(at)
        self._values[queue].append(offset)

    def killed(self, at: float, kept: dict[Queue, int]) -> None:
        self._begun.append(at)
        for queue in {*self._times, *kept}:
            self.note(queue, at, kept.get(queue, 0))

    def least(self, queue: Queue, at: float) -> int:
        """The lowest that a consumer which got its first message at that time may have been told."""
        times, values = self._times[queue], self._values[queue]
        life = self._begun[bisect_right(self._begun, at) - 1]
        first = max(0, bisect_right(times, max(life, at - SETTLE_S)) - 1)
        if not times or times[first] > at:
            return 0
        return min(values[first : bisect_right(times, at)])


def went_back(group: str, got: Iterable[Got], offsets: Offsets) -> list[str]:
    """Deliveries from before the committed offset."""
    last: dict[
        tuple[str, int], tuple[float, int]
    ] = {}  # of a member's session with a queue: last message, floor
    found = []
    for one in got:
        if one.times > 0:
            continue
        before, floor = last.get((one.member, one.queue), (0.0, 0))
        if one.at - before > SESSION_GAP_S:
            floor = offsets.least((group, one.queue), one.at)
        last[one.member, one.queue] = one.at, floor
        if one.offset < floor:
            found.append(f"{one.member} got {one.queue}/{one.offset} at {one.at:.3f}, committed was {floor}")
    return found


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
        asked(
            self.cluster.broker_addr,
            CREATE_TOPIC,
            topic=TOPIC,
            defaultTopic="TBW102",
            readQueueNums=QUEUES,
            writeQueueNums=QUEUES,
            perm=6,
            topicFilterType="SINGLE_TAG",
            topicSysFlag=0,
            order=False,
        )
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

    def _kept_offsets(self) -> dict[Queue, int]:
        file = self.cluster.store_dir / "config" / "consumerOffset.json"
        text = file.read_text() if file.exists() else ""
        kept = {}
        for group, _ in self.groups:
            found = re.search(rf'"{TOPIC}@{group}"\s*:\s*\{{([^}}]*)\}}', text)
            for queue, offset in re.findall(r'"?(\d+)"?\s*:\s*(\d+)', found[1] if found else ""):
                kept[group, int(queue)] = int(offset)
        return kept
