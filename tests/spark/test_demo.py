"""`turbopump up --demo`, which `make run` starts: a topic, a table and a topic again, while servers serve."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.interop import processes
from tests.spark.conftest import need_spark


def test_the_demo_shows_the_whole_and_the_servers_go_on(tmp_path: Path) -> None:
    need_spark()
    command = [sys.executable, "-m", "turbopump", "up", "--data", str(tmp_path / "data"), "--demo"]
    ports = ["--namesrv-port", "0", "--broker-port", "0"]
    server = processes.Server([*command, *ports], tmp_path / "log", os.environ)
    try:
        server.wait_ready("demo: Done.")
        told = server.tail()
        assert "1,000 orders from topic DemoOrders to a Delta table" in told
        assert "city    orders" in told
        spoken = told.partition("Ctrl-C stops it.")[2].split("\n")
        assert [line for line in spoken if line and not line.startswith("demo: ")] == []
        assert "log level" in (tmp_path / "data/demo/spark.log").read_text()
    finally:
        server.stop()
