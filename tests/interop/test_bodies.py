"""Apache's servers still do what was recorded with every variant of every request body; replies may be empty.

What ours do is compared with the recordings in tests/compat/test_bodies.py, which needs no Java.
"""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest

from . import artifacts, compare, peers, recordings, request_bodies
from .asking import Line
from .clients import prefix
from .conftest import StartOnce

HEARTBEAT, REPLY, PUSHED_REPLY = 34, 325, 326


@pytest.mark.parametrize("server", artifacts.SERVERS)
def test_apache_still_reads_bodies_as_recorded(server: str, tmp_path: Path) -> None:
    """On servers of its own: registrations leave brokers in the name server that others would see."""
    cluster = peers.start(server, peers.place(tmp_path))
    try:
        seen = request_bodies.observe(cluster)
    finally:
        cluster.discard()
    found = list(compare.differences(recordings.load(request_bodies.RECORDED, server), seen))
    assert not found, compare.listing(found) + "\nIf Apache is right: make record"


@pytest.mark.parametrize("server", [peers.OURS, recordings.OLDER])
def test_an_empty_reply_reaches_the_client_that_asked(server: str, start_once: StartOnce) -> None:
    cluster, client = start_once(server), prefix()
    beat = {"clientID": client, "producerDataSet": [{"groupName": client}], "consumerDataSet": []}
    with Line(cluster.broker_addr, {PUSHED_REPLY: b""}) as asker, Line(cluster.broker_addr) as replier:
        assert asker.ask(HEARTBEAT, json.dumps(beat).encode()).code == 0
        waiting = threading.Thread(target=asker.serve_one, daemon=True)
        waiting.start()
        answer = replier.ask(REPLY, b"", **_reply_to(client))
        waiting.join(15)
        assert answer.code == 0, answer.remark
        (pushed, body), *more = asker.heard
    assert (body, more) == (b"", [])
    assert f"CORRELATION_ID\x01{client}" in pushed["extFields"]["properties"]


def _reply_to(client: str) -> dict[str, object]:
    pairs = {"REPLY_TO_CLIENT": client, "CORRELATION_ID": client, "MSG_TYPE": "reply", "TTL": "3000"}
    return {
        "a": f"{client}-replier",
        "b": "DefaultCluster_REPLY_TOPIC",
        "c": "TBW102",
        "d": 4,
        "e": 0,
        "f": 0,
        "g": int(time.time() * 1000),
        "h": 0,
        "i": "".join(f"{name}\x01{value}\x02" for name, value in pairs.items()),
        "j": 0,
        "k": False,
        "m": False,
    }
