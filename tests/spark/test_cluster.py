"""On real executors: a master and two workers, whose Python gets our packages from the job itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.interop import peers, topics
from tests.spark.clusters import standalone
from tests.spark.conftest import need_spark

from turbopump import Message, Producer

MESSAGES = 400
TIMEOUT_S = 240


@pytest.fixture
def filled(broker: peers.Cluster) -> str:
    need_spark()
    topic = topics.create(broker, f"Cluster{os.getpid()}{id(object())}", 4)
    with Producer("cluster-senders", name_servers=broker.namesrv) as producer:
        producer.send_batch([Message(topic, f"{number}".encode()) for number in range(MESSAGES)])
    return topic


@pytest.fixture
def bare_python(tmp_path: Path) -> str:
    """Of the same version, with nothing installed."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    return str(tmp_path / "bare" / "bin" / "python")


def test_a_job_runs_on_a_standalone_cluster_whose_executors_have_a_bare_python(
    filled: str, broker: peers.Cluster, bare_python: str, tmp_path: Path
) -> None:
    with standalone(tmp_path, bare_python) as master:
        said = stats_on(
            master, filled, broker, tmp_path, "--ship", "--conf", f"spark.pyspark.python={bare_python}"
        )
    assert f'"messages": {MESSAGES}' in said


@pytest.mark.long
def test_a_job_runs_on_executors_that_share_our_installation(
    filled: str, broker: peers.Cluster, tmp_path: Path
) -> None:
    said = stats_on("local-cluster[2,1,1024]", filled, broker, tmp_path)
    assert f'"messages": {MESSAGES}' in said


def stats_on(master: str, topic: str, broker: peers.Cluster, home: Path, *more: str) -> str:
    command = [sys.executable, "-m", "turbopump", "pipeline", "stats", "--json", "--master", master]
    source = ["--from", f"topic:{topic}", "--by", "topic,queue", "--namesrv", broker.namesrv]
    env = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"}
    more = (*more, "--conf", "spark.executor.memory=600m")  # less than a worker has
    done = subprocess.run(
        [*command, *source, *more], cwd=home, env=env, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
