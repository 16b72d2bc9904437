"""Back-off after failed signatures, by address and claimed name."""

import pytest

from turbopump.auth.accounts import MAX_ACCOUNTS
from turbopump.auth.book import MAX_USERS
from turbopump.guard import failures
from turbopump.guard.failures import FREE_FAILURES, MAX_WAIT_S, FailedSignatures
from turbopump.guard.peer_networks import network_of
from turbopump.protocol.errors import NoPermission

ADDRESS, NAME = "10.0.0.7", "alice"


def failed(times: int, table: FailedSignatures | None = None, now: float = 0.0) -> FailedSignatures:
    table = table or FailedSignatures()
    for _ in range(times):
        table.failed(ADDRESS, NAME, now)
    return table


def test_the_first_failures_are_free_and_one_more_has_to_wait() -> None:
    failed(FREE_FAILURES).check(ADDRESS, NAME, 0.0)
    with pytest.raises(
        NoPermission, match=r"6 requests of this user from 10.0.0.7 failed; try again in 0.1 s"
    ):
        failed(FREE_FAILURES + 1).check(ADDRESS, NAME, 0.0)


def test_each_failure_doubles_the_wait_up_to_a_bound() -> None:
    table, now, waits = failed(FREE_FAILURES), 0.0, []
    for _ in range(15):
        table.failed(ADDRESS, NAME, now)
        waited = 0.0
        while True:
            try:
                table.check(ADDRESS, NAME, now + waited)
                break
            except NoPermission:
                waited += 0.05
        waits.append(waited)
        now += waited
    assert waits[0] == pytest.approx(0.1, abs=0.06)
    assert waits[3] == pytest.approx(0.8, abs=0.06)
    assert max(waits) == waits[-1] == pytest.approx(MAX_WAIT_S, abs=0.06)


def test_another_name_or_another_address_does_not_wait() -> None:
    table = failed(50)
    table.check(ADDRESS, "bob", 0.0)
    table.check("10.0.0.8", NAME, 0.0)


def test_a_right_signature_ends_the_count() -> None:
    table = failed(FREE_FAILURES)
    table.succeeded(ADDRESS, NAME)
    assert len(table) == 0
    assert table.failed(ADDRESS, NAME, 0.0) == 1


def test_failures_of_long_ago_do_not_count() -> None:
    table = failed(20)
    assert table.failed(ADDRESS, NAME, failures.FORGET_S + 1) == 1


def test_names_that_failed_at_an_address_lock_out_no_other_name_there() -> None:
    table = FailedSignatures()
    for number in range(500):
        for _ in range(FREE_FAILURES + 2):
            table.failed(ADDRESS, f"name-{number}", 0.0)
    table.check(ADDRESS, "never failed", 0.0)
    table.check(ADDRESS, "", 0.0)
    with pytest.raises(NoPermission):
        table.check(ADDRESS, "name-0", 0.0)


def test_one_network_never_pushes_out_its_own_entries() -> None:
    assert failures.MAX_ENTRIES > MAX_USERS
    assert failures.MAX_ENTRIES > MAX_ACCOUNTS


def test_the_addresses_of_an_ipv6_network_count_together() -> None:
    table = FailedSignatures()
    for number in range(FREE_FAILURES + 1):
        table.failed(f"2001:db8:1:2::{number:x}", NAME, 0.0)
    with pytest.raises(NoPermission):
        table.check("2001:db8:1:2:ffff::1", NAME, 0.0)
    table.check("2001:db8:1:3::1", NAME, 0.0)
    table.succeeded("2001:db8:1:2::77", NAME)
    assert len(table) == 0


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("10.0.0.7", "10.0.0.7"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("fe80::1%eth0", "fe80::/64"),
        ("a name", "a name"),
    ],
)
def test_the_network_of_a_peer(address: str, network: str) -> None:
    assert network_of(address) == network


def test_the_table_is_bounded_and_drops_what_failed_longest_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "MAX_ENTRIES", 3)
    table = FailedSignatures()
    for number in range(4):
        table.failed(f"10.0.0.{number}", NAME, float(number))
    assert len(table) == 3
    assert table.failed("10.0.0.0", NAME, 5.0) == 1
    assert table.failed("10.0.0.3", NAME, 5.0) == 2
