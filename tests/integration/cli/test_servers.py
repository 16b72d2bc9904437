"""`mqnamesrv`, `mqbroker` and what can go wrong at their start: Apache's words, one line, a status."""

import signal
import socket
import urllib.request

import pytest
from tests.integration.cli.conftest import Home
from tests.integration.cli.server_kit import BROKER_CONF, NAMESRV_CONF, Write

from turbopump.broker.address import LOOPBACK, primary_local_address
from turbopump.cli.running_servers import running
from turbopump.runtime.ports import reserved_port


def start_namesrv(home: Home, write: Write) -> str:
    server = home.start("mqnamesrv", "-c", write("namesrv.conf", NAMESRV_CONF))
    return server.wait_for(r"^The Name Server boot success\. serializeType=JSON, address (\S+)$")[1]


def test_the_two_servers_start_with_apaches_words_and_find_each_other(home: Home, write: Write) -> None:
    address = start_namesrv(home, write)
    broker = home.start("mqbroker", "-n", address, "-c", write("broker.conf", BROKER_CONF))
    ready = broker.wait_for(
        r"^The broker\[broker-x, 127\.0\.0\.1:\d+\] boot success\. serializeType=JSON and (.*)$"
    )
    assert ready[1] == f"name server is {address}"
    broker.wait_for("^Acknowledged means: .*flushDiskType=SYNC_FLUSH")
    home.environment["NAMESRV_ADDR"] = address
    assert home.run("turbopump", "health").returncode == 0
    assert home.run("turbopump", "send", "t", "x").returncode == 0
    assert broker.process.pid in running("broker")
    assert broker.stop() == 0
    assert not (home.path / "store/abort").exists()
    assert home.servers[0].stop() == 0
    for role, words in (("broker", "The broker[broker-x"), ("namesrv", "The Name Server boot success")):
        text = (home.path / "logs/rocketmqlogs" / f"{role}.log").read_text()
        assert (text.count("boot success"), text.count(words)) == (1, 1)


def test_a_server_without_log_files_says_boot_success_once(home: Home, write: Write) -> None:
    broker = home.start("mqbroker", "--log-dir", "-", "-c", write("broker.conf", BROKER_CONF))
    broker.wait_for("boot success")
    assert broker.stop() == 0
    assert "".join(broker.lines).count("boot success") == 1


def test_a_broker_starts_without_any_name_server(home: Home, write: Write) -> None:
    broker = home.start("mqbroker", "-n", "127.0.0.1:1", "-c", write("broker.conf", BROKER_CONF))
    broker.wait_for("boot success")
    assert broker.stop() == 0


def served_addresses(home: Home, conf: str, *words: str) -> tuple[str, str]:
    """What a name server's page answers, and the port that it serves on."""
    with reserved_port("127.0.0.1") as port:
        server = home.start("mqnamesrv", "-c", conf, "--http-port", str(port), *words)
        own = server.wait_for(r"boot success.* address \S+:(\d+)$")[1]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/rocketmq/nsaddr", timeout=10) as answer:
            got = answer.read().decode()
        assert server.stop() == 0
    return got, own


def test_a_name_server_that_was_told_nothing_names_itself_to_who_asks_over_http(
    home: Home, write: Write
) -> None:
    got, port = served_addresses(home, write("here.conf", NAMESRV_CONF))
    assert got == f"127.0.0.1:{port}"
    got, port = served_addresses(home, write("everywhere.conf", "listenPort = 0\n"))
    assert got == f"{primary_local_address() or LOOPBACK}:{port}"


def test_the_list_of_name_servers_comes_from_the_flag_or_the_file(home: Home, write: Write) -> None:
    conf = write("namesrv.conf", f"{NAMESRV_CONF}namesrvAddr = 10.0.0.3:9876\n")
    assert served_addresses(home, conf)[0] == "10.0.0.3:9876"
    both = "10.0.0.1:9876;10.0.0.2:9876"
    assert served_addresses(home, conf, "-n", both)[0] == both
    wrong = home.run("mqnamesrv", "-n", "10.0.0.1:9876;nowhere")
    assert wrong.returncode == 2
    assert "nowhere" in wrong.stderr.splitlines()[-1]


def test_a_closed_terminal_stops_a_server_but_not_one_under_nohup(home: Home, write: Write) -> None:
    words = ("mqnamesrv", "-c", write("namesrv.conf", NAMESRV_CONF))
    plain = home.start(*words)
    plain.wait_for("boot success")
    assert plain.stop(signal.SIGHUP) == 0
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # what nohup does; a child inherits it
    try:
        kept = home.start(*words)
    finally:
        signal.signal(signal.SIGHUP, before)
    address = kept.wait_for(r"boot success.* address (\S+)$")[1]
    kept.process.send_signal(signal.SIGHUP)
    assert home.run("turbopump", "health", address).returncode == 0
    assert kept.stop(signal.SIGTERM) == 0


