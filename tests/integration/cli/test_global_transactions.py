"""`turbopump transactions` as a process: what it prints, its errors in one line, its exit status."""

import asyncio
import json

from tests.integration.cli.conftest import Home

from turbopump.protocol.global_transactions import GlobalDecision, GlobalKind, GlobalRecord
from turbopump.transactions.distributed.journal import BrokerJournal


def bank_of(home: Home) -> None:
    """A saga that waits for an operator, and an XA transaction that is decided."""

    async def main() -> None:
        async with BrokerJournal("bank", home.environment["NAMESRV_ADDR"], owner="tm") as journal:
            saga = await journal.open("order-4711", GlobalKind.SAGA, '{"order": 4711}')
            await journal.append(saga, [GlobalRecord("done", "debit")])
            await journal.append(saga, [], state="parked", error="refund: the account is closed")
            deadline_ms = journal.admin.clock.now_ms() + 30_000
            decision = GlobalDecision.COMMIT
            await journal.decide(
                "transfer", GlobalKind.XA, decision, ["icbc", "ccb"], deadline_ms=deadline_ms
            )

    asyncio.run(main())


def test_an_operator_finds_looks_at_and_resolves_what_waits(home: Home) -> None:
    home.up()
    bank_of(home)
    listed = home.run("turbopump", "transactions", "list", "--kind", "saga", "--state", "parked")
    assert (listed.returncode, listed.stderr) == (0, "")
    (row,) = [line for line in listed.stdout.splitlines() if not line.startswith("#")]
    assert row.startswith("parked    saga   order-4711")
    assert row.endswith("refund: the account is closed")
    shown = home.run("turbopump", "transactions", "show", "order-4711")
    assert "last error  refund: the account is closed" in shown.stdout
    why = ("--because", "paid back by hand, ticket 17")
    done = home.run("turbopump", "transactions", "resolve", "order-4711", "--done", "refund", *why)
    assert (done.returncode, done.stdout) == (
        0,
        "order-4711: branch refund is noted as done; the state is open\n",
    )
    document = json.loads(home.run("turbopump", "transactions", "show", "order-4711", "--json").stdout)
    assert document["history"][-1]["event"] == "resolved-done"
    assert document["history"][-1]["data"].endswith(": paid back by hand, ticket 17")


def test_failures_are_one_line_and_an_exit_status(home: Home) -> None:
    home.up()
    bank_of(home)
    why = ("--because", "why")
    for words, status, line in (
        (("show", "nothing"), 1, "no broker knows transaction nothing"),
        (("retry", "nothing"), 1, "no broker knows transaction nothing"),
        (("resolve", "transfer", "--abort", *why), 1, "the opposite is a heuristic decision"),
        (("resolve", "transfer", "--done", "a b", *why), 1, "a branch must be 1 to 64 ASCII characters"),
        (("resolve", "transfer", "--abort"), 2, "--because"),
        (("resolve", "transfer", *why), 2, "--commit"),
        (("list", "--kind", "half", "--state", "parked"), 2, "half messages are open or expired"),
        (("list", "--older", "soon"), 2, "--older"),
    ):
        done = home.run("turbopump", "transactions", *words)
        assert done.returncode == status, (words, done.stderr)
        assert line in done.stderr
        assert len(done.stderr.splitlines()) == 1, done.stderr
        assert done.stdout == ""
