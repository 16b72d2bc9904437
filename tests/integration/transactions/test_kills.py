"""Processes killed at every step, with SQLite. The same with PostgreSQL: tests/interop/test_postgres.py."""

from pathlib import Path

from tests.integration.transactions.dying import dying_sqlite, killed_everywhere

STEPS = {
    "before INSERT orders",
    "after INSERT turbopump_outbox",
    "before commit",
    "after commit",
    "after UPDATE turbopump_outbox",
    "before send",
    "after send",
    "before DELETE turbopump_outbox",
    "after INSERT turbopump_processed",
    "before INSERT bills",
    "after INSERT bills",
    "after SELECT turbopump_processed",
    "before acknowledge",
    "after acknowledge",
}
"""Some that must be among those at which the shop died."""


def test_each_effect_once_and_each_committed_message_sent_wherever_a_process_dies(tmp_path: Path) -> None:
    outcomes = list(killed_everywhere(tmp_path, lambda name: dying_sqlite(tmp_path / name)))
    for outcome in outcomes:
        outcome.check()
    whole, *deaths = outcomes
    assert len(deaths) == len(whole.names)
    assert {death.died_at for death in deaths} == set(whole.names) >= STEPS
    assert any(len(death.sent) > len(whole.sent) for death in deaths), "no message was sent twice"