@pytest.mark.parametrize("program", ["mqbroker", "mqnamesrv"])
def test_p_prints_the_configuration_and_exits(home: Home, write: Write, program: str) -> None:
    printed = home.run(program, "-c", write("some.conf", "listenPort = 4711\n"), "-p")
    assert printed.returncode == 0
    assert "listenPort=4711" in printed.stdout.splitlines()
    assert not (home.path / "store").exists()


def test_m_prints_the_important_part(home: Home) -> None:
    everything = home.run("mqbroker", "-p").stdout.splitlines()
    important = home.run("mqbroker", "-m").stdout.splitlines()
    assert set(important) < set(everything)
    assert any(line.startswith("brokerName=") for line in important)


def one_line(home: Home, status: int, *words: str) -> str:
    """The only line of a command that must not run."""
    done = home.run(*words)
    assert done.returncode == status, done
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    return line


def test_a_port_in_use_is_status_one(home: Home) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        words = ("turbopump", "up", "--broker-port", "0", "--namesrv-port", str(port))
        line = one_line(home, 1, *words)
    assert f"127.0.0.1:{port}" in line
    assert "in use" in line


def test_a_broker_port_in_use_is_status_one_and_leaves_a_clean_store(home: Home) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = one_line(home, 1, "turbopump", "up", "--namesrv-port", "0", "--broker-port", str(port))
    assert "in use" in line
    assert not (home.path / "data/store/abort").exists()


def test_a_directory_that_cannot_be_made_is_status_one(home: Home, write: Write) -> None:
    line = one_line(home, 1, "turbopump", "up", "--data", write("file", "not a directory"))
    assert "file" in line


def test_a_store_directory_that_cannot_be_made_is_status_one(home: Home, write: Write) -> None:
    conf = f"{BROKER_CONF}storePathRootDir = {write('file', 'not a directory')}/store\n"
    line = one_line(home, 1, "mqbroker", "-c", write("broker.conf", conf))
    assert "file" in line


def test_a_store_in_use_is_status_one(home: Home) -> None:
    home.up()
    line = one_line(home, 1, "turbopump", "up", "--namesrv-port", "0", "--broker-port", "0")
    assert "another process" in line


@pytest.mark.parametrize(
    ("conf", "blamed"),
    [
        ("listenPort = many\n", "line 1: listenPort"),
        ("brokerName = a\nflushDiskTyp = SYNC_FLUSH\n", "line 2: flushDiskTyp"),
        ("brokerName = \\u12\n", "line 1"),
        ("brokerName = a\nbrokerId = 1\n", "line 2: brokerId"),
        ("brokerName = a\nstorePathRootDir =\n", "line 2: storePathRootDir"),
    ],
)
@pytest.mark.parametrize("command", [("mqbroker",), ("turbopump", "up")])
def test_a_bad_configuration_is_status_two_and_names_its_line(
    home: Home, write: Write, command: tuple[str, ...], conf: str, blamed: str
) -> None:
    path = write("broker.conf", conf)
    line = one_line(home, 2, *command, "-c", path)
    assert f"{path}: {blamed}" in line


def test_a_file_that_is_not_there_is_status_two(home: Home) -> None:
    assert "nowhere.conf" in one_line(home, 2, "mqbroker", "-c", "nowhere.conf")


def test_an_unknown_flag_is_status_two(home: Home) -> None:
    line = one_line(home, 2, "mqbroker", "--fly")
    assert line == "mqbroker: unrecognized arguments: --fly; see mqbroker --help"


@pytest.mark.parametrize("program", ["mqbroker", "mqnamesrv"])
def test_a_host_that_nobody_knows_is_named(home: Home, write: Write, program: str) -> None:
    conf = write("some.conf", "bindAddress = 300.1.1.1\nlistenPort = 0\n")
    assert "unknown host 300.1.1.1" in one_line(home, 1, program, "-c", conf)


def test_a_misspelt_key_stops_a_name_server_too(home: Home, write: Write) -> None:
    path = write("namesrv.conf", "\nlistenPrt = 0\n")
    line = one_line(home, 2, "mqnamesrv", "-c", path)
    assert line == f"mqnamesrv: {path}: line 2: listenPrt: unknown key; did you mean listenPort?"


def test_shutdown_explains_itself(home: Home) -> None:
    asked = home.run("mqshutdown", "--help")
    assert (asked.returncode, asked.stderr) == (0, "")
    assert asked.stdout.startswith("Usage: mqshutdown broker | namesrv\n")


def test_shutdown_wants_to_know_whom(home: Home) -> None:
    asked = home.run("mqshutdown")
    assert asked.returncode == 2
    assert asked.stderr == "Usage: mqshutdown broker | namesrv\n"
