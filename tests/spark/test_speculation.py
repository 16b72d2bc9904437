"""Two attempts of one task at the same time: only what the winner sent is in the topic.

Spark starts a second attempt on another host alone, so there are two, on loopback. The first attempt stops
when it has sent a part of its rows; the second overtakes it, and Spark kills the first without a word to the
sink.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tests.spark.clusters import standalone
from tests.spark.conftest import need_spark
from tests.spark.driving import EACH_ONCE, ROOT, add_files, drive, said
from tests.spark.reading import bodies, make_topic, messages

from turbopump import Admin
from turbopump.protocol.names import HALF_TOPIC

SPECULATING = {
    "spark.executor.memory": "600m",  # less than a worker has
    "spark.executorEnv.PYTHONPATH": str(ROOT),
    "spark.locality.wait": "0s",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "3s",  # others are quicker
    "spark.speculation.quantile": "0.5",
}


@pytest.mark.long
def test_each_row_is_there_once_when_an_attempt_overtakes_another(broker, topic: str, tmp_path: Path) -> None:
    need_spark()
    make_topic(broker, topic)
    add_files(tmp_path)
    given = {"nameServer": broker.namesrv, "topic": topic}
    with standalone(tmp_path) as master:
        code = drive(tmp_path, given, "begun:1:outrun", master=master, conf=SPECULATING)
    assert code == 0, said(tmp_path)
    assert (tmp_path / "reached-begun-0").exists()
    assert (tmp_path / "reached-begun-1").exists()
    assert bodies(broker, topic) == EACH_ONCE
    assert sent(broker, topic) > EACH_ONCE  # by what the loser had sent
    assert open_ones(broker, topic) == 0


def sent(broker, topic: str) -> Counter[str]:
    """Half messages, of all attempts."""
    found = messages(broker, HALF_TOPIC)
    return Counter(one.text for one in found if one.properties.get("REAL_TOPIC") == topic)


def open_ones(broker, topic: str) -> int:
    with Admin(broker.namesrv) as admin:
        halves = list(admin.transactions.open())
    return sum(half.properties.get("REAL_TOPIC") == topic for half in halves)
