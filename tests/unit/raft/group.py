"""A group of nodes in virtual time, each with a driver: what transcripts run on.

Every message takes one millisecond. What happens is written down as lines of text. There is no chance: nodes
wait as long as their settings say.
"""

import heapq
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.unit.raft.memory_log import MemoryLog, entry
from tests.unit.raft.words import answer_words, request_words

from turbopump.raft import (
    Answered,
    Appended,
    AppendEntries,
    AppendNoOp,
    AppendResult,
    Commit,
    Effect,
    Event,
    Node,
    NodeConfig,
    PeerUnreachable,
    PendingAppends,
    Received,
    Respond,
    Role,
    RoleChanged,
    Save,
    SavedState,
    Send,
    Synced,
    Tick,
    Truncate,
)
from turbopump.raft.messages import OutgoingRequest, PeerAnswer, Push, PushOrder

QUORUM_WAIT_MS = 2500
TRAVEL_MS = 1


@dataclass
class Message:
    """A request or an answer on its way."""

    sender: str
    to: str
    words: str
    arrive: Callable[[], None]


@dataclass
class Server:
    """One node with its disk and its driver."""

    name: str
    config: NodeConfig
    flush_ms: int | None = 0
    """How long a flush takes; None: until the script says so."""
    log: MemoryLog = field(default_factory=MemoryLog)
    saved: SavedState = field(default_factory=SavedState)
    node: Node | None = None
    pending: PendingAppends = field(default_factory=PendingAppends)
    life: int = 0
    """How often it was started."""
    tick_at: int = -1


