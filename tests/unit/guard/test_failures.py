"""Back-off after failed signatures, by address and claimed name."""

import pytest

from turbopump.auth.accounts import MAX_ACCOUNTS
from turbopump.auth.book import MAX_USERS
from turbopump.guard import failures
from turbopump.guard.failures import FREE_FAILURES, MAX_LOOKS, MAX_WAIT_S, FailedSignatures, SignedNames
from turbopump.guard.peer_networks import network_of
from turbopump.protocol.errors import NoPermission

ADDRESS, NAME = "10.0.0.7", "alice"


def tried(*names: str) -> SignedNames:
    """A connection on which signatures of these names have failed."""
    return SignedNames(wrong=set(names or (NAME,)))


def failed(times: int, table: FailedSignatures | None = None, now: float = 0.0) -> FailedSignatures:
    table = table or FailedSignatures()
    for _ in range(times):
        table.failed(ADDRESS, NAME, tried(), now)
    return table


def test_the_first_failures_are_free_and_one_more_has_to_wait() -> None:
    failed(FREE_FAILURES).check(ADDRESS, NAME, tried(), 0.0)
    with pytest.raises(
        NoPermission, match=r"6 requests of this user from 10.0.0.7 failed; try again in 0.1 s"
    ):
        failed(FREE_FAILURES + 1).check(ADDRESS, NAME, tried(), 0.0)


def test_each_failure_doubles_the_wait_up_to_a_bound() -> None:
    table, now, waits = failed(FREE_FAILURES), 0.0, []
    for _ in range(15):
        table.failed(ADDRESS, NAME, tried(), now)
        waited = 0.0
        while True:
            try:
                table.check(ADDRESS, NAME, tried(), now + waited)
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
    table.check(ADDRESS, "bob", tried("bob"), 0.0)
    table.check("10.0.0.8", NAME, tried(), 0.0)


def test_a_right_signature_ends_the_count() -> None:
    table = failed(FREE_FAILURES)
    table.succeeded(ADDRESS, NAME, tried())
    assert len(table) == 0
    assert table.failed(ADDRESS, NAME, tried(), 0.0) == 1


def test_failures_of_long_ago_do_not_count() -> None:
    table = failed(20)
    assert table.failed(ADDRESS, NAME, tried(), failures.FORGET_S + 1) == 1


def test_names_that_failed_at_an_address_lock_out_no_other_name_there() -> None:
    table = FailedSignatures()
    for number in range(500):
        for _ in range(FREE_FAILURES + 2):
            table.failed(ADDRESS, f"name-{number}", SignedNames(), 0.0)
    table.check(ADDRESS, "never failed", tried("never failed"), 0.0)
    table.check(ADDRESS, "", tried(""), 0.0)
    with pytest.raises(NoPermission):
        table.check(ADDRESS, "name-0", tried("name-0"), 0.0)


def test_one_network_never_pushes_out_its_own_entries() -> None:
    assert failures.MAX_ENTRIES > MAX_USERS
    assert failures.MAX_ENTRIES > MAX_ACCOUNTS


def test_the_addresses_of_an_ipv6_network_count_together() -> None:
    table = FailedSignatures()
    for number in range(FREE_FAILURES + 1):
        table.failed(f"2001:db8:1:2::{number:x}", NAME, tried(), 0.0)
    with pytest.raises(NoPermission):
        table.check("2001:db8:1:2:ffff::1", NAME, tried(), 0.0)
    table.check("2001:db8:1:3::1", NAME, tried(), 0.0)
    table.succeeded("2001:db8:1:2::77", NAME, tried())
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
        table.failed(f"10.0.0.{number}", NAME, tried(), float(number))
    assert len(table) == 3
    assert table.failed("10.0.0.0", NAME, tried(), 5.0) == 1
    assert table.failed("10.0.0.3", NAME, tried(), 5.0) == 2


# --- who guesses locks nobody out -----------------------------------------------------------------------


def looks(table: FailedSignatures, now: float, most: int = 1000) -> int:
    """How many new connections are looked at, one after the other, while the name waits."""
    for number in range(most):
        try:
            table.check(ADDRESS, NAME, SignedNames(), now)
        except NoPermission:
            return number
    return most


def test_a_connection_that_has_signed_rightly_never_waits_and_a_new_one_is_looked_at() -> None:
    table, known = failed(50), SignedNames()
    table.check(ADDRESS, NAME, SignedNames(), 0.0)
    table.succeeded(ADDRESS, NAME, known)
    for _ in range(1000):
        table.check(ADDRESS, NAME, known, 0.0)
    assert len(table) == 1


def test_a_right_signature_gives_no_free_tries_to_who_guesses_beside_it() -> None:
    table, known = failed(50), SignedNames()
    table.succeeded(ADDRESS, NAME, known)
    assert table.failed(ADDRESS, NAME, tried(), 0.0) == 51


def test_new_connections_are_looked_at_a_few_times_in_a_second() -> None:
    """So guesses with a new connection each are slow, too: 2 in a second, after the first 20."""
    table = failed(50)
    assert looks(table, 0.0) == MAX_LOOKS
    assert looks(table, 1.0) == 2
    assert looks(table, 1.4) == 0
    assert looks(table, 1.5) == 1
    table.failed(ADDRESS, NAME, SignedNames(), 100.0)
    assert looks(table, 101.0) == MAX_LOOKS


def test_a_connection_whose_signature_fails_is_not_exempt_any_more() -> None:
    table, known = failed(50), SignedNames()
    table.succeeded(ADDRESS, NAME, known)
    table.failed(ADDRESS, NAME, known, 0.0)
    with pytest.raises(NoPermission):
        table.check(ADDRESS, NAME, known, 0.0)


def test_what_one_connection_has_shown_is_bounded() -> None:
    shown = SignedNames()
    for number in range(1000):
        shown.signed(f"right-{number}")
        shown.failed(f"wrong-{number}")
    assert (len(shown.right), len(shown.wrong)) == (failures.MAX_NAMES, failures.MAX_NAMES)
    assert not shown.is_new_to("another")
