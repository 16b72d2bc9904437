import argparse
from types import SimpleNamespace
from typing import Any

import pytest

from turbopump.cli import server_start
from turbopump.cli.conf_file import ConfFile
from turbopump.cli.main import command_named, main
from turbopump.cli.up import dropped, flags_of, welcome


def options(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    command_named("up").add_arguments(parser)
    return parser.parse_args(words)


def test_without_flags_everything_is_below_the_data_directory_and_for_this_machine() -> None:
    flags = flags_of(options(), "/d", set(), {})
    assert flags == {
        "storePathRootDir": "/d/store",
        "bindAddress": "127.0.0.1",
        "brokerName": "broker-a",
        "enablePropertyFilter": "true",
    }


def test_the_file_and_the_environment_win_over_this_commands_defaults() -> None:
    environ = {"TURBOPUMP_BROKER_NAME": "broker-z"}
    in_file = {"storePathRootDir", "enablePropertyFilter"}
    assert flags_of(options(), "/d", in_file, environ) == {"bindAddress": "127.0.0.1"}


def test_a_flag_wins_over_the_file() -> None:
    flags = flags_of(
        options("--data", "/d", "--host", "0.0.0.0", "--broker-port", "0"),
        "/d",
        {"storePathRootDir", "bindAddress", "listenPort", "brokerName", "enablePropertyFilter"},
        {},
    )
    assert flags == {"storePathRootDir": "/d/store", "bindAddress": "0.0.0.0", "listenPort": "0"}


@pytest.mark.parametrize(
    ("flag", "text"),
    [
        ("--namesrv-port", "99999"),
        ("--namesrv-port", "-1"),
        ("--broker-port", "ten"),
        ("--http-port", "70000"),
    ],
)
def test_what_is_no_port_is_refused_in_one_line(
    flag: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["up", flag, text])
    assert caught.value.code == 2
    complaint = f"argument {flag}: must be a port from 0 to 65535, got {text}"
    assert capsys.readouterr().err == f"turbopump up: {complaint}; see turbopump up --help\n"


@pytest.mark.parametrize(
    ("host", "address"),
    [("0.0.0.0", "127.0.0.1:1"), ("", "127.0.0.1:1"), ("::", "[::1]:1"), ("fe80::1", "[fe80::1]:1")],
)
def test_a_server_on_all_addresses_is_reached_at_one_of_this_machine(host: str, address: str) -> None:
    assert server_start.address(host, 1) == address


def shown(store: str) -> str:
    broker: Any = SimpleNamespace(
        address="127.0.0.1:2",
        acknowledgement="in memory",
        config=SimpleNamespace(
            identity=SimpleNamespace(broker_name="broker-a"), store=SimpleNamespace(root_dir=store)
        ),
    )
    return welcome(broker, "127.0.0.1:1", "/d", "")


def test_the_welcome_names_the_store_where_it_is_not_below_the_data_directory() -> None:
    assert "/d/store" not in shown("/d/store")
    assert "  store           /elsewhere" in shown("/elsewhere").splitlines()


def test_a_name_server_in_the_file_has_no_effect_and_that_is_told() -> None:
    (warning,) = dropped(ConfFile("b.conf", b"brokerName=a\nnamesrvAddr=10.0.0.1:9876\n"))
    assert warning.startswith("b.conf: namesrvAddr has no effect")
    assert dropped(ConfFile("b.conf", b"brokerName=a\n")) == []
