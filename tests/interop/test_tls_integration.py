"""Apache's own integration tests of TLS, the classes of its `test` module, against servers of ours.

They are run as they are; a class of ours stands in for the one that would start Apache's servers. Theirs,
too, are permissive and made a certificate at their start: one client encrypts and the other does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from . import artifacts, peers, processes

SERVER = {"tlsTestModeEnable": "true"}
CLASSES = ("TlsIT", "TlsMixIT", "TlsMix2IT")
LIMIT_S = 300


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[peers.Cluster]:
    started = peers.start(peers.OURS, peers.place(tmp_path / "cluster"), SERVER, namesrv_conf=SERVER)
    yield started
    started.discard()


def test_apaches_integration_tests_of_tls_pass(cluster: peers.Cluster, tmp_path: Path) -> None:
    java = artifacts.tool("java", "Apache's integration tests")
    where = [f"-Dinterop.namesrv={cluster.namesrv}", "-Dinterop.cluster=DefaultCluster"]
    homes = [f"-Duser.home={tmp_path}", f"-Drocketmq.client.logRoot={tmp_path}"]
    jars = artifacts.integration_tests("5.5.0")
    tests = [f"org.apache.rocketmq.test.tls.{name}" for name in CLASSES]
    command = [
        java,
        *artifacts.JAVA_OPTIONS,
        *where,
        *homes,
        "-cp",
        jars,
        "org.junit.runner.JUnitCore",
        *tests,
    ]
    log = tmp_path / "junit.log"
    processes.run(command, log, LIMIT_S)  # a failed test ends it with another code than 0
    assert f"OK ({len(CLASSES)} tests)" in log.read_text()
