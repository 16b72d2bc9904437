import argparse

from turbopump.cli.main import command_named
from turbopump.cli.up import flags_of


def options(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    command_named("up").add_arguments(parser)
    return parser.parse_args(words)


def test_without_flags_everything_is_below_the_data_directory_and_for_this_machine() -> None:
    flags = flags_of(options(), "/d", set(), {})
    assert flags == {"storePathRootDir": "/d/store", "bindAddress": "127.0.0.1", "brokerName": "broker-a"}


def test_the_file_and_the_environment_win_over_this_commands_defaults() -> None:
    environ = {"TURBOPUMP_BROKER_NAME": "broker-z"}
    assert flags_of(options(), "/d", {"storePathRootDir"}, environ) == {"bindAddress": "127.0.0.1"}


def test_a_flag_wins_over_the_file() -> None:
    flags = flags_of(
        options("--data", "/d", "--host", "0.0.0.0", "--broker-port", "0"),
        "/d",
        {"storePathRootDir", "bindAddress", "listenPort", "brokerName"},
        {},
    )
    assert flags == {"storePathRootDir": "/d/store", "bindAddress": "0.0.0.0", "listenPort": "0"}
