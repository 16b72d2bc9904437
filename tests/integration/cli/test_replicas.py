"""A master and its slave as processes: status, promotion, and the return of the old master."""

import json
import shutil
import signal
from pathlib import Path

import pytest
from tests.integration.cli.conftest import Home
from tests.integration.cli.pair import Pair

MASTER, SLAVE = "brokerRole=ASYNC_MASTER\nbrokerId=0\n", "brokerRole=SLAVE\nbrokerId=1\n"


@pytest.fixture
def pair(home: Home) -> Pair:
    return Pair(home)


def test_a_slave_is_promoted_and_the_old_master_returns(pair: Pair) -> None:
    home = pair.home
    pair.configure("one", MASTER)
    conf = pair.configure("two", SLAVE)
    one, master = pair.start("one")
    pair.send("both have it")
    two, slave = pair.start("two")
    end = pair.status(master)["end"]
    pair.until(slave, lambda status: status["state"] == "following" and status["end"] == end)
    followed = pair.until(master, lambda status: bool(status["slaves"]))
    (row,) = followed["slaves"]  # type: ignore[misc]
    assert (row["brokerId"], row["received"], row["behindBytes"], row["isInSync"]) == (1, end, 0, True)
    text = home.run("turbopump", "replica", "status", master).stdout
    assert "in sync" in text
    compared = home.run("turbopump", "replica", "compare", slave, master)
    assert compared.returncode == 0
    assert f"Equal up to {end}; the slave lacks 0 bytes." in compared.stdout

    # A slave whose master lives is not promoted.
    refused = home.run("turbopump", "promote", slave)
    assert refused.returncode == 1
    assert f"the master of broker-a at {master} answers" in refused.stderr
    assert home.run("turbopump", "health", slave).stdout.startswith(f"ok   {slave} slave")

    # The slave dies, the master takes a message that the slave never gets, and dies too.
    two.stop(signal.SIGKILL)
    pair.send("lost with the master")
    one.stop(signal.SIGKILL)
    two, slave = pair.start("two")
    pair.until(slave, lambda status: status["state"] == "searching")
    doubtful = home.run("turbopump", "promote", slave)
    assert doubtful.returncode == 1
    assert "it has crashed since it was last compared with its master" in doubtful.stderr
    promoted = home.run("turbopump", "promote", slave, "--force")
    assert promoted.returncode == 0, promoted.stderr
    assert f"{slave} is ASYNC_MASTER of broker-a now" in promoted.stdout
    assert "brokerRole=ASYNC_MASTER\nbrokerId=0\n" in conf.read_text()
    assert "# a comment that stays\n" in conf.read_text()
    assert conf.with_name("two.conf.old").read_text().endswith(SLAVE)
    assert "brokerRole=ASYNC_MASTER" in "".join((home.path / "logs-two/broker.log").read_text())
    pair.send("sent to the new master")
    assert "both have it" in pair.read(2)

    # The old master comes back as a slave: it is no copy, says so, and takes nothing.
    pair.configure("one", SLAVE)
    one, old = pair.start("one")
    stopped = pair.until(old, lambda status: status["state"] == "stopped")
    assert "turbopump replica resync" in str(stopped["trouble"])
    assert home.run("turbopump", "health", old).returncode == 1
    refused = home.run("turbopump", "promote", old)
    assert refused.returncode == 1
    compared = home.run("turbopump", "replica", "compare", old, slave)
    assert compared.returncode == 1
    assert "They differ from log offset" in compared.stdout
    running = home.run("turbopump", "replica", "resync", str(pair.store("one")), slave, "--yes")
    assert running.returncode == 1
    assert "runs: stop it first" in running.stderr
    one.stop()

    # Its tail is set aside, and named.
    resync = ("turbopump", "replica", "resync", str(pair.store("one")), slave)
    preview = home.run(*resync)
    assert preview.returncode == 0, preview.stderr
    assert "this store alone has 1 records" in preview.stdout
    assert "Nothing was changed" in preview.stdout
    assert not (pair.store("one") / "set-aside").exists()
    done = json.loads(home.run(*resync, "--yes", "--json").stdout)
    assert (done["done"], done["records"], done["cut"]) == (True, 1, end)
    kept = [Path(name) for name in done["files"]]
    assert any(b"lost with the master" in path.read_bytes() for path in kept if path.is_file())
    (file,) = [path for path in kept if path.name.isdecimal()]
    (home.path / "tail/commitlog").mkdir(parents=True)
    file.rename(home.path / "tail/commitlog" / file.name)
    dumped = home.run("turbopump", "store", "dump", "tail", "--json").stdout
    assert [json.loads(line)["body"] for line in dumped.splitlines()] == ["lost with the master"]
    again = home.run(*resync)
    assert "nothing has to be set aside" in again.stdout
    stopped_copy = home.run("turbopump", "replica", "compare", str(pair.store("one")), slave)
    assert stopped_copy.returncode == 0, stopped_copy.stdout
    one, old = pair.start("one")
    end = pair.status(slave)["end"]
    pair.until(old, lambda status: status["state"] == "following" and status["end"] == end)
    two.stop()

    # With nobody in its way it is promoted by its file.
    one.stop()
    conf = home.path / "one.conf"
    promoted = home.run("turbopump", "promote", str(conf), "--role", "SYNC_MASTER")
    assert promoted.returncode == 0, promoted.stderr
    assert "and it had everything then" in promoted.stdout
    assert conf.read_text().endswith("brokerRole=SYNC_MASTER\nbrokerId=0\n")
    one, _ = pair.start("one")
    seen = pair.read(2)
    assert "both have it" in seen
    assert "sent to the new master" in seen
    assert "lost with the master" not in seen


