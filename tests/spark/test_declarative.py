"""The example of a declarative pipeline, as its page tells to run it: twice, and each message once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.interop import topics
from tests.spark.conftest import Start, need_spark
from tests.spark.reading import bodies

from turbopump import Message, Producer

EXAMPLE = Path(__file__).parents[2] / "examples" / "declarative"
TIMEOUT_S = 300


@pytest.mark.long
def test_the_example_runs_twice_and_bills_each_order_once(start: Start, tmp_path: Path) -> None:
    need_spark()
    cluster = start()
    for topic in ("OrderTopic", "Billing"):
        topics.create(cluster, topic, 2)
    place = tmp_path / "declarative"
    shutil.copytree(EXAMPLE, place)
    spec = place / "spark-pipeline.yml"
    spec.write_text(spec.read_text().replace("file:///tmp/orders-pipeline", f"file://{tmp_path}/storage"))
    with Producer("senders", name_servers=cluster.namesrv) as producer:
        for first in (0, 10):
            for number in range(first, first + 10):
                tag = "paid" if number % 2 else "open"
                producer.send(Message("OrderTopic", f"{number}".encode(), tags=tag))
            run(place, cluster.namesrv)
            billed = sorted(bodies(cluster, "Billing").elements(), key=int)
            assert billed == [f"{number}" for number in range(1, first + 10, 2)]


def run(place: Path, name_server: str) -> None:
    command = [str(Path(sys.executable).parent / "spark-pipelines"), "run", "--spec", "spark-pipeline.yml"]
    conf = ["--conf", "spark.sql.catalogImplementation=hive", "--conf", "spark.sql.shuffle.partitions=2"]
    env = os.environ | {
        "NAMESRV_ADDR": name_server,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(
        [*command, *conf], cwd=place, env=env, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
