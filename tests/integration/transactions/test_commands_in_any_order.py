"""Commands to a participant in SQLite, doubled, reordered and late: each effect once, none left over."""

import asyncio
import contextlib
import sqlite3
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path

import pytest

from turbopump.transactions import Phase, participant
from turbopump.transactions.distributed.command_handler import DecoratedParticipant
from turbopump.transactions.distributed.commands import BranchCommand
from turbopump.transactions.distributed.machine import BranchVerdict

TRY, CONFIRM, CANCEL = Phase.TRY, Phase.CONFIRM, Phase.CANCEL
DONE, REFUSED, PARK = BranchVerdict.DONE, BranchVerdict.REFUSED, BranchVerdict.PARK


class Account:
    """An account in SQLite, whose participant reserves, takes and releases money."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with contextlib.closing(self.connect()) as connection, connection:
            connection.execute("CREATE TABLE accounts (cents INTEGER, frozen INTEGER)")
            connection.execute("INSERT INTO accounts VALUES (100, 0)")
        self.handler = self._handler()

    def connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=20)

    def _handler(self) -> DecoratedParticipant:
        @participant("debit", connect=self.connect, producer=None)  # type: ignore[arg-type]
        def freeze(connection: sqlite3.Connection, cents: int) -> str:
            connection.execute("UPDATE accounts SET cents = cents - ?, frozen = frozen + ?", (cents, cents))
            return f"frozen {cents}"

        @freeze.confirm
        def take(connection: sqlite3.Connection, cents: int) -> None:
            connection.execute("UPDATE accounts SET frozen = frozen - ?", (cents,))

        @freeze.cancel
        @freeze.undo
        def release(connection: sqlite3.Connection, cents: int) -> None:
            connection.execute("UPDATE accounts SET cents = cents + ?, frozen = frozen - ?", (cents, cents))

        return freeze

    def answers(self, gid: str, phases: Sequence[Phase]) -> list[tuple[Phase, BranchVerdict, str]]:
        """Delivers commands one after the other; returns their answers."""

        async def deliver() -> list[tuple[Phase, BranchVerdict, str]]:
            found = []
            for phase in phases:
                answer = await self.handler.answer(BranchCommand(gid, "debit", "debit", phase, input="10"))
                found.append((phase, answer.verdict, answer.data))
            return found

        return asyncio.run(deliver())

    @property
    def row(self) -> tuple[int, int]:
        with contextlib.closing(self.connect()) as connection:
            cents, frozen = connection.execute("SELECT cents, frozen FROM accounts").fetchone()
            return cents, frozen


@pytest.fixture
def account(tmp_path: Path) -> Account:
    return Account(tmp_path / "account.db")


def orders(phases: Sequence[Phase]) -> list[tuple[Phase, ...]]:
    return sorted(set(permutations(phases)))


def test_a_cancel_wins_or_undoes_and_a_later_try_is_refused(account: Account) -> None:
    for number, phases in enumerate(orders([TRY, TRY, CANCEL, CANCEL])):
        found = account.answers(f"gid-{number}", phases)
        is_empty = phases[0] is CANCEL
        for phase, verdict, data in found:
            if phase is CANCEL:
                assert verdict is DONE, found
            elif is_empty:
                assert verdict is REFUSED, found
            else:
                late = phase is TRY and verdict is REFUSED
                assert late or (verdict, data) == (DONE, '"frozen 10"'), found
        assert account.row == (100, 0), phases


def test_a_confirm_works_once_and_never_before_its_try(account: Account) -> None:
    for number, phases in enumerate(orders([TRY, TRY, CONFIRM])):
        before = account.row
        found = account.answers(f"gid-{number}", phases)
        if phases[0] is CONFIRM:  # a fault of the coordinator: it is parked, and asked again later
            assert found[0][1] is PARK
            assert account.answers(f"gid-{number}", [CONFIRM]) == [(CONFIRM, DONE, "")]
        assert [one for one in found if one[0] is TRY] == [(TRY, DONE, '"frozen 10"')] * 2
        assert account.answers(f"gid-{number}", [CONFIRM, CONFIRM]) == [(CONFIRM, DONE, "")] * 2
        assert account.row == (before[0] - 10, 0), phases


def test_a_confirm_after_a_cancel_and_a_cancel_after_a_confirm_do_nothing_and_are_parked(
    account: Account,
) -> None:
    assert [one[1] for one in account.answers("a", [TRY, CANCEL, CONFIRM])] == [DONE, DONE, PARK]
    assert account.row == (100, 0)
    assert [one[1] for one in account.answers("b", [TRY, CONFIRM, CANCEL])] == [DONE, DONE, PARK]
    assert account.row == (90, 0)


def test_a_step_and_its_compensation_are_done_once_in_any_order(account: Account) -> None:
    do, undo = Phase.DO, Phase.UNDO
    for number, phases in enumerate(orders([do, do, undo, undo])):
        found = account.answers(f"gid-{number}", phases)
        assert all(verdict is DONE for phase, verdict, _ in found if phase is undo), found
        assert account.row == (100, 0), phases


def test_a_function_that_fails_leaves_nothing_and_is_asked_again(account: Account) -> None:
    with contextlib.closing(account.connect()) as connection, connection:
        connection.execute("ALTER TABLE accounts RENAME TO away")
    assert account.answers("g", [TRY])[0][1] is BranchVerdict.FAILED
    with contextlib.closing(account.connect()) as connection, connection:
        connection.execute("ALTER TABLE away RENAME TO accounts")
    assert account.answers("g", [TRY, TRY]) == [(TRY, DONE, '"frozen 10"')] * 2
    assert account.row == (90, 10)
