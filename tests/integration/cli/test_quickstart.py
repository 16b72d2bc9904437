"""`turbopump quickstart` as real processes: Apache's topic and groups, nothing lost, nothing twice."""

import re
import signal

from tests.integration.cli.conftest import Home, Server

BODY = re.compile(r"body=\[([^]]*)\]")


def bodies(lines: list[str]) -> list[str]:
    """The texts of received messages: Java prints bytes as numbers."""
    found = [match for line in lines for match in BODY.findall(line)]
    return [bytes(int(number) for number in one.split(", ")).decode() for one in found]


def wait_for_messages(consumer: Server, count: int) -> None:
    """So many different ones: after a crash some come twice."""
    while len(set(bodies(consumer.lines))) < count:
        consumer.wait_for("Receive New Messages")


def test_what_the_producer_sends_a_running_consumer_prints(home: Home) -> None:
    home.up()
    consumer = home.start("turbopump", "quickstart", "consumer")
    consumer.wait_for("^Consumer Started.$")
    sent = home.run("turbopump", "quickstart", "producer", "-n", "200")
    assert (sent.returncode, sent.stderr) == (0, "")
    assert sent.stdout.count("sendStatus=SEND_OK") == 200
    wait_for_messages(consumer, 200)
    assert consumer.stop(signal.SIGINT) == 0
    assert sorted(bodies(consumer.lines)) == sorted(f"Hello RocketMQ {number}" for number in range(200))

    progress = home.run("mqadmin", "consumerProgress", "-g", "please_rename_unique_group_name_4")
    assert "Consume Diff Total: 0" in progress.stdout


def test_a_killed_consumer_is_replaced_by_another_of_its_group(home: Home) -> None:
    home.up()
    first = home.start("turbopump", "quickstart", "consumer")
    first.wait_for("^Consumer Started.$")
    assert home.run("turbopump", "quickstart", "producer", "-n", "50").returncode == 0
    wait_for_messages(first, 50)
    second = home.start("turbopump", "quickstart", "consumer")
    second.wait_for("^Consumer Started.$")
    first.stop(signal.SIGKILL)
    assert home.run("turbopump", "quickstart", "producer", "-n", "100").returncode == 0
    wait_for_messages(second, 100)
    assert second.stop() == 0
    assert set(bodies(second.lines)) == {f"Hello RocketMQ {number}" for number in range(100)}


def test_without_a_server_it_says_what_to_do(home: Home) -> None:
    for role in ("producer", "consumer"):
        alone = home.run("turbopump", "quickstart", role, "--namesrv", "127.0.0.1:1")
        assert alone.returncode == 1
        assert "turbopump up" in alone.stderr
        assert len(alone.stderr.splitlines()) == 1
