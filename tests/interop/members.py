"""Members of groups killed or silent, topics that grow and shrink, brokers that end: all under load.

These wait for real timers (20 s for a round of balancing, 30 s for a route, 60 s for a lock, 120 s for a
silent member), so everything happens at once, for all clients, on one broker; the broker itself ends last.
Each client has three processes: a survivor, a victim, and one that is put to sleep. What is recorded of
Apache are facts, not figures.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from . import artifacts, peers, topics, workers
from .asking import ask, asked
from .clients import GO, Answers
from .peers import Cluster
from .workers import Crew, Got, Worker, eventually

CLIENTS = (*(f"members-java-{version}" for version in artifacts.JAVA_CLIENTS), f"members-{GO}")
IN_CI = ("members-java-4.9.8", f"members-{GO}")
PAIRS = tuple((client, server) for server in artifacts.SERVERS for client in CLIENTS)

QUEUES = 8
TOPICS = ("killed", "ordered", "silent", "scaled")
KEYS, INTERVAL_MS = 16, 25
RECENT_S = 3.0
PATIENCE_S = 110.0
SILENCE_S = 220.0

QUERY_OFFSET, MAX_OFFSET = 14, 30
OK = 0


def observe_all(names: Iterable[str], kind: str, home: Path) -> dict[str, Future[Answers]]:
    """All these clients on one broker; an answer may be an exception."""
    cluster = peers.start(kind, peers.place(home / kind))
    crews = {client: AnsweredRequest(client, cluster, home / client) for client in names}
    try:
        for crew in crews.values():
            crew.recruit()
        with ThreadPoolExecutor(len(crews)) as pool:
            begun = {client: pool.submit(crew.while_the_broker_lives) for client, crew in crews.items()}
        cluster.stop_broker()
        cluster.start_broker()
        with ThreadPoolExecutor(len(crews)) as pool:
            stopped = {client: pool.submit(crew.go_on) for client, crew in crews.items()}
        cluster.kill_broker()
        cluster.start_broker()
        with ThreadPoolExecutor(len(crews)) as pool:
            killed = {client: pool.submit(crew.go_on) for client, crew in crews.items()}
            ended = {client: pool.submit(crew.in_the_end) for client, crew in crews.items()}
        with ThreadPoolExecutor(1) as pool:
            return {
                client: pool.submit(_together, begun[client], stopped[client], killed[client], ended[client])
                for client in crews
            }
    finally:
        for crew in crews.values():
            crew.kill()
        cluster.discard()


Facts = dict[str, Any]


def _together(
    begun: Future[Answers], stopped: Future[Facts], killed: Future[Facts], ended: Future[Facts]
) -> Answers:
    return {
        **begun.result(),
        "broker stopped and started": stopped.result(),
        "broker killed and started": killed.result(),
        "in the end": ended.result(),
    }


class AnsweredRequest:
    def __init__(self, client: str, cluster: Cluster, work: Path) -> None:
        work.mkdir(parents=True)
        self._crew = Crew(cluster.namesrv, work)
        self._cluster = cluster
        self._client = client.removeprefix("members-")
        self._name = client.replace(".", "")
        self._victim: Worker
        self._sleeper: Worker

    def kill(self) -> None:
        self._crew.kill()

    def recruit(self) -> None:
        """Not in a thread that ends: its children would end with it."""
        for what in TOPICS:
            self._update_topic(what, QUEUES if what != "scaled" else QUEUES // 2)
        killed = [self._consume("killed", number) for number in (3, 4, 5)]
        self._victim = self._crew.add(self._client, *killed, self._consume("ordered", 2))
        self._sleeper = self._crew.add(self._client, self._consume("silent", 2))
        surviving = [*(self._consume(what, 1) for what in TOPICS), self._consume("killed", 2)]
        self._crew.add(self._client, *map(self._produce, TOPICS), *surviving)

    def while_the_broker_lives(self) -> Answers:
        self._crew.wait_ready()
        with ThreadPoolExecutor(3) as pool:
            killed = pool.submit(self._kill_member)
            silent = pool.submit(self._silence_member)
            scaled = pool.submit(self._scale)
        return {**killed.result(), "silent member": silent.result(), "topic scaled": scaled.result()}

    def go_on(self) -> Facts:
        """After the broker came back, without help from anybody."""
        now = time.time()
        return {f"{what} goes on": self._flows(what, now) for what in TOPICS}

    def in_the_end(self) -> Facts:
        facts: Facts = {}
        for what in TOPICS:
            sent = self._crew.acknowledged(self._topic(what))
            facts[f"{what}, all consumed"] = eventually(
                lambda what=what, sent=sent: not workers.lost(sent, self._got(what)),  # type: ignore[misc]
                PATIENCE_S,
            )
        facts["order kept"] = workers.disorder(self._got("ordered"))[:10]
        return facts

    # --- the scenarios ---

    def _kill_member(self) -> Answers:
        shared = {what: self._shared(what, members) for what, members in (("killed", 5), ("ordered", 2))}
        now = time.time()
        self._victim.kill()
        with ThreadPoolExecutor(2) as pool:
            soon = pool.submit(self._taken_over, "killed", now, PATIENCE_S, survivors=2)
            late = pool.submit(self._taken_over, "ordered", now, PATIENCE_S)
        return {
            "three of five members killed": {
                "five share": shared["killed"],
                "taken over": _within(soon.result(), 0, 25, "soon"),
            },
            "killed member, ordered": {
                "two share": shared["ordered"],
                "taken over": _within(late.result(), 30, PATIENCE_S, "when its locks had expired"),
            },
        }

    def _silence_member(self) -> Facts:
        shared = self._shared("silent", 2)
        now = time.time()
        self._sleeper.pause()
        took = self._taken_over("silent", now, SILENCE_S)
        self._sleeper.resume()
        return {
            "two share": shared,
            # The last heartbeat may have been up to 30 s before the pause.
            "taken over": _within(took, 90, SILENCE_S, "when it had been silent for two minutes"),
            "two share again": self._shared("silent", 2),
        }

    def _scale(self) -> Facts:
        """Out to eight queues, in to two: first to write, and when the others are empty also to read."""
        facts: Facts = {"four queues": self._queues_in_use(range(QUEUES // 2))}
        now = time.time()
        self._update_topic("scaled", QUEUES)
        facts["eight queues"] = self._queues_in_use(range(QUEUES))
        self._update_topic("scaled", QUEUES, 2)
        facts["two to write"] = self._queues_written(range(2))
        facts["others drained"] = eventually(self._drained, PATIENCE_S, poll_s=1.0)
        self._update_topic("scaled", 2)
        facts["two queues"] = self._queues_in_use(range(2))
        facts["sends that failed"] = sum(one.at > now for one in self._crew.failed(self._topic("scaled")))
        return facts

    # --- what can be seen ---

    def _shared(self, what: str, members: int) -> bool:
        """Every member has got something lately, together from every queue."""

        def shared() -> bool:
            owners = workers.owners(self._got(what), time.time() - RECENT_S)
            return len(owners) == members and len(set().union(*owners.values())) == QUEUES

        return eventually(shared, PATIENCE_S)

    def _taken_over(self, what: str, since: float, patience_s: float, survivors: int = 1) -> float:
        """Seconds until the survivors together got new messages from every queue."""
        names = {self._member(what, number + 1) for number in range(survivors)}

        def taken() -> bool:
            new = (one for one in self._got(what) if one.member in names and one.sequence > since * 1e6)
            owners = workers.owners(new, since)
            return len(owners) == survivors and len(set().union(*owners.values())) == QUEUES

        eventually(taken, patience_s + 5)
        return time.time() - since

    def _flows(self, what: str, since: float) -> bool:
        """A message sent after that moment was consumed."""
        return eventually(lambda: any(one.sequence > since * 1e6 for one in self._got(what)), PATIENCE_S)

    def _queues_in_use(self, queues: range) -> bool:
        def used() -> bool:
            since = time.time() - RECENT_S
            written = {one.queue for one in self._crew.acknowledged(self._topic("scaled")) if one.at > since}
            read = {one.queue for one in self._got("scaled") if one.at > since}
            return written == read == set(queues)

        return eventually(used, PATIENCE_S)

    def _queues_written(self, queues: range) -> bool:
        def written() -> bool:
            since = time.time() - RECENT_S
            return {
                one.queue for one in self._crew.acknowledged(self._topic("scaled")) if one.at > since
            } == set(queues)

        return eventually(written, PATIENCE_S)

    def _drained(self) -> bool:
        """Nothing is left in the queues that are going to be closed."""
        return all(self._committed(queue) == self._end_of(queue) for queue in range(2, QUEUES))

    def _committed(self, queue: int) -> int:
        answer = ask(
            self._cluster.broker_addr,
            QUERY_OFFSET,
            consumerGroup=self._group("scaled"),
            topic=self._topic("scaled"),
            queueId=queue,
        )
        return int(answer.ext["offset"]) if answer.code == OK else -1

    def _end_of(self, queue: int) -> int:
        answer = asked(self._cluster.broker_addr, MAX_OFFSET, topic=self._topic("scaled"), queueId=queue)
        return int(answer.ext["offset"])

    # --- names and requests ---

    def _topic(self, what: str) -> str:
        return f"{self._name}-{what}"

    def _group(self, what: str) -> str:
        return f"{self._name}-{what}-group"

    def _member(self, what: str, number: int) -> str:
        return f"{self._name}-{what}-{number}"

    def _produce(self, what: str) -> str:
        return f"produce:{self._name}-{what}-producer:{self._topic(what)}:{KEYS}:{INTERVAL_MS}:keyed"

    def _consume(self, what: str, number: int) -> str:
        mode = "ordered" if what == "ordered" else "concurrent"
        return f"consume:{self._member(what, number)}:{self._group(what)}:{self._topic(what)}:{mode}"

    def _got(self, what: str) -> list[Got]:
        return self._crew.got(self._group(what))

    def _update_topic(self, what: str, read_queues: int, write_queues: int | None = None) -> None:
        topics.create(self._cluster, self._topic(what), read_queues, write_queues)


def _within(seconds: float, least: float, most: float, words: str) -> str:
    return words if least <= seconds <= most else f"after {seconds:.0f} s"
