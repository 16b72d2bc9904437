"""`turbopump admin`, also `mqadmin`: the terminal, the environment and Ctrl-C around `turbopump.admin`."""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence

from turbopump.admin.main import World
from turbopump.admin.main import run as run_command
from turbopump.runtime.chance import Chance
from turbopump.runtime.clock import SystemClock
from turbopump.runtime.disk import SystemDisk
from turbopump.runtime.network import SystemNetwork

INTERRUPTED = 130


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words", nargs=argparse.REMAINDER, metavar="COMMAND ...", help="`help` lists the commands"
    )


def run(options: argparse.Namespace) -> int:
    return mqadmin(options.words)


def main() -> int:
    return mqadmin(sys.argv[1:])


def mqadmin(words: Sequence[str]) -> int:
    world = World(SystemNetwork(), SystemClock(), SystemDisk(), Chance(), os.environ, write, warn)
    try:
        return asyncio.run(run_command(words, world))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # `mqadmin topicList | head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def warn(line: str) -> None:
    print(f"mqadmin: {line}", file=sys.stderr, flush=True)
