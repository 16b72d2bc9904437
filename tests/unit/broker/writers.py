"""Writers of a ledger as a broker sees them: the requests, one by one."""

from collections.abc import Iterable
from typing import Any

from tests.unit.broker.desk import Desk
from tests.unit.broker.producers import all_of

from turbopump.protocol import batch, ledger, properties
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import Command
from turbopump.protocol.ledger import Book, LedgerEntry
from turbopump.protocol.record import Record

ID, HOME = "query", "broker-a"


async def topic(desk: Desk, name: str = "T") -> None:
    """Four queues."""
    await desk.send(name, b"first", queue_id=3)


async def open_(desk: Desk, run: str = "r1", home: str = HOME, id: str = ID) -> Command:
    return await desk.ask(RequestCode.LEDGER_OPEN, {"id": id, "run": run, "home": home})


async def write(desk: Desk, number: int, token: str, bodies: Iterable[bytes], **changes: Any) -> Command:
    fields = {"id": ID, "batch": number, "run": "r1", "token": token, "home": HOME}
    pairs = changes.pop("pairs", {})
    body = changes.pop("body", None) or frame(bodies, **pairs)
    return await desk.ask(RequestCode.LEDGER_SEND, fields | changes, body)


def frame(bodies: Iterable[bytes], **changes: str) -> bytes:
    messages = []
    for body in bodies:
        pairs = {"REAL_TOPIC": "T", "REAL_QID": "1", "UNIQ_KEY": "U" + body.decode(), "own": "x"} | changes
        messages.append((7, body, properties.pack(pairs).encode()))
    return batch.join(messages)


async def decide(desk: Desk, number: int, *tokens: str, run: str = "r1", brokers: Any = (HOME,)) -> Command:
    body = ledger.encode(LedgerEntry(tokens, tuple(brokers)))
    return await desk.ask(RequestCode.LEDGER_DECIDE, {"id": ID, "batch": number, "run": run}, body)


async def end(desk: Desk, number: int, **changes: Any) -> dict[str, int]:
    answer = await desk.ask(RequestCode.LEDGER_END, {"id": ID, "batch": number} | changes)
    assert answer.code == 0, answer.remark
    return {name: int(value) for name, value in (answer.ext or {}).items()}


async def book(desk: Desk, *numbers: int) -> Book:
    answer = await desk.ask(RequestCode.LEDGER_READ, {"id": ID}, ledger.encode(numbers))
    assert answer.code == 0, answer.remark
    return ledger.read_book(answer.body)


async def seen(desk: Desk, queue_id: int = 1) -> list[bytes]:
    """As the queue has them."""
    found: list[Record] = await all_of(desk, "T", queue_id)
    return [one.body for one in found]
