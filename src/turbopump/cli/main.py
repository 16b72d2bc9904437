"""Runs the command line: finds the command, returns its exit status (0 done, 1 failed, 2 wrong usage).

Only the module of that command is imported; `turbopump --help` needs none of them.
"""

import argparse
import gc
import importlib
import sys
import textwrap
from collections.abc import Sequence
from typing import Protocol, cast

import turbopump
from turbopump.cli.arguments import Parser, example_text, sentence, unknown
from turbopump.cli.exits import end_where_arrow_is_loaded, exit_status

COMMANDS = {
    "up": "start a name server and a broker in one process: the quickest start",
    "namesrv": "start a name server (also: mqnamesrv)",
    "broker": "start a broker (also: mqbroker)",
    "send": "send a message to a topic",
    "tail": "print the messages of a topic as they arrive",
    "trace": "show the path of one message: producer, consumers and times",
    "health": "check whether servers work: exit status 0 or 1",
    "doctor": "find out why clients cannot use a cluster: addresses, routes, disk, clock, versions",
    "config": "check a configuration file before a server uses it",
    "admin": "administer a cluster (also: mqadmin)",
    "dlq": "list, resend or export the dead letters of a consumer group",
    "transactions": "list, show, retry or resolve transactions: half messages, XA, 3PC, TCC, SAGA",
    "timers": "list or recall messages with a delivery time",
    "pipeline": "run jobs on Spark over topics, stores and tables: archive, replay, transform, stats ...",
    "quickstart": "run the producer or the consumer of RocketMQ's quick start",
    "export": "export messages of a topic or of a store directory to Parquet files",
    "store": "verify, rebuild, back up or dump a store directory",
    "replica": "show how far copies of a log are, compare two of them, set the tail of one aside",
    "raft": "show who leads a DLedger group, move the leadership, compare the logs of its members",
    "promote": "make a slave the master of its broker name, after checks",
    "auth": "explain what a user may do, and which entry of its policies decides",
    "tls": "make certificates for the servers and clients of a cluster",
    "completion": "print a script that completes commands and options in bash, zsh or fish",
    "help": "explain a command",
}

EXAMPLES = {
    "up": "turbopump up --data ./data\nturbopump up --host 0.0.0.0 --http-port 8080",
    "namesrv": "turbopump namesrv --http-port 8080",
    "broker": "turbopump broker -n 127.0.0.1:9876 -c broker.conf",
    "send": 'turbopump send orders "paid" --tag paid --key A-1 --property amount=5\n'
    "turbopump send orders --lines --by A-1 < orders.txt\n"
    'turbopump send orders "remind me" --delay 10m',
    "tail": "turbopump tail orders --from 10m --tag paid\n"
    "turbopump tail orders --from first --where \"amount > 5\" --format '{time} {keys} {body}'",
    "trace": "turbopump trace 7F0000010001000000000000000000001",
    "health": "turbopump health\nturbopump health 127.0.0.1:10911",
    "doctor": "turbopump doctor --namesrv 10.0.0.5:9876 --topic orders",
    "config": "turbopump config check broker.conf",
    "admin": "turbopump admin topicList\nturbopump admin help consumerProgress",
    "dlq": "turbopump dlq list billing --since 1h\nturbopump dlq resend billing --all",
    "transactions": "turbopump transactions list --older 5m\nturbopump transactions show order-4711",
    "timers": "turbopump timers list --topic orders",
    "pipeline": "turbopump pipeline archive --help\nturbopump pipeline stats --from topic:orders",
    "quickstart": "turbopump quickstart producer -n 10\nturbopump quickstart consumer",
    "export": "turbopump export --topic orders --since 1d --to orders.parquet\n"
    "turbopump export ./data/store --to exported --by topic,date",
    "store": "turbopump store verify ./data",
    "replica": "turbopump replica status 10.0.0.6:10911\n"
    "turbopump replica compare 10.0.0.6:10911 10.0.0.5:10911\n"
    "turbopump replica resync /data/store 10.0.0.5:10911",
    "raft": "turbopump raft status broker-a -n 10.0.0.1:9876\nturbopump raft transfer n1\n"
    "turbopump raft verify /data/n0/store /data/n1/store /data/n2/store",
    "promote": "turbopump promote 10.0.0.6:10911\nturbopump promote conf/2m-2s-sync/broker-a-s.properties",
    "auth": "turbopump auth explain billing Sub Topic:orders\n"
    "turbopump auth explain billing Pub Topic:orders --source 10.0.0.7 --json",
    "tls": "turbopump tls init ./tls --host 10.0.0.5 --client alice",
    "completion": "source <(turbopump completion bash)",
    "help": "turbopump help send\nturbopump help dlq resend",
}

WIDTH = 110


class CommandModule(Protocol):
    """Interface of the modules named in COMMANDS."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, options: argparse.Namespace) -> int: ...


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    return exit_status(lambda: _run(given), "turbopump")


def program() -> int:
    """Runs the command line as a process of its own."""
    status = main()
    end_where_arrow_is_loaded(status)
    return status


def main_as(name: str, program: str, arguments: Sequence[str] | None = None) -> int:
    """Runs one command in this process, named `program` in texts (`mqbroker`); returns the exit status."""
    return exit_status(lambda: _run_as(name, program, arguments), program)


def _run(given: Sequence[str]) -> int:
    if given and given[0] in COMMANDS:
        return _run_as(given[0], f"turbopump {given[0]}", given[1:])
    if given:
        _explain(given)
    print(overview())
    return 0


def _explain(given: Sequence[str]) -> None:
    """Prints the version, the help, or an error about an unknown command, and exits."""
    parser = Overview(prog="turbopump")
    parser.add_argument("--version", action="version", version=f"turbopump {turbopump.__version__}")
    if given[0].startswith("-"):
        parser.parse_args(given)
    parser.error(unknown("command", given[0], COMMANDS))


def _run_as(name: str, program: str, arguments: Sequence[str] | None) -> int:
    return command_named(name).run(parser_of(name, program).read(arguments))


def parser_of(name: str, program: str) -> Parser:
    parser = Parser(prog=program, description=sentence(COMMANDS[name]), epilog=example_text(EXAMPLES[name]))
    command_named(name).add_arguments(parser)
    return parser


class Overview(Parser):
    """Parser of `turbopump` without a command."""

    def format_help(self) -> str:
        return overview() + "\n"


def overview() -> str:
    """Returns the text that `turbopump` prints without a command."""
    first_paragraph = (turbopump.__doc__ or "").partition("\n\n")[0]  # an example for programmers follows
    width = max(map(len, COMMANDS))
    return "\n".join(
        [
            "usage: turbopump COMMAND [OPTIONS ...]",
            "",
            textwrap.fill(first_paragraph, WIDTH),
            "",
            "commands:",
            *(f"  {name:<{width}}  {summary}" for name, summary in COMMANDS.items()),
            "",
            "options:",
            f"  {'-h, --help':<{width}}  show this help",
            f"  {'--version':<{width}}  show the version",
            "",
            example_text(
                'turbopump up\nturbopump send hello "Hello, RocketMQ"\nturbopump tail hello --from first'
            ),
            "",
            "turbopump help COMMAND explains a command.",
        ]
    )


def command_named(name: str) -> CommandModule:
    """Imports and returns the module of a command, without garbage collection meanwhile.

    That saves a tenth of a server's start.
    """
    gc.disable()
    module = importlib.import_module(f"turbopump.cli.{name}")
    gc.freeze()
    gc.enable()
    return cast(CommandModule, module)
