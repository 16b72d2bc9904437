"""`turbopump up` as a newcomer meets it."""

import json
import signal
import socket
import urllib.error
import urllib.request

import pytest
from tests.integration.cli.conftest import Home, Server

from turbopump import Message, Producer, SendStatus
from turbopump.broker.address import LOOPBACK, primary_local_address


def test_what_is_sent_is_seen_and_survives_a_restart(home: Home) -> None:
    up = home.up()
    sent = home.run("turbopump", "send", "hello", "Hello, RocketMQ", "--tag", "a", "--key", "k", "--json")
    assert sent.returncode == 0, sent.stderr
    result = json.loads(sent.stdout)
    assert (result["status"], result["offset"], result["durability"]) == ("SEND_OK", 0, "memory")
    assert up.stop() == 0
    for role, words in (("broker", "The broker[broker-a"), ("namesrv", "The Name Server boot success")):
        text = (home.path / "data/logs" / f"{role}.log").read_text()
        assert (text.count("boot success"), text.count(words)) == (1, 1)
    assert not (home.path / "data/store/abort").exists()

    again = home.up()
    read = home.run("turbopump", "tail", "hello", "--from", "first", "-n", "1")
    assert read.stdout.endswith("tag=a keys=k | Hello, RocketMQ\n")
    assert again.stop(signal.SIGINT) == 0


def test_the_welcome_says_what_an_acknowledgement_means_and_what_to_try(home: Home) -> None:
    up = home.up()
    text = "".join(up.lines)
    assert "acknowledged" in text
    assert "flushDiskType=SYNC_FLUSH" in text
    assert "send hello" in text
    assert "tail hello --from first" in text
    assert f"export NAMESRV_ADDR={home.environment['NAMESRV_ADDR']}" in text


def test_the_welcome_names_the_store_of_the_file_and_what_the_file_says_in_vain(home: Home) -> None:
    store = home.path / "elsewhere"
    (home.path / "b.conf").write_text(f"storePathRootDir = {store}\nnamesrvAddr = 10.0.0.1:9876\n")
    up = home.up("-c", "b.conf")
    assert any(line.split() == ["store", str(store)] for line in up.lines)
    (warning,) = [line for line in up.lines if line.startswith("WARNING")]
    assert "b.conf: namesrvAddr has no effect with `up`" in warning
    assert store.exists()


def test_nothing_is_printed_beside_the_welcome(home: Home) -> None:
    up = home.up()
    home.run("turbopump", "send", "hello", "x")
    assert up.stop() == 0
    assert up.lines[-1].startswith("Ctrl-C")


def test_a_body_comes_from_stdin_byte_for_byte(home: Home) -> None:
    home.up()
    assert home.run("turbopump", "send", "raw", stdin=b"\x00\xff\n").returncode == 0
    read = home.run("turbopump", "tail", "raw", "--from", "first", "-n", "1")
    assert read.stdout.endswith(r"| \x00\xff\n" + "\n")


def test_tail_prints_what_arrives_in_the_order_of_storing(home: Home) -> None:
    home.up()
    for number in range(4):
        assert home.run("turbopump", "send", "t", f"m{number}").returncode == 0
    read = home.run("turbopump", "tail", "t", "--from", "first", "-n", "4")
    assert [line[-2:] for line in read.stdout.splitlines()] == ["m0", "m1", "m2", "m3"]
    late = home.start("turbopump", "tail", "t", "--from", "last", "-n", "1")
    while late.process.poll() is None:  # it starts reading at an unknown moment: send until it has seen one
        home.run("turbopump", "send", "t", "late")
    late.wait_for("late")


def test_health_is_asked_of_everyone(home: Home) -> None:
    up = home.up()
    well = home.run("turbopump", "health")
    assert well.returncode == 0
    assert [line.split()[0] for line in well.stdout.splitlines()] == ["ok", "ok"]
    address = home.environment["NAMESRV_ADDR"]
    up.stop()
    ill = home.run("turbopump", "health", address)
    assert ill.returncode == 1
    assert "FAIL" in ill.stdout


def test_health_over_http(home: Home) -> None:
    up = home.start("turbopump", "up", "--namesrv-port", "0", "--broker-port", "0", "--http-port", "0")
    name_server = up.wait_for(r"name server +(\S+)")[1]
    url = up.wait_for(r"health +(http\S+)")[1]
    up.wait_for("Ctrl-C")
    with urllib.request.urlopen(url, timeout=10) as answer:
        assert (answer.status, answer.read()) == (200, b"ok\n")
    with urllib.request.urlopen(url.replace("/health", "/rocketmq/nsaddr"), timeout=10) as answer:
        assert answer.read().decode() == name_server


