"""How `Admin` asks: one server, any name server, all of them; pages; many at once."""

import asyncio

import pytest
from tests.unit.client.kit import BROKER_A, NAMESRV, Cluster

from turbopump.client.admin.calls import MAX_CONCURRENT_REQUESTS, AdminCalls, ServerUnreachable, together
from turbopump.client.admin.pages import Page, all_pages
from turbopump.protocol.bodies import DataVersion
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import reply
from turbopump.protocol.errors import TopicNotFound
from turbopump.runtime.chance import Chance

OTHER = "127.0.0.1:9877"
CODE = RequestCode.GET_BROKER_CLUSTER_INFO


def asking(cluster: Cluster) -> AdminCalls:
    return AdminCalls(cluster, [NAMESRV, OTHER], Chance(1))


def test_any_name_server_can_answer() -> None:
    cluster = Cluster()
    cluster.on(OTHER, CODE, lambda request: reply(request, body=b"{}"))
    assert asyncio.run(asking(cluster).ask_name_server(CODE)).body == b"{}"


def test_without_any_name_server_all_of_them_are_named() -> None:
    with pytest.raises(ServerUnreachable, match=f"{NAMESRV}; {OTHER} does not answer: nobody at "):
        asyncio.run(asking(Cluster()).ask_name_server(CODE))


def test_what_all_must_know_fails_when_one_does_not_answer() -> None:
    cluster = Cluster()
    cluster.on(NAMESRV, CODE, reply)
    with pytest.raises(ServerUnreachable, match=OTHER):
        asyncio.run(asking(cluster).ask_name_servers(CODE))
    cluster.on(OTHER, CODE, reply)
    assert set(asyncio.run(asking(cluster).ask_name_servers(CODE))) == {NAMESRV, OTHER}


def test_a_refusal_says_who_refused() -> None:
    cluster = Cluster()
    cluster.on(BROKER_A, CODE, lambda request: reply(request, 17, "no such topic"))
    with pytest.raises(TopicNotFound) as caught:
        asyncio.run(asking(cluster).ask(BROKER_A, CODE))
    assert caught.value.__notes__ == [f"refused by {BROKER_A}"]


def test_many_questions_are_asked_a_few_at_once_and_answered_in_order() -> None:
    under_way = most = 0

    async def ask(number: int) -> int:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        return -number

    assert asyncio.run(together(ask, range(100))) == [-number for number in range(100)]
    assert most == MAX_CONCURRENT_REQUESTS


def test_of_many_questions_the_first_failure_is_raised_itself() -> None:
    async def ask(number: int) -> int:
        if number == 3:
            raise TopicNotFound("no topic t")
        await asyncio.sleep(0)
        return number

    with pytest.raises(TopicNotFound, match="no topic t"):
        asyncio.run(together(ask, range(10)))


class Table:
    """A table of a broker, which may change between two pages."""

    def __init__(self, size: int, page: int, changes: int = 0) -> None:
        self.size, self.page, self.changes = size, page, changes
        self.asked: list[tuple[int, str]] = []

    async def ask(self, first: int, version: str) -> Page[int]:
        self.asked.append((first, version))
        if first and self.changes:
            self.changes -= 1
            return Page({"new": 0}, DataVersion(counter=100 + self.changes), self.size)
        items = {str(number): number for number in range(first, min(first + self.page, self.size))}
        return Page(items, DataVersion(counter=1), self.size)


def test_pages_are_read_until_the_table_is_whole() -> None:
    table = Table(size=5, page=2)
    whole = asyncio.run(all_pages(table.ask))
    assert list(whole.items.values()) == [0, 1, 2, 3, 4]
    version = DataVersion(counter=1).encode().decode()
    assert table.asked == [(0, ""), (2, version), (4, version)]


def test_a_server_without_pages_gives_everything_at_once() -> None:
    async def everything(first: int, version: str) -> Page[int]:
        assert first == 0
        return Page({"a": 1, "b": 2}, DataVersion(counter=1))

    assert asyncio.run(all_pages(everything)).items == {"a": 1, "b": 2}


def test_a_table_that_changes_is_read_anew_but_not_for_ever() -> None:
    assert len(asyncio.run(all_pages(Table(5, 2, changes=3).ask)).items) == 5
    restless = Table(5, 2, changes=1000)
    asyncio.run(all_pages(restless.ask))
    assert len(restless.asked) < 50


def test_an_empty_page_ends_the_reading() -> None:
    table = Table(size=0, page=2)
    assert asyncio.run(all_pages(table.ask)).items == {}
