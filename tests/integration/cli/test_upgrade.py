"""A store that was written before there were masters and slaves becomes that of a master, and is copied."""

import json
import shutil

import pytest
from tests.integration.cli.conftest import Home
from tests.integration.cli.pair import Pair
from tests.unit.store.kit import apache_store

FILE_SIZE = 131_072
SIZES = """mappedFileSizeConsumeQueue=400
maxHashSlotNum=50
maxIndexNum=60
mappedFileSizeTimerLog=4160
timerWheelTTLDay=1
"""
MASTER = f"brokerRole=SYNC_MASTER\nbrokerId=0\n{SIZES}"
SLAVE = f"brokerRole=SLAVE\nbrokerId=1\n{SIZES}"
SENT = [*(f"{number:03d}" for number in range(200)), "by level", "by time"]
COMMITTED = {0: 25, 1: 26, 2: 27, 3: 28}


def bodies(home: Home, topic: str, count: int) -> list[str]:
    done = home.run("turbopump", "tail", topic, "--from", "first", "-n", str(count), "--json")
    assert done.returncode == 0, done.stderr
    return [json.loads(line)["body"] for line in done.stdout.splitlines()]


@pytest.mark.parametrize("name", ["lone-clean", "lone-kill9"])
def test_a_store_of_a_lone_broker_of_an_earlier_version_becomes_that_of_a_pair(name: str, home: Home) -> None:
    pair = Pair(home)
    shutil.move(apache_store(name, home.path / "earlier"), pair.store("one"))
    pair.configure("one", MASTER, FILE_SIZE)
    pair.configure("two", SLAVE, FILE_SIZE)
    one, master = pair.start("one")
    two, slave = pair.start("two")
    pair.until(master, lambda status: bool(status["slaves"]))
    pair.send("new")
    # The delayed and the timed message were due while no broker ran: each is delivered once.
    got = bodies(home, "orders", len(SENT) + 1)
    assert sorted(got) == sorted([*SENT, "new"])
    assert sorted(bodies(home, "batched", 20)) == sorted(f"b{number}" for number in range(20))
    end = pair.status(master)["end"]
    pair.until(slave, lambda status: status["state"] == "following" and status["end"] == end)
    compared = home.run("turbopump", "replica", "compare", slave, master)
    assert f"Equal up to {end}; the slave lacks 0 bytes." in compared.stdout
    offsets = json.loads((pair.store("two") / "config/consumerOffset.json").read_text().replace("\n", ""))
    assert {int(queue): at for queue, at in offsets["offsetTable"]["orders@readers"].items()} == COMMITTED

    # What the pair has written, the slave has alone.
    assert one.stop() == 0
    pair.until(slave, lambda status: status["state"] == "searching")
    promoted = home.run("turbopump", "promote", slave)
    assert promoted.returncode == 0, promoted.stderr
    pair.send("newer")
    assert sorted(bodies(home, "orders", len(SENT) + 2)) == sorted([*SENT, "new", "newer"])
    assert two.stop() == 0
