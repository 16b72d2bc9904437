"""The commands of docs/operate.md, as they are written there."""

import json
import os
import re
import shutil
import subprocess
from configparser import ConfigParser
from pathlib import Path

import pytest
from tests.integration.cli.conftest import PATIENCE_S, PROGRAMS, Home, Server
from tests.integration.cli.server_kit import BROKER_CONF, NAMESRV_CONF, Write

ROOT = Path(__file__).parents[3]
TESTED = re.compile(r"<!-- tested: (\w+) -->\n```sh\n(.*?)```", re.DOTALL)
BLOCKS = dict(TESTED.findall((ROOT / "docs/operate.md").read_text()))
BILLING = ("--topic", "orders", "--group", "billing")
UNITS = sorted((ROOT / "packaging").glob("*.service"))


def run(name: str, home: Home, **variables: str) -> str:
    environment = {**home.environment, **variables}
    environment["PATH"] = f"{PROGRAMS}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        ["bash", "-e", "-u", "-c", BLOCKS[name]],
        capture_output=True,
        text=True,
        env=environment,
        cwd=home.path,
        timeout=2 * PATIENCE_S,
    )
    assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"
    return done.stdout


def test_a_backup_beside_a_running_broker(home: Home) -> None:
    up = home.up()
    for number in range(5):
        assert home.run("turbopump", "send", "orders", f"m{number}").returncode == 0
    assert "sound" in run("backup", home)
    assert up.stop() == 0
    shutil.rmtree(home.path / "data")
    (home.path / "backup").rename(home.path / "data")
    restored = home.up()
    seen = home.run("turbopump", "tail", "orders", "--from", "first", "-n", "5").stdout
    assert all(f"m{number}" in seen for number in range(5))
    assert restored.stop() == 0


def test_a_topic_gets_more_queues_and_fewer(home: Home) -> None:
    home.up()
    assert home.run("turbopump", "quickstart", "producer", "--topic", "orders", "-n", "5").returncode == 0
    assert home.run("turbopump", "quickstart", "consumer", *BILLING, "-n", "5").returncode == 0
    assert "Consume Diff Total: 0" in run("scaling", home)
    (queues,) = json.loads(home.run("mqadmin", "topicRoute", "-t", "orders", "--json").stdout)["queueDatas"]
    assert (queues["writeQueueNums"], queues["readQueueNums"]) == (8, 8)


def test_a_broker_is_drained_and_leaves(home: Home, write: Write) -> None:
    name_server = home.start("mqnamesrv", "-c", write("namesrv.conf", NAMESRV_CONF))
    home.environment["NAMESRV_ADDR"] = name_server.wait_for(r"boot success.* address (\S+)$")[1]
    old, address = start_broker(home, write, "broker-a")
    create = ("mqadmin", "updateTopic", "-c", "DefaultCluster", "-t", "orders")
    assert home.run(*create).returncode == 0
    assert home.run("turbopump", "quickstart", "producer", "--topic", "orders", "-n", "20").returncode == 0
    start_broker(home, write, "broker-b")
    assert home.run(*create).returncode == 0  # now on both
    assert home.run("turbopump", "quickstart", "consumer", *BILLING, "-n", "20").returncode == 0

    assert "Diff Total: 0" in run("draining", home, OLD_BROKER=address)
    sent = home.run("turbopump", "quickstart", "producer", "--topic", "orders", "-n", "20")
    assert sent.returncode == 0
    assert "brokerName=broker-b" in sent.stdout
    assert "brokerName=broker-a" not in sent.stdout
    assert old.stop() == 0
    assert home.run("turbopump", "quickstart", "consumer", *BILLING, "-n", "20").returncode == 0


def start_broker(home: Home, write: Write, name: str) -> tuple[Server, str]:
    conf = BROKER_CONF.replace("broker-x", name) + f"storePathRootDir = {home.path / name}\n"
    broker = home.start("mqbroker", "-c", write(f"{name}.conf", conf))
    return broker, broker.wait_for(r"The broker\[.*, (\S+)\] boot success")[1]


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_file_starts_a_command_that_we_install(path: Path) -> None:
    unit = ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(path)
    program, *words = unit["Service"]["ExecStart"].split()
    assert (PROGRAMS / Path(program).name).exists()
    shown = subprocess.run([PROGRAMS / Path(program).name, "--help"], capture_output=True, text=True).stdout
    assert all(word in shown for word in words if word.startswith("-") and word != "-")
