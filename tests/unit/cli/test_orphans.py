"""`turbopump transactions orphans` without a database: its URLs, and what it says of a branch."""

from urllib.parse import urlsplit

import pytest
from tests.kit import virtual
from tests.unit.cli.transactions_kit import run

from turbopump.cli import orphans
from turbopump.cli.failures import CommandFailure
from turbopump.client.admin.global_transactions import BookEntry
from turbopump.protocol.global_transactions import GlobalDecision, GlobalKind, GlobalState, GlobalTransaction
from turbopump.testing import AsyncCluster
from turbopump.transactions.distributed.gids import Xid
from turbopump.transactions.distributed.resources import PreparedBranch


@pytest.mark.parametrize(
    ("url", "words"),
    [
        (
            "sqlite:///bank.db",
            "--resource must begin with postgresql://, mariadb:// or mysql://, got 'sqlite'",
        ),
        ("bank", "got 'bank'"),
        ("mariadb://bank@10.0.0.1:99999/ccb", "the port of --resource"),
    ],
)
def test_a_url_that_names_no_database_of_ours_is_refused(url: str, words: str) -> None:
    with pytest.raises(CommandFailure) as raised:
        orphans.connector(urlsplit(url))
    assert words in str(raised.value)
    assert raised.value.status == 2


def orphan(gid: str, decision: GlobalDecision | None) -> orphans.Orphan:
    entry = None
    if decision is not None:
        state = GlobalState.DECIDED if decision else GlobalState.OPEN
        known = GlobalTransaction(gid, "bank", GlobalKind.XA, state, decision=decision)
        entry = BookEntry("broker-a", "127.0.0.1:10911", known)
    return orphans.Orphan("postgresql://10.0.0.1/icbc", PreparedBranch(Xid(gid, "icbc"), None), entry)


def test_it_says_what_will_end_a_branch() -> None:
    assert "here commit" in orphan("tp1.x", GlobalDecision.COMMIT).ending
    assert "its deadline" in orphan("tp1.x", GlobalDecision.NONE).ending
    assert "it writes an abort" in orphan("tp1.x", None).ending
    assert "the last resource" in orphan("tpl.x", GlobalDecision.NONE).ending
    assert "here abort" in orphan("tpl.x", GlobalDecision.ABORT).ending


@virtual
async def test_it_needs_a_database() -> None:
    async with AsyncCluster(clock="virtual") as cluster, cluster.admin() as admin:
        with pytest.raises(SystemExit):
            await run(admin, "orphans")
