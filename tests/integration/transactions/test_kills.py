"""Processes killed at every step, with SQLite. The same with PostgreSQL: tests/interop/test_postgres.py."""

from pathlib import Path

from tests.integration.transactions.dying import dying_sqlite, killed_everywhere
from tests.integration.transactions.kill_kit import STEPS, check_real_clients


def test_each_effect_once_and_each_committed_message_sent_wherever_a_process_dies(tmp_path: Path) -> None:
    outcomes = list(killed_everywhere(tmp_path, lambda name: dying_sqlite(tmp_path / name)))
    for outcome in outcomes:
        outcome.check()
    whole, *deaths = outcomes
    assert len(deaths) == len(whole.names)
    assert {death.died_at for death in deaths} == set(whole.names) >= STEPS
    assert any(len(death.sent) > len(whole.sent) for death in deaths), "no message was sent twice"


def test_real_clients_killed_again_and_again_have_each_effect_once(tmp_path: Path) -> None:
    check_real_clients(f"sqlite:{tmp_path / 'database'}", tmp_path)
