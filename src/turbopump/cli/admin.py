"""`turbopump admin`, also `mqadmin`: runs `turbopump.admin` with the terminal, environment and Ctrl-C.

`turbopump.admin` is imported when the command runs: `mqadmin` begins here, and Ctrl-C may come early.
"""

import argparse
import os
import sys
from collections.abc import Sequence

from turbopump.cli import exits
from turbopump.cli.exits import exit_status


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words", nargs=argparse.REMAINDER, metavar="COMMAND ...", help="`help` lists the commands"
    )


def run(options: argparse.Namespace) -> int:
    return mqadmin(options.words)


def main() -> int:
    """Runs the program `mqadmin` with the arguments of the process; returns its exit status."""
    return exit_status(lambda: mqadmin(sys.argv[1:]), "mqadmin")


def mqadmin(words: Sequence[str]) -> int:
    """Runs one administration command, such as `["topicList"]`; returns its exit status."""
    import asyncio

    from turbopump.admin.main import AdminEnvironment
    from turbopump.admin.main import run as run_command
    from turbopump.runtime.chance import Chance
    from turbopump.runtime.clock import SystemClock
    from turbopump.runtime.disk import SystemDisk
    from turbopump.runtime.network import SystemNetwork

    environment = AdminEnvironment(
        SystemNetwork(), SystemClock(), SystemDisk(), Chance(), os.environ, write, warn
    )
    return asyncio.run(run_command(words, environment))


def write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def warn(line: str) -> None:
    exits.warn(f"mqadmin: {line}")
