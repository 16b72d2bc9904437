"""When a broker that does not know a client gets a heartbeat."""

import asyncio
import contextlib
from types import SimpleNamespace

from tests.unit.client.kit import BROKER_A, NAMESRV, Cluster, routes_to

from turbopump.client.heartbeats import RETRY_S, Heartbeats
from turbopump.client.name_servers import NameServers
from turbopump.client.routes import RouteCache
from turbopump.protocol.bodies import HeartbeatData, ProducerData
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import Command, reply
from turbopump.protocol.errors import AccessRefused, Refused
from turbopump.remoting.client import Client
from turbopump.runtime.chance import Chance
from turbopump.testing.loop import VirtualClock, run_virtual

ANSWER_S = 0.2


class SlowToConnect(Cluster):
    """A broker that knows no group; a connection to it, which a heartbeat waits for, takes a moment."""

    def __init__(self) -> None:
        super().__init__()
        self.on(NAMESRV, RequestCode.GET_ROUTEINFO_BY_TOPIC, routes_to({"t": 1}, {"a": BROKER_A}))
        self.on(BROKER_A, RequestCode.HEART_BEAT, reply)
        self.on(BROKER_A, RequestCode.GET_CONSUMER_LIST_BY_GROUP, self._unknown)

    def _unknown(self, request: Command) -> Command:
        return reply(request, 1, "no such group")

    async def connect(self, address: str) -> object:
        await asyncio.sleep(ANSWER_S)
        return SimpleNamespace(is_closing=False, on_closed=[])


def _beats_within_two_seconds(asked_after_s: float) -> int:
    """Returns how many heartbeats are sent when the members are asked for this long after the first began."""
    played = SlowToConnect()

    async def scene() -> int:
        client: Client = played  # type: ignore[assignment]
        described = HeartbeatData("me", [ProducerData("p")], [])
        routes = RouteCache(NameServers(client, [NAMESRV], Chance(1)))
        beats = Heartbeats(client, routes, VirtualClock(), lambda: ["t"], lambda: described)
        keeping = asyncio.create_task(beats.keep())
        await asyncio.sleep(asked_after_s)
        with contextlib.suppress(Refused):
            await beats.members("readers", "t")
        await asyncio.sleep(2 * RETRY_S)
        keeping.cancel()
        return played.times_asked(RequestCode.HEART_BEAT)

    return run_virtual(scene())


def test_a_broker_that_does_not_know_the_group_gets_a_heartbeat_in_a_second() -> None:
    assert _beats_within_two_seconds(asked_after_s=2 * ANSWER_S) == 2


def test_a_broker_that_is_just_getting_a_heartbeat_gets_no_second_one() -> None:
    assert _beats_within_two_seconds(asked_after_s=ANSWER_S / 2) == 1


def test_a_refusal_of_all_brokers_is_known_until_one_accepts() -> None:
    played = SlowToConnect()
    played.on(BROKER_A, RequestCode.HEART_BEAT, lambda request: reply(request, 16, "check signature failed."))

    async def scene() -> tuple[AccessRefused | None, AccessRefused | None]:
        client: Client = played  # type: ignore[assignment]
        described = HeartbeatData("me", [ProducerData("p")], [])
        routes = RouteCache(NameServers(client, [NAMESRV], Chance(1)))
        beats = Heartbeats(client, routes, VirtualClock(), lambda: ["t"], lambda: described)
        assert await beats.refused_by_all() is None, "nothing was asked yet"
        assert not await beats.announce()
        before = await beats.refused_by_all()
        played.on(BROKER_A, RequestCode.HEART_BEAT, reply)
        assert await beats.announce()
        return before, await beats.refused_by_all()

    before, after = run_virtual(scene())
    assert before is not None
    assert before.remark == "check signature failed."
    assert after is None