def on_all_addresses(home: Home, *words: str) -> tuple[Server, str, str]:
    """`turbopump up` for other machines too: the name server that it names, and where its pages are."""
    flags = ("--namesrv-port", "0", "--broker-port", "0", "--host", "0.0.0.0", "--http-port", "0")
    up = home.start("turbopump", "up", *flags, *words)
    name_server = up.wait_for(r"name server +(\S+)")[1]
    pages = up.wait_for(r"health +http://(\S+)/health")[1]
    up.wait_for("Ctrl-C")
    return up, name_server, pages


def test_on_all_addresses_others_are_told_an_address_that_they_can_use(home: Home) -> None:
    up, name_server, pages = on_all_addresses(home)
    assert name_server.rpartition(":")[0] == (primary_local_address() or LOOPBACK)
    assert f"export NAMESRV_ADDR={name_server} " in "".join(up.lines)
    with urllib.request.urlopen(f"http://{pages}/rocketmq/nsaddr", timeout=10) as answer:
        assert answer.read().decode() == name_server
    assert home.run("turbopump", "send", "t", "x", "--namesrv", name_server).returncode == 0


def test_on_all_addresses_the_name_server_is_where_the_broker_says_that_it_is(home: Home) -> None:
    (home.path / "broker.conf").write_text("brokerIP1 = 127.0.0.7\n")
    _, name_server, pages = on_all_addresses(home, "-c", "broker.conf")
    assert name_server.startswith("127.0.0.7:")
    with urllib.request.urlopen(f"http://{pages}/rocketmq/nsaddr", timeout=10) as answer:
        assert answer.read().decode() == name_server


def test_our_client_of_a_unit_finds_its_name_server_over_http(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("NAMESRV_ADDR", "TURBOPUMP_CONFIG"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(home.path))
    _, _, pages = on_all_addresses(home)
    with Producer("orders", name_server_domain=pages, unit_name="unit1") as producer:
        assert producer.send(Message("t", b"x")).status is SendStatus.SEND_OK


def test_a_command_without_a_server_says_what_to_do(home: Home) -> None:
    sent = home.run("turbopump", "send", "t", "x", "--namesrv", "127.0.0.1:1")
    assert sent.returncode == 1
    assert "turbopump up" in sent.stderr
    assert len(sent.stderr.splitlines()) == 1


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_on_all_ipv6_addresses_both_kinds_of_clients_are_served(home: Home) -> None:
    home.up("--host", "::")
    host, _, port = home.environment["NAMESRV_ADDR"].rpartition(":")
    assert host == (primary_local_address() or LOOPBACK)
    for name_server in (f"{host}:{port}", f"[::1]:{port}", f"127.0.0.1:{port}"):
        sent = home.run("turbopump", "send", "t", "x", "--namesrv", name_server)
        assert sent.returncode == 0, sent.stderr


def test_tail_takes_a_condition_and_says_where_it_is_wrong(home: Home) -> None:
    up = home.up()
    for tag in ("a", "b", "a"):
        assert home.run("turbopump", "send", "chosen", f"of {tag}", "--tag", tag).returncode == 0
    told = home.run(
        "turbopump", "tail", "chosen", "--from", "first", "-n", "2", "--sql", "TAGS = 'a'", "--json"
    )
    assert [json.loads(line)["tag"] for line in told.stdout.splitlines()] == ["a", "a"]
    wrong = home.run("turbopump", "tail", "chosen", "--sql", "TAGS = = 'a'")
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("turbopump: sql: ")
    both = home.run("turbopump", "tail", "chosen", "--sql", "TAGS = 'a'", "--tag", "a")
    assert (both.returncode, "one of tags, sql" in both.stderr) == (2, True)
    assert up.stop() == 0


def test_the_demo_without_java_says_what_is_missing_and_the_servers_go_on(home: Home) -> None:
    home.environment["PATH"] = str(home.path)
    up = home.up("--demo")
    up.wait_for(r"demo: Skipping the pipelines: (Spark needs Java 17|pipelines need PySpark: pip install)")
    assert home.run("turbopump", "tail", "DemoOrders", "--from", "first", "-n", "1").returncode == 0
    assert up.stop() == 0
