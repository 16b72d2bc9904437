"""Two brokers behind one name server, under load: one is added, one killed and back again, one removed.

A topic of each kind: one that was there before the second broker, an ordered and a plain one on both. What is
recorded of Apache are facts; the sends that nobody promised to keep are counted.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import artifacts, peers, topics, workers
from .asking import ask, asked
from .clients import Answers
from .peers import Cluster
from .workers import Crew, Sent, eventually

CLIENTS = tuple(f"brokers-java-{version}" for version in artifacts.JAVA_CLIENTS)
IN_CI = "brokers-java-5.5.0"
PAIRS = tuple((client, server) for server in artifacts.SERVERS for client in CLIENTS)

A, B = "broker-a", "broker-b"
OLD, ORDERED, PLAIN = "old", "ordered", "plain"
GROUP = "readers"
QUEUES = 4
KEYS = 2 * QUEUES
RECENT_S = 4.0
ROUTE_S = 33.0  # a client looks for a new route every 30 s
PATIENCE_S = 90.0

PUT_KV, GET_ROUTE, WIPE_WRITE_PERM = 100, 105, 205
QUERY_OFFSET, MAX_OFFSET = 14, 30
ORDER_NAMESPACE = "ORDER_TOPIC_CONFIG"

Facts = dict[str, Any]


@dataclass(frozen=True)
class AnsweredRequest:
    answers: Answers
    counts: list[str]  # what is allowed to be lost, in words


def observe(client: str, kind: str, home: Path) -> AnsweredRequest:
    return _observe(client, kind, kind, home, Scene.play)


def move(client: str, old: str, new: str, home: Path) -> AnsweredRequest:
    """Off a broker of one kind to one of another kind, which joins its cluster."""
    return _observe(client, old, new, home, Scene.move)


def _observe(
    client: str, kind: str, joining: str, home: Path, play: Callable[[Scene, Cluster], AnsweredRequest]
) -> AnsweredRequest:
    a = peers.start(kind, peers.place(home / A), namesrv_conf={"orderMessageEnable": "true"})
    b: Cluster | None = None
    logs = home / "logs"
    logs.mkdir(parents=True)
    with Crew(a.namesrv, logs) as crew:
        try:
            scene = Scene(client.removeprefix("brokers-"), a, crew)
            scene.begin()
            b = peers.join(a, home / B, B, kind=joining)
            return play(scene, b)
        finally:
            if b is not None:
                b.discard()
            a.discard()


class Scene:
    def __init__(self, client: str, a: Cluster, crew: Crew) -> None:
        self._client = client
        self._a = a
        self._crew = crew
        self._begun = 0.0

    def begin(self) -> None:
        topics.create(self._a, OLD, QUEUES)
        modes = ("sync", "async", "oneway")
        jobs = [f"produce:{mode}:{OLD}:{KEYS}:20:{mode}" for mode in modes]
        self._crew.add(self._client, *jobs, f"consume:reader:{GROUP}:{OLD}:concurrent").wait_ready()
        assert eventually(lambda: self._writes_to(OLD, A) and self._reads_from(A), PATIENCE_S), "no load"
        self._begun = time.time()

    def play(self, b: Cluster) -> AnsweredRequest:
        return self._observed({"added": self._add(b), "killed": self._kill(b), "removed": self._remove(b)})

    def move(self, b: Cluster) -> AnsweredRequest:
        return self._observed({"added": self._add(b), "removed": self._remove(b, insists=True)})

    def _observed(self, answers: Answers) -> AnsweredRequest:
        sync = self._failed("sync")
        acknowledged = self._crew.acknowledged(OLD)
        got = self._crew.got(GROUP)
        answers["in the end"] = {
            "sync sends failed": len(sync),
            "acknowledged and not consumed": len(workers.lost(acknowledged, got)),
        }
        return AnsweredRequest(answers, self._counts())

    def _add(self, b: Cluster) -> Facts:
        facts: Facts = {}
        time.sleep(RECENT_S)
        facts["an old topic stays where it is"] = self._brokers_of(OLD)
        topics.create(b, OLD, QUEUES)
        facts["after updateTopic -b"] = eventually(lambda: self._brokers_of(OLD) == [A, B], PATIENCE_S)
        facts["written to both"] = eventually(
            lambda: self._writes_to(OLD, A) and self._writes_to(OLD, B), PATIENCE_S
        )
        facts["read from both"] = eventually(lambda: self._reads_from(A) and self._reads_from(B), PATIENCE_S)
        return facts

    def _kill(self, b: Cluster) -> Facts:
        """Strict order has no other place to go; a plain message has."""
        order = f"{A}:{QUEUES};{B}:{QUEUES}"
        asked(self._a.namesrv, PUT_KV, namespace=ORDER_NAMESPACE, key=ORDERED, value=order)
        for broker in (self._a, b):
            topics.create(broker, ORDERED, QUEUES, order=True)
            topics.create(broker, PLAIN, QUEUES)
        eventually(lambda: self._brokers_of(ORDERED) == self._brokers_of(PLAIN) == [A, B], PATIENCE_S)
        worker = self._crew.add(
            self._client,
            f"produce:strict:{ORDERED}:{KEYS}:50:strict",
            f"produce:plain:{PLAIN}:{KEYS}:50:sync",
        )
        worker.wait_ready()
        sent = eventually(lambda: self._keys_sent(ORDERED) == self._keys_sent(PLAIN) == KEYS, PATIENCE_S)
        facts: Facts = {"all keys sent": sent}
        killed_at = time.time()
        b.kill_broker()
        time.sleep(ROUTE_S + RECENT_S)
        facts["route after that"] = self._brokers_of(PLAIN)
        facts["ordered topic, keys sent"] = self._keys_sent(ORDERED)
        facts["ordered topic, keys refused"] = len(
            {one.key for one in self._crew.failed(ORDERED) if one.at > time.time() - RECENT_S}
        )
        facts["plain topic, sends failed"] = sum(one.at > killed_at for one in self._crew.failed(PLAIN))
        facts["plain topic, keys sent"] = self._keys_sent(PLAIN)
        b.start_broker()
        facts["all keys sent again"] = eventually(lambda: self._keys_sent(ORDERED) == KEYS, PATIENCE_S)
        worker.stop()
        return facts

    def _remove(self, b: Cluster, insists: bool = False) -> Facts:
        """wipeWritePerm, drain, mqshutdown. A broker whose topics change registers them with write permission
        again, Apache's a minute after its start: who `insists` wipes it again then.
        """
        facts: Facts = {}
        facts["written to both before"] = eventually(
            lambda: self._writes_to(OLD, A) and self._writes_to(OLD, B), PATIENCE_S
        )
        facts["topics wiped"] = self._wipe() > 0
        facts["written to the other alone"] = eventually(
            lambda: (
                (not insists or self._wipe() >= 0) and not self._writes_to(OLD, A) and self._writes_to(OLD, B)
            ),
            PATIENCE_S,
        )
        facts["drained"] = eventually(self._drained, PATIENCE_S)
        self._a.stop_broker()
        facts["out of the route"] = eventually(lambda: self._brokers_of(OLD) == [B], PATIENCE_S)
        stopped_at = time.time()
        time.sleep(RECENT_S)
        facts["written on"] = self._writes_to(OLD, B)
        facts["read on"] = self._reads_from(B)
        sent = [one for one in self._crew.acknowledged(OLD) if one.at < stopped_at]
        facts["all consumed"] = eventually(lambda: not workers.lost(sent, self._crew.got(GROUP)), PATIENCE_S)
        return facts

    def _wipe(self) -> int:
        answer = asked(self._a.namesrv, WIPE_WRITE_PERM, brokerName=A)
        return int(answer.ext["wipeTopicCount"])

    # --- what can be seen ---

    def _writes_to(self, topic: str, broker: str) -> bool:
        since = time.time() - RECENT_S
        return any(one.broker == broker and one.at > since for one in self._crew.acknowledged(topic))

    def _reads_from(self, broker: str) -> bool:
        since = time.time() - RECENT_S
        return any(one.broker == broker and one.at > since for one in self._crew.got(GROUP))

    def _keys_sent(self, topic: str) -> int:
        since = time.time() - RECENT_S
        return len({one.key for one in self._crew.acknowledged(topic) if one.at > since})

    def _failed(self, mode: str) -> list[Sent]:
        """Since there was a load: the first send of a client may fail on a busy machine."""
        failed = self._crew.failed(OLD)
        return [one for one in failed if one.key.startswith(mode) and one.sequence > self._begun * 1e6]

    def _brokers_of(self, topic: str) -> list[str]:
        answer = ask(self._a.namesrv, GET_ROUTE, topic=topic, acceptStandardJsonOnly=True)
        if answer.code != 0:
            return []
        return sorted(data["brokerName"] for data in json.loads(answer.body)["queueDatas"])

    def _drained(self) -> bool:
        def end(queue: int) -> str:
            return asked(self._a.broker_addr, MAX_OFFSET, topic=OLD, queueId=queue).ext["offset"]

        def committed(queue: int) -> str:
            found = ask(self._a.broker_addr, QUERY_OFFSET, consumerGroup=GROUP, topic=OLD, queueId=queue)
            return found.ext.get("offset", "")

        return all(end(queue) == committed(queue) for queue in range(QUEUES))

    def _counts(self) -> list[str]:
        oneway = self._crew.unanswered(OLD)
        lost = workers.lost(oneway, self._crew.got(GROUP))
        answered = len(self._crew.acknowledged(OLD))
        return [
            f"sends acknowledged: {answered}",
            f"async sends that failed: {len(self._failed('async'))}",
            f"oneway sends lost: {len(lost)} of {len(oneway)}",
        ]
