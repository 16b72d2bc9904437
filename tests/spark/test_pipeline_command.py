"""A job as a process: what it prints, how it ends, and what it leaves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.interop import peers, topics
from tests.spark.conftest import need_spark


@pytest.mark.long
def test_an_empty_job_with_state_is_quick_and_prints_no_traceback(
    broker: peers.Cluster, tmp_path: Path
) -> None:
    need_spark()
    topic, other = (topics.create(broker, name, 2) for name in ("EmptyFrom", "EmptyTo"))
    words = ["dedupe", "--from", f"topic:{topic}", "--to", f"topic:{other}", "--since", "1h", "--json"]
    where = [
        "--namesrv",
        broker.namesrv,
        "--master",
        "local[2]",
        "--checkpoint",
        str(tmp_path / "checkpoint"),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "turbopump", "pipeline", *words, *where],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "TZ": "Asia/Tokyo"},
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("since 20")
    assert "+09:00\n" in done.stderr
    assert json.loads(done.stdout)["read"] == 0
    stores = tmp_path / "checkpoint" / "state" / "0"
    assert not stores.exists() or len([one for one in stores.iterdir() if one.name.isdecimal()]) == 2
