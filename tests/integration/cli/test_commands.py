"""Commands of a user's first day against real servers: send and tail with their options, doctor, scripts."""

import json
import os
import re
import subprocess

from tests.integration.cli.conftest import PROGRAMS, Home


def test_send_and_tail_with_their_options(home: Home) -> None:
    home.up()
    sent = home.run("turbopump", "send", "--tag", "paid", "orders", "--property", "amount=7", "one")
    assert (sent.returncode, sent.stderr) == (0, "")
    by_key = [
        json.loads(line)
        for line in home.run(
            *("turbopump", "send", "orders", "--lines", "--by", "A-1", "--json"), stdin=b"two\nthree\n\n"
        ).stdout.splitlines()
    ]
    assert len({one["queue"] for one in by_key}) == 1
    to_queue = home.run("turbopump", "send", "orders", "four", "--queue", "broker-a:3", "--count", "2")
    assert to_queue.stdout.count("queue=3 ") == 2
    binary = home.run("turbopump", "send", "orders", "-", "--tag", "raw", stdin=b"\xff\x1b")
    assert binary.returncode == 0

    def tail(*words: str) -> list[str]:
        return home.run("turbopump", "tail", "orders", "--from", "first", *words).stdout.splitlines()

    assert tail("-n", "2", "--queue", "3", "--where", "body = 'four'", "--format", "{queue} {body}") == [
        "3 four",
        "3 four",
    ]
    assert tail("-n", "1", "--where", "amount > 6", "--format", "{properties[amount]} {tag} {body}") == [
        "7 paid one"
    ]
    (raw,) = tail("-n", "1", "--tag", "raw", "--json")
    assert json.loads(raw)["bodyBase64"] == "/xs="
    (shown,) = tail("-n", "1", "--tag", "raw")
    assert shown.endswith(r"| \xff\x1b")
    wrong = home.run("turbopump", "tail", "orders", "--queue", "99")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "topic orders has no queue 99" in wrong.stderr
    wrong = home.run("turbopump", "send", "orders", "x", "--queue", "99")
    assert wrong.returncode == 2
    assert "--queue 99: there is none; write one of broker-a:0" in wrong.stderr
    beyond = home.run("turbopump", "tail", "orders", "--from", "1700000000", "--queue", "3", "-n", "0")
    assert beyond.returncode == 0
    later = home.run("turbopump", "send", "later", "x", "--delay", "1h", "--json")
    assert json.loads(later.stdout)["recallHandle"]
    assert "later" in home.run("turbopump", "timers", "list").stdout


def test_the_doctor(home: Home) -> None:
    home.up("--http-port", "0")
    home.run("turbopump", "send", "orders", "x")
    well = home.run("turbopump", "doctor", "--topic", "orders")
    assert well.returncode == 0, well.stdout
    assert "ok   broker broker-a (0) at 127.0.0.1:" in well.stdout
    assert re.search(r"ok   topic orders: \d+ queues to write, \d+ to read, on broker-a", well.stdout)
    told = home.run("turbopump", "doctor", "--json")
    assert json.loads(told.stdout)["isWell"] is True
    (broker,) = re.findall(r"at (127\.0\.0\.1:\d+): answers", well.stdout)
    wrong = home.run("turbopump", "doctor", "--namesrv", broker)
    assert (wrong.returncode, "this is a broker, not a name server" in wrong.stdout) == (1, True)
    lines = "".join(home.servers[0].lines)
    (page,) = re.findall(r"http://(127\.0\.0\.1:\d+)/health", lines)
    wrong = home.run("turbopump", "doctor", "--namesrv", page)
    assert (wrong.returncode, "this is an HTTP server" in wrong.stdout) == (1, True)
    nothing = home.run("turbopump", "doctor", "--namesrv", "127.0.0.1:1")
    assert (nothing.returncode, "does not answer" in nothing.stdout) == (1, True)


def test_the_doctor_names_an_advertised_address_that_cannot_be_reached(home: Home) -> None:
    """As with a container whose inner address clients are told. 192.0.2.0/24 is nobody's."""
    (home.path / "broker.conf").write_text("brokerIP1 = 192.0.2.1\n")
    home.up("-c", "broker.conf")
    found = home.run("turbopump", "doctor")
    assert found.returncode == 1
    assert re.search(
        r"FAIL broker broker-a \(0\) at 192\.0\.2\.1:\d+: cannot be reached from here", found.stdout
    )
    assert "set brokerIP1 (TURBOPUMP_BROKER_IP1)" in found.stdout


def test_command_lines_from_books(home: Home) -> None:
    """`sh bin/…` runs a script with the shell, whatever its first line says."""
    home.up()
    os.symlink(PROGRAMS, home.path / "bin")
    for line in (
        "sh bin/tools.sh org.apache.rocketmq.example.quickstart.Producer -n 3",
        "sh bin/tools.sh -Xmx256m org.apache.rocketmq.example.quickstart.Consumer -n 3",
        "sh bin/mqadmin clusterList -n $NAMESRV_ADDR",
        "sh bin/mqbroker -m",
        "sh bin/runserver.sh org.apache.rocketmq.namesrv.NamesrvStartup -p",
        "sh bin/runbroker.sh org.apache.rocketmq.broker.BrokerStartup -m",
        "sh bin/mqnamesrv -p",
        "sh bin/mqshutdown --help",
    ):
        done = subprocess.run(
            ["sh", "-c", line],
            cwd=home.path,
            env=home.environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, (line, done.stderr)
        assert done.stdout, line
