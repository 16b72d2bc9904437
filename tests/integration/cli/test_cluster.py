"""`make cluster`: two masters, two slaves, a killed master, and an orderly end by Ctrl-C."""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from turbopump.cli.running_servers import running

ROOT = Path(__file__).parents[3]
PATIENCE_S = 240.0


@pytest.fixture
def demonstration(tmp_path: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, str(ROOT / "scripts/cluster.py"), "--data", str(tmp_path / "data-cluster")]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=tmp_path
    )


def test_a_master_dies_and_nothing_is_lost(demonstration: "subprocess.Popen[str]", tmp_path: Path) -> None:
    lines: list[str] = []
    began = time.monotonic()
    try:
        assert demonstration.stdout is not None
        for line in demonstration.stdout:
            lines.append(line)
            assert time.monotonic() - began < PATIENCE_S
            if "Ctrl-C stops it" in line:
                demonstration.send_signal(signal.SIGINT)
        assert demonstration.wait(PATIENCE_S) == 0, lines
    finally:
        demonstration.kill()
    text = "".join(lines)
    both, one = re.findall(r"s  sent: (.*)", text)
    assert "broker-a: SEND_OK, replicas=2" in both
    assert "broker-b: SEND_OK, replicas=2" in both
    assert "broker-b: SEND_OK, replicas=2" in one
    assert "broker-a" not in one
    read = re.search(r"read (\d+) messages of broker-a from its slave", text)
    assert read is not None, text
    assert int(read[1]) > 0
    assert "sends go to broker-a again" in text
    assert re.search(r"\d+ messages were acknowledged, 0 of them are missing", text), text
    assert lines[-1] == "All servers have stopped.\n"
    stores = sorted(path.parent.name for path in tmp_path.glob("data-cluster/*/store"))
    assert stores == ["broker-a", "broker-a-s", "broker-b", "broker-b-s"]
    assert not list(tmp_path.glob("data-cluster/*/store/abort"))  # all of them stopped in order
    for role in ("broker", "namesrv"):
        for pid in running(role):
            assert str(tmp_path) not in Path(f"/proc/{pid}/cmdline").read_text(), "a server was left"
