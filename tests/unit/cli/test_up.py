import argparse

import pytest

from turbopump.cli import serving
from turbopump.cli.main import command_named, main
from turbopump.cli.up import flags_of


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
    wanted = f"turbopump up: error: argument {flag}: {text} is not a port: a number from 0 to 65535"
    assert capsys.readouterr().err.splitlines()[-1] == wanted


@pytest.mark.parametrize(
    ("host", "address"),
    [("0.0.0.0", "127.0.0.1:1"), ("", "127.0.0.1:1"), ("::", "[::1]:1"), ("fe80::1", "[fe80::1]:1")],
)
def test_a_server_on_all_addresses_is_reached_at_one_of_this_machine(host: str, address: str) -> None:
    assert serving.address(host, 1) == address
