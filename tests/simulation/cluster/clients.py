"""Senders and a reader of one pair: raw requests, each answer noted in the history."""

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Protocol

from tests.simulation.cluster.history import (
    CONSUMERS,
    Broken,
    Committed,
    Ended,
    Found,
    History,
    Kind,
    Moved,
    Pulled,
    Sent,
    Unanswered,
)
from tests.simulation.cluster.node import TOPIC, Node

from turbopump.protocol import properties as props
from turbopump.protocol import record
from turbopump.protocol.bodies import TopicRouteData
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import Command, request
from turbopump.protocol.headers.offsets import UpdateConsumerOffsetRequest
from turbopump.protocol.headers.send import EndTransactionRequest
from turbopump.protocol.ids import parse_offset_id
from turbopump.remoting.client import Client
from turbopump.runtime.chance import Chance
from turbopump.runtime.clock import Clock

CALL_S = 15.0  # longer than a sync, or a slave, may keep a send waiting
ROUTE_S = 2.0
STORED = (
    ResponseCode.SUCCESS,
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
)
DELAYS_S = {1: 1.0, 2: 5.0, 3: 10.0}
TIMES_MS = 1, 700, 3_000, 9_000  # until a timed message is due
HALF_FLAG, COMMIT, ROLLBACK = 4, 8, 12


class Surroundings(Protocol):
    """The world as its clients see it."""

    @property
    def chance(self) -> Chance: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def history(self) -> History: ...
    @property
    def name_servers(self) -> list[str]: ...
    def nodes_of(self, pair: str) -> list[Node]: ...
    def next_name(self, pair: str) -> str: ...


@dataclass(frozen=True, slots=True)
class Habits:
    """What the senders of a world do."""

    kinds: tuple[Kind, ...]
    body_sizes: tuple[int, ...]
    pause_s: float
    queues: int


class PairClient:
    """Finds the master of a pair by the name servers, and calls it."""

    def __init__(self, world: Surroundings, pair: str, client: Client) -> None:
        self.world = world
        self.pair = pair
        self._client = client
        self._master: str | None = None

    async def call_master(self, command: Command, what: str) -> tuple[Node, Command] | None:
        """Returns the node that answered, and its answer; None: no master, or the connection was lost."""
        if self._master is None:
            self._master = (await self.route()).get(0)
        node = None if self._master is None else self.node_at(self._master)
        answer = None if node is None else await self.call(node, command, what)
        if node is None or answer is None:
            self._master = None
            return None
        return node, answer

    def node_at(self, address: str) -> Node | None:
        return next((one for one in self.world.nodes_of(self.pair) if one.address == address), None)

    async def call(self, node: Node, command: Command, what: str) -> Command | None:
        """Returns the answer of a node; None: the connection was lost, or it did not answer."""
        clock, life, begin = self.world.clock, node.life, self.world.clock.monotonic()
        try:
            return await self._client.call(node.address, command, CALL_S)
        except TimeoutError:
            now = clock.monotonic()
            if now - begin >= CALL_S and node.is_up and node.life == life:
                self.world.history.add(Unanswered(begin, now, self.pair, f"{what} to {node.name}"))
        except OSError:
            pass
        return None

    def forget_master(self) -> None:
        """Asks the name servers again: the broker that answered is not the master."""
        self._master = None

    async def route(self) -> dict[int, str]:
        """Returns by broker id where the brokers of the pair are, if possible with its master."""
        chance, known = self.world.chance, dict[int, str]()
        for address in chance.sample(self.world.name_servers, len(self.world.name_servers)):
            command = Command(int(RequestCode.GET_ROUTEINFO_BY_TOPIC), ext={"topic": "TBW102"})
            with contextlib.suppress(OSError):
                answer = await self._client.call(address, command, ROUTE_S)
                if answer.code == ResponseCode.SUCCESS:
                    for broker in TopicRouteData.decode(answer.body).brokerDatas:
                        if broker.brokerName == self.pair:
                            known = dict(broker.brokerAddrs)
            if 0 in known:
                break
        return known


