"""`turbopump store` on a real directory."""

import json
import shutil

from tests.integration.cli.conftest import Home


def test_a_store_is_verified_rebuilt_and_dumped(home: Home) -> None:
    up = home.up()
    for number in range(3):
        assert home.run("turbopump", "send", "t", f"m{number}", "--key", f"k{number}").returncode == 0
    in_use = home.run("turbopump", "store", "rebuild", "data/store")
    assert in_use.returncode == 1
    assert "in use" in in_use.stderr
    assert up.stop() == 0

    sound = home.run("turbopump", "store", "verify", "data", "--json")
    assert sound.returncode == 0
    report = json.loads(sound.stdout)
    assert (report["records"], report["is_clean"], report["problems"]) == (3, True, [])

    shutil.rmtree(home.path / "data/store/consumequeue")
    assert home.run("turbopump", "store", "verify", "data/store").returncode == 1
    assert home.run("turbopump", "store", "rebuild", "data/store").returncode == 0
    assert home.run("turbopump", "store", "verify", "data/store").returncode == 0

    dumped = home.run("turbopump", "store", "dump", "data/store", "--topic", "t", "-n", "2")
    assert [line[-2:] for line in dumped.stdout.splitlines()] == ["m0", "m1"]


def test_what_is_no_store_is_said_so(home: Home) -> None:
    done = home.run("turbopump", "store", "verify", ".")
    assert done.returncode == 1
    assert "commitlog" in done.stderr


def test_a_running_broker_is_backed_up_and_the_copy_serves(home: Home) -> None:
    up = home.up()
    for number in range(3):
        assert home.run("turbopump", "send", "t", f"m{number}", "--key", f"k{number}").returncode == 0
    done = home.run("turbopump", "store", "backup", "data/store", "saved/store", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["log_files"] == 1
    again = home.run("turbopump", "store", "backup", "data/store", "saved/store")
    assert again.returncode == 1
    assert "must be an empty directory" in again.stderr
    assert home.run("turbopump", "send", "t", "after").returncode == 0
    assert up.stop() == 0

    shutil.rmtree(home.path / "data")
    (home.path / "saved").rename(home.path / "data")
    restored = home.up()
    assert home.run("turbopump", "send", "t", "m3").returncode == 0
    seen = home.run("turbopump", "tail", "t", "--from", "first", "-n", "4", "--json").stdout
    assert sorted(json.loads(line)["body"] for line in seen.splitlines()) == ["m0", "m1", "m2", "m3"]
    assert restored.stop() == 0
    assert home.run("turbopump", "store", "verify", "data").returncode == 0
