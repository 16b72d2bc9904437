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
from turbopump.cli.failures import explain

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
    asked = next((word for word in given if not word.startswith("-")), "")
    parser = argparse.ArgumentParser(prog="turbopump", description=turbopump.__doc__)
    parser.add_argument("--version", action="version", version=f"turbopump {turbopump.__version__}")
    choices = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        subparser = choices.add_parser(name, help=summary, description=summary.capitalize() + ".")
        if name == asked:
            command_named(name).add_arguments(subparser)
    options = parser.parse_args(given)
    return carry_out(command_named(options.command), options, "turbopump")


def main_as(name: str, program: str, arguments: Sequence[str] | None = None) -> int:
    """One command under a name of its own: `mqbroker` is `turbopump broker`."""
    command = command_named(name)
    parser = argparse.ArgumentParser(prog=program, description=COMMANDS[name].capitalize() + ".")
    command.add_arguments(parser)
    return carry_out(command, parser.parse_args(arguments), program)


def command_named(name: str) -> Command:
    """What an import makes is never garbage; not looking for any saves a tenth of a server's start."""
    gc.disable()
    module = importlib.import_module(f"turbopump.cli.{name}")
    gc.freeze()
    gc.enable()
    return cast(Command, module)


def carry_out(command: Command, options: argparse.Namespace, program: str) -> int:
    try:
        return command.run(options)
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        failure = explain(error)
        if failure is None:
            raise
        print(f"{program}: {failure}", file=sys.stderr)
        return failure.status
