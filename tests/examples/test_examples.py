"""Every program of examples/ is run against an embedded cluster, and prints what it should."""

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from turbopump.testing import Cluster

EXAMPLES = Path(__file__).parents[2] / "examples"
LEVELS = " ".join(["1s"] * 18)  # a retry after ten seconds would be too long for a test
CHECKS = {"transactionTimeOut": "1000", "transactionCheckInterval": "1000"}  # and so would half a minute
TIMEOUT_S = 60
AT_A_TIME = 4

Run = subprocess.CompletedProcess[str]

PRINTED = {
    "send_and_consume": """
        sent: SEND_OK, message 0 of its queue
        consumed: order A-1 is paid
    """,
    "asyncio_clients": """
        sent: 100 messages to 4 queues
        consumed: 100 messages, 100 different ones
    """,
    "futures": """
        under way: 20 sends
        part 7: SEND_OK
        done: 20
    """,
    "oneway": """
        sent: 1000 messages; whether they are stored is not known
        stored: 1000
    """,
    "batch": """
        sent: 500 messages, the last at offset 499
        consumed: 500 messages, at most 32 in a call
    """,
    "delay": """
        at once: thank you for your order
        later:   pay, or the order is cancelled
        at least a second later: True
    """,
    "timers": """
        taken back: True
        at a moment: not before its time: True
        in a second and a half: not before its time: True
        nothing else came: True
    """,
    "request_reply": """
        coffee: 4.20
        tea: 3.50
        cocoa: no answer
    """,
    "typed_handlers": """
        order 7 of Ada is due on 30 November 2026
        dead letter: {"id":"seven","customer":"Bob","due":"2026-11-30"}
    """,
    "tags": """
        booked: paid paid refunded
    """,
    "sql_filter": """
        audited: A-2 A-4
    """,
    "ordered_by_key": """
        A-1 created→paid→sent→received
        B-2 created→paid→sent→received
        C-3 created→paid→sent→received
    """,
    "global_order": """
        booked: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19
    """,
    "broadcast": """
        web-1 discount=10
        web-1 discount=20
        web-2 discount=10
        web-2 discount=20
    """,
    "retry_and_dead_letters": """
        paid with card 1234
        try 1 of card 1234
        try 1 of no card at all
        try 2 of card 1234
        try 2 of no card at all
        dead letter: no card at all
    """,
    "pull": """
        exported: 40
        again: 0
        queue 0: 3 of 10, next 3
        queue 1: 3 of 10, next 3
        queue 2: 3 of 10, next 3
        queue 3: 3 of 10, next 3
    """,
    "seek_to_time": """
        since then: new 0 new 1 new 2 new 3 new 4
        the first of all: old 0
    """,
    "administration": """
        brokers: broker-a
        known: True
        behind: 6
        by key: message 7
        by id: message 3
    """,
    "priority_own_topic": """
        confirmed: order A-1
        while newsletters were still waiting: True
    """,
    "priority_fair_queues": """
        the small stores were served among the first: True
    """,
    "priority_by_pull": """
        done in the order: A0 A1 A2 B0 B1 B2 C0 C1 C2
    """,
    "peak_shaving": """
        the sale: 400 orders accepted
        the backend: all done, never more than 4 at a time: True
    """,
    "data_distribution": """
        search-index: 5 orders
        warehouse-stock: 5 orders
        newsletter: 5 orders
    """,
    "several_keys_in_one_queue": """
        green, in order: 0 1 2 3
        others ignored: 12
    """,
    "skip_backlog": """
        skipped the old ones: True, ended with: the newest
    """,
    "idempotent": """
        delivered: A-1 A-1 A-1 B-2
        billed: A-1 B-2
    """,
    "outbox": """
        rolled back: the customer has no credit
        sent: order A-1
    """,
    "transaction_bank_transfer": """
        T-2: not enough money, no message
        credited: T-1 T-3
        here: 35
        there: 165
    """,
    "two_phase_blocks": """
        TM -> icbc: CanCommit?  Yes, the row is locked
        TM -> ccb: CanCommit?  Yes, the row is locked
        the TM is killed
        0 h later: read 5000000; another write to icbc: it waits for the lock
        1 h later: read 5000000; another write to icbc: it waits for the lock
        recovery -> TC: decide abort; what counts: abort
        recovery -> icbc: DoAbort, the row is free
        recovery -> ccb: DoAbort, the row is free
        another write to icbc: it is written; the sum is 5000000
    """,
    "two_phase_without_a_log": """
        Memory: abort for ccb, icbc 4000000, ccb 0, sum 4000000
        Book: commit for ccb, icbc 4000000, ccb 1000000, sum 5000000
    """,
    "three_phase_splits": """
        CanCommit: a ready b ready c ready
        PreCommit: a precommitted b ready c ready
        the network is cut: a | b c TC
        a cannot reach the TC and decides alone: commit
        after the timeouts: a committed b aborted c aborted
        the network is whole again: the TC says abort, but a has committed: SPLIT
    """,
}


@pytest.fixture(scope="module")
def runs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, "Future[Run]"]]:
    """Those that were asked for, some at a time: most of the while they wait."""
    wanted = [name for name in PRINTED if any(f"[{name}]" in item.name for item in request.session.items)]
    with (
        Cluster(settings={"messageDelayLevel": LEVELS, **CHECKS}) as cluster,
        ThreadPoolExecutor(AT_A_TIME) as pool,
    ):
        directory = str(tmp_path_factory.mktemp("examples"))
        surroundings = {
            "NAMESRV_ADDR": cluster.name_servers,
            "TMPDIR": directory,
            "PYTHONIOENCODING": "utf-8",
        }
        yield {name: pool.submit(run, name, surroundings) for name in wanted}


def run(name: str, surroundings: dict[str, str]) -> Run:
    return subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py"],
        env={**os.environ, **surroundings},
        capture_output=True,
        encoding="utf-8",
        timeout=TIMEOUT_S,
        check=False,
    )


@pytest.mark.parametrize("name", PRINTED)
def test_the_example_prints_what_it_should(name: str, runs: dict[str, "Future[Run]"]) -> None:
    done = runs[name].result()
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == _lines(PRINTED[name])


def test_every_example_is_run_and_listed() -> None:
    programs = {path.stem for path in EXAMPLES.glob("*.py")}
    assert programs == set(PRINTED)
    listed = (EXAMPLES / "README.md").read_text()
    shown = (EXAMPLES.parent / "docs/examples.md").read_text()
    assert [name for name in programs if f"[{name}.py]({name}.py)" not in listed] == []
    assert [name for name in programs if f'"examples/{name}.py"' not in shown] == []


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines()]
