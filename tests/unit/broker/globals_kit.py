"""Requests about global transactions, one by one."""

from typing import Any

from tests.unit.broker.desk import Desk
from tests.unit.broker.ledger_requests_kit import OK
from tests.unit.broker.writers import HOME, frame, topic

from turbopump.protocol import global_transactions as wire
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import Command
from turbopump.protocol.global_transactions import GlobalRecord, GlobalTransaction, ledger_id

GID, GROUP = "tp1.gid", "bank"
LEASE_MS = 30_000


async def begun(desk: Desk) -> None:
    """This broker is the home of the group, and there is a topic."""
    await topic(desk)
    home = {"id": ledger_id(GROUP), "run": "home", "home": HOME}
    assert (await desk.ask(RequestCode.LEDGER_OPEN, home)).code == OK


async def ask(desk: Desk, code: int, body: bytes = b"", **fields: Any) -> Command:
    return await desk.ask(code, {"group": GROUP, "leaseMs": LEASE_MS} | fields, body)


async def open_(desk: Desk, gid: str = GID, **fields: Any) -> GlobalTransaction:
    answer = await ask(
        desk, RequestCode.GLOBAL_OPEN, b"plan", **{"gid": gid, "kind": "tcc", "owner": "tm"} | fields
    )
    assert answer.code == OK, answer.remark
    return wire.read_transaction(answer.body)


async def append(desk: Desk, *events: str, gid: str = GID, **fields: Any) -> Command:
    body = wire.encode([GlobalRecord(event, "debit") for event in events])
    return await ask(desk, RequestCode.GLOBAL_APPEND, body, **{"gid": gid, "lease": 1, "length": 0} | fields)


async def decide(desk: Desk, decision: str, gid: str = GID, **fields: Any) -> GlobalTransaction:
    deadline_ms = desk.disk.clock.now_ms() + 60_000
    fields = {
        "gid": gid,
        "kind": "tcc",
        "decision": decision,
        "owner": "tm",
        "deadlineMs": deadline_ms,
    } | fields
    answer = await ask(desk, RequestCode.GLOBAL_DECIDE, **fields)
    assert answer.code == OK, answer.remark
    return wire.read_transaction(answer.body)


async def read(desk: Desk, gid: str = GID) -> GlobalTransaction:
    answer = await ask(desk, RequestCode.GLOBAL_READ, gid=gid)
    assert answer.code == OK, answer.remark
    return wire.read_transaction(answer.body)


async def write(desk: Desk, bodies: list[bytes], gid: str = GID, **pairs: str) -> Command:
    fields = {"id": ledger_id(GROUP, gid), "batch": 0, "run": "-", "token": gid, "home": HOME}
    return await desk.ask(RequestCode.LEDGER_SEND, fields, frame(bodies, **pairs))