class Sender(PairClient):
    """Sends messages to one queue of a pair, one after the other."""

    def __init__(self, world: Surroundings, pair: str, client: Client, queue_id: int, habits: Habits) -> None:
        super().__init__(world, pair, client)
        self._queue_id = queue_id
        self._habits = habits

    async def run(self) -> None:
        chance = self.world.chance
        while True:
            kind = chance.choice(self._habits.kinds)
            if not await self.send(kind):
                await asyncio.sleep(0.5)
            await asyncio.sleep(chance.uniform(0, 2 * self._habits.pause_s))

    async def send(self, kind: Kind) -> bool:
        """Sends one message, and ends it if it is a transaction. Returns whether it was stored."""
        chance, history = self.world.chance, self.world.history
        name = self.world.next_name(self.pair)
        level = chance.choice(list(DELAYS_S)) if kind is Kind.DELAYED else 0
        body = name.encode() + b"|" + bytes(chance.choice(self._habits.body_sizes))
        begin, wait_ms = self.world.clock.monotonic(), chance.choice(TIMES_MS) if kind is Kind.TIMED else 0
        due_ms = self.world.clock.now_ms() + wait_ms if wait_ms and chance.random() < 0.5 else 0
        timed = {props.TIMER_DELIVER_MS: str(due_ms)} if due_ms else {props.TIMER_DELAY_MS: str(wait_ms)}
        command = self._command(name, kind, level, body, timed)
        found = await self.call_master(command, f"send of {name}")
        if found is None:
            return False
        node, answer = found
        if answer.code not in STORED:
            history.tell(self.world.clock.monotonic(), f"{node.name} refuses {name}: {answer.code}")
            self.forget_master()
            return False
        delay_s = wait_ms / 1000 if kind is Kind.TIMED else DELAYS_S.get(level, 0.0)
        sent = self._note(begin, node, name, kind, answer, delay_s, due_ms)
        if kind is Kind.HALF and sent is not None:
            await self._end(sent)
        return True

    def _command(self, name: str, kind: Kind, level: int, body: bytes, timed: dict[str, str]) -> Command:
        pairs = {props.UNIQUE_KEY: name, "WAIT": "true"}
        if kind is Kind.DELAYED:
            pairs[props.DELAY] = str(level)
        if kind is Kind.TIMED:
            pairs |= timed
        if kind is Kind.HALF:
            pairs |= {props.TRANSACTION_PREPARED: "true", props.PRODUCER_GROUP: "PG"}
        flag = HALF_FLAG if kind is Kind.HALF else 0
        ext = {
            "a": "PG", "b": TOPIC, "c": "TBW102", "d": "4", "e": str(self._queue_id), "f": str(flag),
            "g": "0", "h": "0", "i": props.pack(pairs), "j": "0", "k": "false", "m": "false",
        }  # fmt: skip
        return Command(int(RequestCode.SEND_MESSAGE_V2), ext=ext, body=body)

    def _note(
        self, begin: float, node: Node, name: str, kind: Kind, answer: Command, delay_s: float, due_ms: int
    ) -> Sent | None:
        """Notes a receipt, and which disks have the record that it names."""
        fields, now = answer.ext or {}, self.world.clock.monotonic()
        offset = parse_offset_id(fields["msgId"])[2]
        nodes = self.world.nodes_of(self.pair)
        replicas, durability = int(fields["replicas"]), fields["durability"]
        stored = _copy_of(name, offset, nodes if durability == "quorum" else [node])
        if stored is None and durability == "quorum":
            text = f"{node.name} acknowledged {name} at {offset}, and nobody has it at {now:.3f}"
            self.world.history.add(Broken(now, "receipt", text))
        if stored is None:
            return None  # the broker died between its answer and now
        sent = Sent(
            begin=begin,
            at=now,
            pair=self.pair,
            node=node.name,
            name=name,
            kind=kind,
            queue_id=self._queue_id,
            queue_offset=int(fields["queueOffset"]),
            offset=offset,
            end=offset + len(stored),
            code=answer.code,
            durability=durability,
            replicas=replicas,
            on_disk=int(fields.get("replicasOnDisk", durability == "disk")),
            holders=sum(one.holds(offset, stored) for one in nodes),
            delay_s=delay_s,
            due_ms=due_ms,
        )
        self.world.history.add(sent)
        self.world.history.tell(
            now,
            f"{node.name} has {name} ({kind.value}) at {offset}, queue {sent.queue_id} offset "
            f"{sent.queue_offset}: code {answer.code}, {durability}, {replicas} replicas, "
            f"{sent.on_disk} on disk",
        )
        return sent

    async def _end(self, sent: Sent) -> None:
        """Commits or rolls back, sometimes twice, perhaps the other way the second time, or not at all."""
        chance = self.world.chance
        is_commit = chance.random() < 0.7
        for number in range(chance.choice([0, 1, 1, 1, 2])):
            if number and chance.random() < 0.5:
                is_commit = not is_commit
            header = EndTransactionRequest(
                "PG", sent.queue_offset, sent.offset, COMMIT if is_commit else ROLLBACK, sent.name
            )
            begin = self.world.clock.monotonic()
            word = "commit" if is_commit else "rollback"
            found = None
            try:
                command = request(RequestCode.END_TRANSACTION, header)
                found = await self.call_master(command, f"{word} of {sent.name}")
            finally:  # also when this sender is cancelled: the request may be at the broker already
                is_acknowledged = found is not None and found[1].code == ResponseCode.SUCCESS
                self.world.history.add(Ended(begin, self.pair, sent.name, is_commit, is_acknowledged))
            code = "no answer" if found is None else f"code {found[1].code}"
            self.world.history.tell(self.world.clock.monotonic(), f"{word} of {sent.name}: {code}")


