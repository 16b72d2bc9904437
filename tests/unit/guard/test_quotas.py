"""Quotas of users: bytes and requests in a second, connections."""

import pytest
from tests.kit import virtual
from tests.unit.remoting.kit import connected

from turbopump.auth.access import Identity
from turbopump.guard import quotas
from turbopump.guard.config import UserQuota
from turbopump.guard.quotas import UserQuotas
from turbopump.protocol.errors import SystemBusy
from turbopump.remoting.connection import Connection

ALICE, ROOT = Identity("alice"), Identity("root", is_super=True)


def a_connection() -> Connection:
    return connected(lambda connection, frames: None)[0]


@virtual
async def test_a_user_may_send_its_requests_of_a_second_at_once_and_then_no_more() -> None:
    table, one = UserQuotas({"alice": UserQuota(requests_per_s=3)}), a_connection()
    for _ in range(3):
        table.take(ALICE, 10, one, 0.0)
    with pytest.raises(SystemBusy, match=r"User:alice may have 3 requests in a second; try again later"):
        table.take(ALICE, 10, one, 0.0)
    table.take(ALICE, 10, one, 0.34)
    with pytest.raises(SystemBusy):
        table.take(ALICE, 10, one, 0.34)


@virtual
async def test_a_request_larger_than_the_quota_is_served_and_paid_later() -> None:
    table, one = UserQuotas({"alice": UserQuota(bytes_per_s=100)}), a_connection()
    table.take(ALICE, 250, one, 0.0)
    for now in (0.0, 1.4):
        with pytest.raises(SystemBusy, match="100 bytes in a second"):
            table.take(ALICE, 1, one, now)
    table.take(ALICE, 1, one, 1.6)


@virtual
async def test_a_user_has_no_more_connections_than_its_quota_until_one_ends() -> None:
    table = UserQuotas({"alice": UserQuota(connections=1)})
    first, second = a_connection(), a_connection()
    table.take(ALICE, 1, first, 0.0)
    table.take(ALICE, 1, first, 0.0)
    with pytest.raises(SystemBusy, match="1 connections"):
        table.take(ALICE, 1, second, 0.0)
    first.connection_lost(None)
    table.take(ALICE, 1, second, 0.0)


@virtual
async def test_the_star_is_for_every_user_but_super_users() -> None:
    table, one = UserQuotas({"*": UserQuota(requests_per_s=1), "bob": UserQuota()}), a_connection()
    for _ in range(5):
        table.take(ROOT, 1, one, 0.0)
        table.take(Identity("bob"), 1, one, 0.0)
    table.take(ALICE, 1, one, 0.0)
    with pytest.raises(SystemBusy):
        table.take(ALICE, 1, one, 0.0)


@virtual
async def test_the_number_of_buckets_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas, "MAX_USERS", 2)
    table, one = UserQuotas({"*": UserQuota(requests_per_s=1)}), a_connection()
    for name in ("a", "b", "c"):
        table.take(Identity(name), 1, one, 0.0)
    table.take(Identity("a"), 1, one, 0.0)  # its bucket was dropped
    with pytest.raises(SystemBusy):
        table.take(Identity("c"), 1, one, 0.0)