def test_a_slave_that_lacks_something_is_not_promoted(pair: Pair) -> None:
    home = pair.home
    conf = pair.configure("two", SLAVE)
    two, slave = pair.start("two")
    refused = home.run("turbopump", "promote", slave)
    assert refused.returncode == 1
    assert "its copy is incomplete: it has copied nothing yet" in refused.stderr
    by_file = home.run("turbopump", "promote", str(conf))
    assert by_file.returncode == 1
    assert "runs: promote it by its address" in by_file.stderr
    two.stop()
    by_file = home.run("turbopump", "promote", str(conf))
    assert by_file.returncode == 1
    assert "its copy is incomplete" in by_file.stderr
    assert conf.read_text().endswith(SLAVE)
    home.servers[0].stop()
    blind = home.run("turbopump", "promote", str(conf), "--namesrv", pair.name_server)
    assert "no name server answers" in blind.stderr
    forced = home.run("turbopump", "promote", str(conf), "--force")
    assert forced.returncode == 0, forced.stderr
    assert "forced, although its copy is incomplete" in forced.stderr
    assert "brokerRole=ASYNC_MASTER" in conf.read_text()


def test_a_pair_is_restarted_one_after_the_other_backed_up_and_restored(pair: Pair) -> None:
    home = pair.home
    pair.configure("one", "brokerRole=SYNC_MASTER\nbrokerId=0\n")
    pair.configure("two", SLAVE)

    def following(slave: str, master: str) -> None:
        end = pair.status(master)["end"]
        pair.until(slave, lambda status: status["state"] == "following" and status["end"] == end)

    one, master = pair.start("one")
    two, slave = pair.start("two")
    pair.until(slave, lambda status: status["state"] == "following")
    pair.until(master, lambda status: bool(status["slaves"]))
    sent = home.run("turbopump", "send", "orders", "before")
    assert "SEND_OK" in sent.stdout
    assert "replicas=2" in sent.stdout

    # A rolling restart: the slave, then the master.
    assert two.stop() == 0
    two, slave = pair.start("two")
    following(slave, master)
    assert one.stop() == 0
    assert "before" in pair.read(1)  # from the slave
    one, master = pair.start("one")
    following(slave, master)
    pair.until(master, lambda status: bool(status["slaves"]))
    assert "replicas=2" in home.run("turbopump", "send", "orders", "between").stdout

    # A copy of the running slave's store.
    copied = home.run("turbopump", "store", "backup", str(pair.store("two")), "backup")
    assert copied.returncode == 0, copied.stderr
    assert home.run("turbopump", "send", "orders", "after the backup").returncode == 0
    assert (one.stop(), two.stop()) == (0, 0)
    for node in ("one", "two"):
        shutil.rmtree(pair.store(node))
        shutil.copytree(home.path / "backup", pair.store(node))
    one, master = pair.start("one")
    two, slave = pair.start("two")
    following(slave, master)
    seen = pair.read(2)
    assert "before" in seen
    assert "between" in seen
    pair.until(master, lambda status: bool(status["slaves"]))
    assert "replicas=2" in home.run("turbopump", "send", "orders", "restored").stdout

    # Only the master is restored, to an older state than its slave's: that is detected.
    assert (one.stop(), two.stop()) == (0, 0)
    shutil.rmtree(pair.store("one"))
    shutil.copytree(home.path / "backup", pair.store("one"))
    one, master = pair.start("one")
    two, slave = pair.start("two")
    stopped = pair.until(slave, lambda status: status["state"] == "stopped")
    assert "beyond the master's end" in str(stopped["trouble"])
