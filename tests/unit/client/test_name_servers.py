"""Which of the name servers a client asks: the one that it chose first, whenever that can be used."""

import pytest
from tests.unit.client.kit import BROKER_A, BROKER_B, Cluster, routes_to

from turbopump.client.name_servers import NameServers
from turbopump.client.routes import RouteCache
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import reply
from turbopump.runtime.chance import Chance
from turbopump.testing.loop import run_virtual

ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC
THREE = ["first:9876", "second:9876", "third:9876"]


class MovedClient:
    """A client whose first name server has died, so that it asks another one."""

    def __init__(self, seed: int = 1) -> None:
        self.cluster = Cluster()
        self.knows(*THREE)
        self.servers = NameServers(self.cluster, THREE, Chance(seed))
        self.routes = RouteCache(self.servers)
        run_virtual(self.routes.find("t"))
        self.home = self.last_asked
        del self.cluster.answers[self.home, ROUTE]
        self.second_choice = self.used
        assert self.second_choice != self.home

    def knows(self, *addresses: str, brokers: dict[str, str] | None = None, code: int = 0) -> None:
        answer = routes_to({"t": 1, "u": 1}, brokers or {"a": BROKER_A, "b": BROKER_B})
        for address in addresses:
            self.cluster.on(address, ROUTE, answer if not code else lambda request: reply(request, code))

    def poll(self) -> None:
        """Does what an instance does at each interval."""

        async def both() -> None:
            await self.routes.refresh_known([])
            await self.routes.return_home()

        run_virtual(both())

    @property
    def last_asked(self) -> str:
        return self.cluster.asked[-1][0]

    @property
    def used(self) -> str:
        self.cluster.asked.clear()
        run_virtual(self.routes.refresh("t"))
        return self.last_asked


@pytest.mark.parametrize("seed", range(5))
def test_a_client_returns_to_its_name_server_when_that_knows_the_same_routes_again(seed: int) -> None:
    client = MovedClient(seed)
    run_virtual(client.routes.find("u"))
    client.poll()
    assert client.used == client.second_choice, "it still does not answer"
    client.knows(client.home)
    client.poll()
    assert client.used == client.home
    client.cluster.asked.clear()
    client.poll()
    assert len(client.cluster.asked) == 2, "no more questions than before"


@pytest.mark.parametrize("code", [ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SYSTEM_ERROR, 3])
def test_a_name_server_that_has_just_started_and_knows_no_routes_is_not_used_yet(code: int) -> None:
    client = MovedClient()
    client.knows(client.home, code=code)
    client.poll()
    assert client.used == client.second_choice


def test_a_name_server_at_which_not_all_brokers_have_registered_is_not_used_yet() -> None:
    client = MovedClient()
    client.knows(client.home, brokers={"a": BROKER_A})
    client.poll()
    assert client.used == client.second_choice
    client.knows(client.home)
    client.poll()
    assert client.used == client.home


def test_an_answer_that_cannot_be_read_does_not_end_the_polls() -> None:
    client = MovedClient()
    client.cluster.on(client.home, ROUTE, lambda request: reply(request, body=b"{"))
    client.poll()
    assert client.used == client.second_choice


def test_a_client_stays_when_its_name_server_is_not_in_the_list_any_more() -> None:
    client = MovedClient()
    client.servers.replace([address for address in THREE if address != client.home])
    client.knows(client.home)
    client.cluster.asked.clear()
    client.poll()
    assert {address for address, _ in client.cluster.asked} == {client.second_choice}
