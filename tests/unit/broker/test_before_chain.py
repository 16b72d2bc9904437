"""Every request of a broker passes the links of its router before its handler, whatever way it takes."""

import functools

import pytest
from tests.kit import virtual
from tests.unit.broker.desk import letters, running
from tests.unit.broker.sends import Bench, frame
from tests.unit.remoting.kit import commands, connected, turn

from turbopump.compiled import Twins, twins
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import Command
from turbopump.protocol.errors import NoPermission
from turbopump.protocol.frame import pack
from turbopump.remoting.connection import Connection
from turbopump.remoting.links import BulkHandler
from turbopump.remoting.router import Router
from turbopump.testing.loop import run_virtual

NO_PERMISSION = 16
ONEWAY = 2
PLAIN, LONG, BATCH = 310, 10, 320
BATCH_BODY = bytes(4) + b"not looked at"


class DenyAll:
    """Refuses every request, and counts how often it is asked."""

    def __init__(self) -> None:
        self.checked = 0
        self.asked = 0

    def check(self, command: Command, connection: Connection) -> None:
        self.checked += 1
        raise NoPermission("nothing is permitted")

    def permits_plain_sends(self, connection: Connection) -> bool:
        self.asked += 1
        return False


class PermitAll(DenyAll):
    def check(self, command: Command, connection: Connection) -> None:
        self.checked += 1

    def permits_plain_sends(self, connection: Connection) -> bool:
        self.asked += 1
        return True


def send(code: int, opaque: int, flag: int = 0, **changes: str) -> bytes:
    body = BATCH_BODY if code == BATCH else b"body"
    return pack(*frame(code, letters("T", **changes), body, opaque, flag))


WAYS = {
    "a plain send": send(PLAIN, 1),
    "a plain send with long names": send(LONG, 1),
    "plain sends": b"".join(send(PLAIN, opaque) for opaque in range(5)),
    "a one-way send": send(PLAIN, 1, ONEWAY),
    "a batch": send(BATCH, 1, m="true"),
    "a batch between plain sends": send(PLAIN, 1) + send(BATCH, 2, m="true") + send(PLAIN, 3),
    "a send that is not plain": send(PLAIN, 1, i="DELAY\x013\x02UNIQ_KEY\x01A\x02"),
}

SERVED_TOGETHER = {name for name in WAYS if name not in ("a batch", "a send that is not plain")}


def ways_around(make_router: type[Router], compiled: Twins | None) -> set[str]:
    """The ways on which something is stored, or answered by somebody else, though a link denies all."""
    found: set[str] = set()

    async def main(name: str, event: bytes) -> None:
        link = DenyAll()
        bench = Bench(compiled, make_router=functools.partial(make_router, before=[link]))
        bench.router.serve_in_bulk(bench.many)
        # The compiled way takes only sends to a log that has a file, and to topics that were looked up.
        bench.many.serve(bench.connection, [frame(PLAIN, letters("T"), b"first", 0)])
        before = bench.log()
        connection, transport = connected(bench.router.serve, shortcut=bench.router.shortcut)
        connection.data_received(event)
        await turn()
        answers = commands(b"".join(transport.writes))
        if bench.log() != before or any(answer.code != NO_PERMISSION for answer in answers):
            found.add(name)

    for name, event in WAYS.items():
        run_virtual(main(name, event))
    return found


class ShortcutAroundTheLinks(Router):
    def serve_in_bulk(self, handler: BulkHandler) -> None:
        super().serve_in_bulk(handler)
        self.shortcut = handler.shortcut


class BulkAroundTheLinks(Router):
    def serve_in_bulk(self, handler: BulkHandler) -> None:
        self.serve = handler.serve


def test_no_way_leads_around_the_links() -> None:
    assert ways_around(Router, None) == set()
    assert ways_around(Router, twins()) == set()


def test_a_bulk_handler_around_the_links_is_found() -> None:
    assert ways_around(BulkAroundTheLinks, None) == SERVED_TOGETHER


@pytest.mark.skipif(twins() is None, reason="needs the compiled twin")
def test_a_shortcut_around_the_links_is_found() -> None:
    assert ways_around(ShortcutAroundTheLinks, twins()) == SERVED_TOGETHER


@pytest.mark.parametrize("compiled", [None, twins()])
@virtual
async def test_a_link_that_permits_is_asked_once_per_read_event_and_every_plain_send_is_stored(
    compiled: Twins | None,
) -> None:
    link = PermitAll()
    bench = Bench(compiled, make_router=functools.partial(Router, before=[link]))
    bench.router.serve_in_bulk(bench.many)
    connection, transport = connected(bench.router.serve, shortcut=bench.router.shortcut)
    for event in range(3):
        connection.data_received(b"".join(send(PLAIN, 100 * event + number) for number in range(20)))
    answers = commands(b"".join(transport.writes))
    assert [answer.code for answer in answers] == [0] * 60
    assert (link.asked, link.checked) == (3, 0)
    connection.data_received(send(PLAIN, 1) + send(PLAIN, 2, i="DELAY\x013\x02UNIQ_KEY\x01A\x02"))
    assert (link.asked, link.checked) == (4, 1)


@virtual
async def test_a_broker_that_denies_all_refuses_every_request_code_on_both_ports() -> None:
    link = DenyAll()
    async with running(before=[link]) as desk:
        written = desk.store.log.end
        for port in (desk.broker.port, desk.broker.port - 2):
            for code in (*RequestCode, 99_999):
                answer = await desk.ask(code, letters("T") | {"topic": "T", "group": "G"}, b"", port)
                assert (answer.code, answer.remark) == (NO_PERMISSION, "nothing is permitted"), code
        assert link.checked == 2 * (len(RequestCode) + 1)
        for _ in range(3):
            oneway = Command(PLAIN, ext={k: str(v) for k, v in letters("T").items()}, body=b"lost")
            await desk.client.send_oneway(desk.address, oneway)
        await turn(10)
        assert link.checked == 2 * (len(RequestCode) + 1) + 3
        assert desk.store.log.end == written