class Reader(PairClient):
    """Reads all queues of a pair from its master, and commits."""

    def __init__(self, world: Surroundings, pair: str, client: Client, queues: int) -> None:
        super().__init__(world, pair, client)
        self._position = dict.fromkeys(range(queues), 0)

    async def run(self) -> None:
        while True:
            for queue_id in self._position:
                await self._read(queue_id)
            await asyncio.sleep(self.world.chance.choice([0.2, 1, 3]))

    async def _read(self, queue_id: int) -> None:
        position = self._position[queue_id]
        found = await self.call_master(pull_of(CONSUMERS, queue_id, position), f"pull of queue {queue_id}")
        if found is None:
            return
        node, answer = found
        now, history = self.world.clock.monotonic(), self.world.history
        if not node.is_master:
            self.forget_master()
            return
        if answer.code == ResponseCode.SUCCESS:
            seen = found_in(answer)
            history.add(Pulled(now, self.pair, queue_id, seen))
            self._position[queue_id] = seen[-1].queue_offset + 1
            await self._commit(queue_id)
        elif answer.code in (ResponseCode.PULL_OFFSET_MOVED, ResponseCode.PULL_RETRY_IMMEDIATELY):
            after = int((answer.ext or {})["nextBeginOffset"])
            history.tell(now, f"{node.name} sends the reader of queue {queue_id} from {position} to {after}")
            history.add(Moved(now, self.pair, queue_id, position, after))
            self._position[queue_id] = after

    async def _commit(self, queue_id: int) -> None:
        offset = self._position[queue_id]
        found = await self.call_master(commit_of(CONSUMERS, queue_id, offset), f"commit of queue {queue_id}")
        if found is not None and found[1].code == ResponseCode.SUCCESS and found[0].is_master:
            now = self.world.clock.monotonic()
            self.world.history.add(Committed(now, self.pair, queue_id, offset))
            self.world.history.tell(now, f"{found[0].name} has offset {offset} of queue {queue_id}")


def _copy_of(name: str, offset: int, nodes: list[Node]) -> bytes | None:
    """Returns the record of a message as the files of one of these nodes have it."""
    copies = (node.bytes_at(offset) for node in nodes)
    return next((copy for copy in copies if copy is not None and name.encode() in copy), None)


def pull_of(group: str, queue_id: int, position: int) -> Command:
    """Returns a pull that does not wait."""
    ext = {
        "consumerGroup": group, "topic": TOPIC, "queueId": str(queue_id),
        "queueOffset": str(position), "maxMsgNums": "32", "sysFlag": "20", "commitOffset": "0",
        "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
    }  # fmt: skip
    return Command(int(RequestCode.PULL_MESSAGE), ext=ext)


def commit_of(group: str, queue_id: int, offset: int) -> Command:
    """Returns the commit of a consumer that waits for the answer; Java's do not."""
    header = UpdateConsumerOffsetRequest(
        consumerGroup=group, topic=TOPIC, queueId=queue_id, commitOffset=offset
    )
    command = request(RequestCode.UPDATE_CONSUMER_OFFSET, header)
    command.language = "GO"
    return command


def found_in(answer: Command) -> tuple[Found, ...]:
    """Returns the messages of an answered pull."""
    records = record.decode_all(answer.body)
    return tuple(Found(one.queue_offset, one.physical_offset, name_of(one.body)) for one in records)


def name_of(body: bytes) -> str:
    """Returns the name that a message begins with."""
    return body.partition(b"|")[0].decode()
