"""The command line: which command was asked for, and its exit status (0 done, 1 failed, 2 asked wrongly).

Only the module of the command in hand is imported; `turbopump --help` needs none of them.
"""

import argparse
import gc
import importlib
import sys
from collections.abc import Sequence
from typing import Protocol, cast

import turbopump
from turbopump.cli.arguments import Parser
from turbopump.cli.ending import ended

COMMANDS = {
    "up": "name server and broker in one process: the quickest start",
    "namesrv": "a name server (also: mqnamesrv)",
    "broker": "a broker (also: mqbroker)",
    "send": "send a message to a topic",
    "tail": "print the messages of a topic as they arrive",
    "trace": "the way of one message: who sent it, who consumed it and how long that took",
    "health": "ask a server whether it works: exit status 0 or 1",
    "admin": "administer a cluster (also: mqadmin)",
    "dlq": "dead letters of a consumer group: list, resend, export",
    "transactions": "transactions that nobody has ended: list, resume",
    "timers": "messages that wait for a time of their own: list, recall",
    "pipeline": "jobs on Spark over topics, stores and tables: archive, replay, transform, stats ...",
    "quickstart": "the producer and the consumer that RocketMQ users try first",
    "export": "the messages of a topic or of a store directory into Parquet files",
    "store": "look into a store directory: verify, rebuild, dump",
}


class Command(Protocol):
    """What each module named in COMMANDS offers."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, options: argparse.Namespace) -> int: ...


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    return ended(lambda: _run(given), "turbopump")


def main_as(name: str, program: str, arguments: Sequence[str] | None = None) -> int:
    """One command under a name of its own: `mqbroker` is `turbopump broker`."""
    return ended(lambda: _run_as(name, program, arguments), program)


def _run(given: Sequence[str]) -> int:
    asked = next((word for word in given if not word.startswith("-")), "")
    first_paragraph = (turbopump.__doc__ or "").partition("\n\n")[0]  # an example for programmers follows
    parser = Parser(prog="turbopump", description=first_paragraph)
    parser.add_argument("--version", action="version", version=f"turbopump {turbopump.__version__}")
    choices = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        subparser = choices.add_parser(name, help=summary, description=summary.capitalize() + ".")
        if name == asked:
            command_named(name).add_arguments(subparser)
    options = parser.parse_args(given)
    return command_named(options.command).run(options)


def _run_as(name: str, program: str, arguments: Sequence[str] | None) -> int:
    command = command_named(name)
    parser = Parser(prog=program, description=COMMANDS[name].capitalize() + ".")
    command.add_arguments(parser)
    return command.run(parser.parse_args(arguments))


def command_named(name: str) -> Command:
    """What an import makes is never garbage; not looking for any saves a tenth of a server's start."""
    gc.disable()
    module = importlib.import_module(f"turbopump.cli.{name}")
    gc.freeze()
    gc.enable()
    return cast(Command, module)
