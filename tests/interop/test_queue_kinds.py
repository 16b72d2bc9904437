"""Light queues and topics of inner batches: Apache's Java client sees the same at 5.5.0 and at ours, and a
store with both kinds of queues goes from one to the other and back, the second time after kill -9.
"""

from __future__ import annotations

from pathlib import Path

from turbopump.store.tools import run, verify

from . import clients, peers

APACHE = "5.5.0"
CLIENT = "java-5.5.0"
CONF = {
    "enableLmq": "true",
    "enableMultiDispatch": "true",
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeConsumeQueue": "400",
    "mapperFileSizeBatchConsumeQueue": str(46 * 5),
    "maxMessageSize": str(1 << 18),
}


ROUND = "> round: "


def test_one_program_sees_the_same_and_the_store_moves_both_ways(tmp_path: Path) -> None:
    [first, second, third] = seen(peers.OURS, peers.place(tmp_path / "ours"), 0, 1, 2)
    assert [line for line in first if "KindBatches[6]" in line], first

    place = peers.place(tmp_path / "travelling")
    assert seen(APACHE, place, 0) == [first]
    assert seen(peers.OURS, place, 1, killed=True) == [second]
    assert run(verify(str(place.store_dir))).problems == []
    assert seen(APACHE, place, 2) == [third]
    assert run(verify(str(place.store_dir))).problems == []


def seen(kind: str, place: peers.Place, *rounds: int, killed: bool = False) -> list[list[str]]:
    """What the program printed in each round."""
    cluster = peers.start(kind, place, CONF, namesrv=peers.OURS)
    try:
        arguments = [cluster.namesrv, cluster.broker_addr, *map(str, rounds)]
        printed = clients.run_java(CLIENT, "Kinds", arguments, place.home)
        if not killed:
            cluster.stop()
    finally:
        cluster.kill()
    lines = [line for line in printed.splitlines() if line.startswith("> ")]
    begins = [number for number, line in enumerate(lines) if line.startswith(ROUND)]
    return [lines[begin:end] for begin, end in zip(begins, [*begins[1:], None], strict=True)]
