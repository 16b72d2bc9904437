"""`make cluster`: a killed master of two pairs, a killed leader of a group, and an orderly end by Ctrl-C."""

import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

from turbopump.cli.running_servers import running

ROOT = Path(__file__).parents[3]
PATIENCE_S = 240.0


def demonstrated(directory: Path, *arguments: str) -> list[str]:
    """Runs the demonstration until it has ended by Ctrl-C; returns the lines that it printed."""
    command = [sys.executable, str(ROOT / "scripts/cluster.py"), "--data", str(directory / "data-cluster")]
    demonstration = subprocess.Popen(
        [*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=directory
    )
    end = threading.Timer(PATIENCE_S, demonstration.terminate)  # reading its lines has no bound by itself
    end.start()
    lines: list[str] = []
    interrupted = False
    try:
        assert demonstration.stdout is not None
        for line in demonstration.stdout:
            lines.append(line)
            if "Ctrl-C stops it" in line:
                demonstration.send_signal(signal.SIGINT)
                interrupted = True
        assert demonstration.wait(PATIENCE_S) == 0, lines
        assert interrupted, lines
        assert end.is_alive(), f"ended by the timer after {PATIENCE_S:g} s: {lines}"
    finally:
        end.cancel()
        demonstration.kill()
    assert lines[-1] == "All servers have stopped.\n"
    assert not list(directory.glob("data-cluster/*/store/abort"))  # all of them stopped in order
    for role in ("broker", "namesrv"):
        for pid in running(role):
            assert str(directory) not in Path(f"/proc/{pid}/cmdline").read_text(), "a server was left"
    return lines


def test_a_leader_dies_and_nothing_is_lost(tmp_path: Path) -> None:
    text = "".join(demonstrated(tmp_path, "dledger"))
    killed = re.search(r"killed the leader (n\d) with SIGKILL", text)
    led = re.search(r"(n\d) leads: the first send was acknowledged [\d.]+ s after the kill", text)
    assert killed is not None, text
    assert led is not None, text
    assert killed[1] != led[1]
    assert re.search(rf"started {killed[1]} again: it follows {led[1]} and has all entries", text), text
    assert re.search(r"sent: 200 x RaftNode00: SEND_OK, quorum in term \d+\n", text), text
    assert re.search(r"\d+ messages were acknowledged, 0 of them are missing", text), text


def test_a_master_dies_and_nothing_is_lost(tmp_path: Path) -> None:
    lines = demonstrated(tmp_path)
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
    stores = sorted(path.parent.name for path in tmp_path.glob("data-cluster/*/store"))
    assert stores == ["broker-a", "broker-a-s", "broker-b", "broker-b-s"]