class Group:
    """Servers, the messages between them, and the time."""

    def __init__(self) -> None:
        self.now = 0
        self.servers: dict[str, Server] = {}
        self.lines: list[str] = []
        self.muted: set[str] = set()
        self.blocked: set[tuple[str, str]] = set()
        self.holds: list[tuple[str, str, str]] = []
        self.held: list[Message] = []
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._order = 0
        self._requests = 0
        self._waiting: dict[int, tuple[Server | None, int, Any]] = {}
        self._follow_ups: list[Callable[[], None]] = []

    # the world

    def say(self, text: str) -> None:
        """Writes a line."""
        if not any(word in text for word in self.muted):
            self.lines.append(f"{self.now / 1000:7.3f} {text}")

    def later(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Does something after a while."""
        self._order += 1
        heapq.heappush(self._queue, (self.now + delay_ms, self._order, action))

    def run(self, duration_ms: int) -> None:
        """Lets time pass."""
        end = self.now + duration_ms
        while self._queue and self._queue[0][0] <= end:
            self.now, _, action = heapq.heappop(self._queue)
            action()
        self.now = end

    def carry(self, message: Message) -> None:
        """Sends a message on its way, unless the link is blocked or the message held back."""
        self.say(f"{message.sender} > {message.to}: {message.words}")
        if (message.sender, message.to) in self.blocked:
            return
        if any(_fits(rule, message) for rule in self.holds):
            self.held.append(message)
            return
        self.later(TRAVEL_MS, message.arrive)

    # servers

    def start(self, server: Server) -> None:
        """Starts a server from its disk."""
        server.life += 1
        server.node = Node(server.config, server.saved, server.log, random.Random(server.life))
        server.pending = PendingAppends()
        self.step(server, Tick())

    def stop(self, server: Server) -> None:
        """Stops a server; connections to it are lost."""
        server.node = None
        server.life += 1
        for other in self.servers.values():
            if other.node is not None:
                self.step(other, PeerUnreachable(server.name))

    def step(self, server: Server, event: Event) -> None:
        """Gives an event to a node, and performs its effects."""
        if server.node is None:
            return
        for effect in server.node.step(self.now, event):
            self._perform(server, effect)
        follow_ups, self._follow_ups = self._follow_ups, []
        for follow_up in follow_ups:
            follow_up()
        self._wake(server)

    def _wake(self, server: Server) -> None:
        assert server.node is not None
        if server.node.deadline_ms == server.tick_at > self.now:
            return
        server.tick_at = deadline = max(server.node.deadline_ms, self.now)
        life = server.life

        def tick() -> None:
            is_due = server.node is not None and server.node.deadline_ms <= self.now
            if server.life == life and is_due:
                server.tick_at = -1
                self.step(server, Tick())

        self.later(deadline - self.now, tick)

    def _perform(self, server: Server, effect: Effect) -> None:
        name, log = server.name, server.log
        match effect:
            case Save(term, voted_for, joined):
                server.saved = SavedState(term, voted_for, joined, server.saved.committed_index)
                joined_words = "" if joined else ", not joined"
                self.say(f"{name} saves t{term} vote {voted_for or '-'}{joined_words}")
            case Truncate(after_index, replacement):
                log.truncate(after_index, replacement)
                begins = f", begins with {replacement.index}" if replacement else ""
                self.say(f"{name} truncates after {after_index}{begins}")
                if replacement is not None:
                    self._flush(server)
            case AppendEntries(entries):
                for new in entries:
                    log.append(new)
                self.say(f"{name} appends {_span([new.index for new in entries])}")
                self._flush(server)
            case AppendNoOp(term):
                self.say(f"{name} wants an entry of t{term}")
                self._follow_ups.append(lambda: self.append(server, 1, "no-op"))
            case Send(to, request):
                self._send(server, to, request)
            case RoleChanged(role, term, leader):
                of = f" of {leader}" if role is Role.FOLLOWER else ""
                self.say(f"{name} is {role}{of} in t{term}")
                if role is not Role.LEADER:
                    server.pending.role_lost()
            case Commit(index):
                assert index <= log.end_index, f"{name} commits {index} of a log that ends at {log.end_index}"
                self.say(f"{name} commits {index}")
                state = server.saved
                server.saved = SavedState(state.term, state.voted_for, state.joined, index)
                server.pending.committed(index)
            case Respond(request_id, answer):
                self._respond(server, request_id, answer)

    # messages

    def _send(self, server: Server, to: str, request: OutgoingRequest) -> None:
        received: Any = request
        if isinstance(request, PushOrder):
            entries = (
                server.log.slice(request.first_index, request.last_index) if request.last_index >= 0 else ()
            )
            received = Push(request.kind, request.term, entries, request.commit_index)
        life = server.life
        target = self.servers[to]
        to_life = target.life

        def arrive() -> None:
            if target.node is None:
                if server.life == life:
                    self.step(server, PeerUnreachable(to))
            elif target.life == to_life:
                self._requests += 1
                self._waiting[self._requests] = (server, life, request)
                self.step(target, Received(self._requests, server.name, received))

        self.carry(Message(server.name, to, request_words(request), arrive))

    def _respond(self, server: Server, request_id: int, answer: PeerAnswer) -> None:
        asker, life, request = self._waiting.pop(request_id)
        if asker is None:
            self.say(f"{server.name} > operator: {answer_words(answer)}")
            return

        def arrive() -> None:
            if asker.life == life:
                self.step(asker, Answered(server.name, request, answer))

        self.carry(Message(server.name, asker.name, answer_words(answer), arrive))

    def operator_request(self) -> int:
        """A request id of somebody outside the group."""
        self._requests += 1
        self._waiting[self._requests] = (None, 0, None)
        return self._requests

    # the own log of a server

    def append(self, server: Server, count: int, what: str = "entry") -> None:
        """Appends entries to a leader's log."""
        assert server.node is not None
        assert server.node.role is Role.LEADER
        indexes = []
        for _ in range(count):
            new = entry(server.log.end_index + 1, server.node.term, f"{server.name}.{server.life}")
            server.log.append(new)
            indexes.append(new.index)
            if what == "entry":
                self._wait(server, new.index)
        self.say(f"{server.name} writes {_span(indexes)} in t{server.node.term}")
        self._flush(server)
        self.step(server, Appended(server.log.end_index))

    def _wait(self, server: Server, index: int) -> None:
        assert server.node is not None

        def done(result: AppendResult) -> None:
            self.say(f"{server.name} append {result.index} of t{result.term}: {result.outcome}")

        server.pending.wait(server.node.term, index, self.now + QUORUM_WAIT_MS, done)
        life = server.life
        self.later(QUORUM_WAIT_MS, lambda: server.pending.expire(self.now) if server.life == life else None)

    def _flush(self, server: Server) -> None:
        if server.flush_ms == 0:
            self._follow_ups.append(lambda: self.sync(server))
        elif server.flush_ms is not None:
            life = server.life
            self.later(server.flush_ms, lambda: self.sync(server) if server.life == life else None)

    def sync(self, server: Server) -> None:
        """Makes a server's log safe, and reports it."""
        server.log.sync()
        if server.flush_ms != 0:
            self.say(f"{server.name} has flushed {server.log.end_index}")
        self.step(server, Synced(server.log.end_index))


def _fits(rule: tuple[str, str, str], message: Message) -> bool:
    sender, to, word = rule
    return sender in ("*", message.sender) and to in ("*", message.to) and word in message.words


def _span(indexes: list[int]) -> str:
    return str(indexes[0]) if len(indexes) == 1 else f"{indexes[0]}-{indexes[-1]}"


def pairs(left: list[str], right: list[str]) -> Iterator[tuple[str, str]]:
    """All links between two sides, in both directions."""
    for one in left:
        for other in right:
            yield one, other
            yield other, one
