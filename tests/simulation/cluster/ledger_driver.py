"""A driver that writes batches of rows by the ledger of a pair: attempts, decisions, ends, newer runs."""

import asyncio

from tests.simulation.cluster.clients import STORED, PairClient, Surroundings
from tests.simulation.cluster.history import Decided, Wrote
from tests.simulation.cluster.node import TOPIC, Node

from turbopump.protocol import batch as batches
from turbopump.protocol import ledger as wire
from turbopump.protocol import properties as props
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import Command, request
from turbopump.protocol.headers.base import Header
from turbopump.protocol.headers.ledger import (
    LedgerDecideRequest,
    LedgerEndRequest,
    LedgerOpenRequest,
    LedgerReadRequest,
    LedgerSendRequest,
)
from turbopump.protocol.ledger import LedgerEntry
from turbopump.remoting.client import Client

ID = "query"
ASKED = 64  # batches in one question


class LedgerDriver(PairClient):
    """Decides one batch after the other, each for one of its attempts."""

    def __init__(self, world: Surroundings, pair: str, client: Client, queues: int) -> None:
        super().__init__(world, pair, client)
        self._queues = queues
        self._run = ""
        self._runs = self._batch = 0

    async def run(self) -> None:
        chance = self.world.chance
        while True:
            if await self._is_open():
                tries = range(chance.choice([1, 2]))
                attempts = [token for _ in tries if self._run and (token := await self._write())]
                if attempts:
                    await self._decide(attempts)
            await asyncio.sleep(chance.choice([0.3, 2, 5]))

    async def _is_open(self) -> bool:
        """Begins a new run when there is none, and sometimes without a reason."""
        if self._run and self.world.chance.random() < 0.9:
            return True
        self._runs += 1
        run = f"r{self._runs}"
        opened = await self._ask(RequestCode.LEDGER_OPEN, LedgerOpenRequest(ID, run, self.pair), b"", "open")
        self._run = "" if opened is None else run
        return opened is not None

    async def _write(self) -> str:
        """Sends the rows of an attempt; returns its token, or nothing if they were not acknowledged."""
        chance, begin = self.world.chance, self.world.clock.monotonic()
        names = tuple(self.world.next_name(self.pair) for _ in range(chance.choice([1, 3])))
        token, queue = f"t-{names[0]}", str(chance.randrange(self._queues))
        rows = [
            (0, f"{name}|row".encode(), props.pack({**_where(queue), props.UNIQUE_KEY: name}).encode())
            for name in names
        ]
        header = LedgerSendRequest(ID, self._batch, self._run, token, self.pair)
        found = await self._ask(RequestCode.LEDGER_SEND, header, batches.join(rows), f"rows of {token}")
        end = 0 if found is None else _log_end(found[0])
        self.world.history.add(Wrote(begin, self.pair, self._batch, token, names, end))
        return token if end else ""

    async def _decide(self, attempts: list[str]) -> None:
        """Decides for an attempt, sometimes again and for another one, and ends the batch or not."""
        chance, answered = self.world.chance, False
        for _ in range(chance.choice([1, 1, 2])):
            begin, chosen = self.world.clock.monotonic(), chance.choice(attempts)
            header = LedgerDecideRequest(ID, self._batch, self._run)
            body = wire.encode(LedgerEntry((chosen,), (self.pair,)))
            found = await self._ask(RequestCode.LEDGER_DECIDE, header, body, f"decision of {self._batch}")
            if found is not None and (end := _log_end(found[0])):
                now, tokens, answered = (
                    self.world.clock.monotonic(),
                    wire.read_entry(found[1].body).tokens,
                    True,
                )
                self.world.history.add(Decided(begin, now, self.pair, self._batch, tokens, end))
                self.world.history.tell(now, f"{found[0].name} says that {tokens} won batch {self._batch}")
        if answered and chance.random() < 0.5:
            await self._ask(RequestCode.LEDGER_END, LedgerEndRequest(ID, self._batch), b"", "end")
        if answered or chance.random() < 0.5:
            self._batch += 1

    async def _ask(
        self, code: RequestCode, header: Header, body: bytes, what: str
    ) -> tuple[Node, Command] | None:
        """Returns who answered with success, and what; a refusal ends the run."""
        command = request(code, header)
        command.body = body
        found = await self.call_master(command, what)
        good = STORED if code is RequestCode.LEDGER_SEND else (ResponseCode.SUCCESS,)
        if found is None or found[1].code in good:
            return found
        now, (node, answer) = self.world.clock.monotonic(), found
        self.world.history.tell(now, f"{node.name} refuses {what}: {answer.code} {answer.remark}")
        self.forget_master()
        self._run = ""
        return None

    async def end_all(self) -> dict[int, tuple[str, ...]] | None:
        """Ends all batches; returns by batch the tokens that have won. None: the ledger is not known."""
        await self._ask(RequestCode.LEDGER_END, LedgerEndRequest(ID, self._batch), b"", "the last end")
        winners: dict[int, tuple[str, ...]] = {}
        for first in range(0, self._batch + 1, ASKED):
            asked = wire.encode(list(range(first, first + ASKED)))
            found = await self._ask(RequestCode.LEDGER_READ, LedgerReadRequest(ID), asked, "the book")
            if found is None:
                return None
            winners |= {batch: one.tokens for batch, one in wire.read_book(found[1].body).decided.items()}
        return winners


def _where(queue: str) -> dict[str, str]:
    return {"REAL_TOPIC": TOPIC, "REAL_QID": queue}


def _log_end(node: Node) -> int:
    """Returns where the log of a node ends; 0: it has died since it answered."""
    return node.store.log.end if node.is_up else 0
