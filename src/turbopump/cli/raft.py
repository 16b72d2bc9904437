"""`turbopump raft`: the members of a DLedger group. Each action is a row of ACTIONS."""

import argparse
from collections.abc import Callable
from typing import NamedTuple

from turbopump.cli.arguments import add_action
from turbopump.cli.raft_group import add_group, add_transfer, status, transfer
from turbopump.cli.raft_verify import add_directories, verify


class RaftAction(NamedTuple):
    """An action of the command: what it does, an example, its arguments, and the function that does it."""

    summary: str
    example: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, action in ACTIONS.items():
        added = add_action(actions, name, action.summary, action.example)
        action.add_arguments(added)
        added.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    return ACTIONS[options.action].run(options)


ACTIONS = {
    "status": RaftAction(
        "show role, term and log of all members of a DLedger group; exit 1: one is missing",
        "turbopump raft status\nturbopump raft status broker-a -n 10.0.0.1:9876\n"
        "turbopump raft status -b 10.0.0.5:10911 --json",
        add_group,
        status,
    ),
    "transfer": RaftAction(
        "have another member of a DLedger group lead it",
        "turbopump raft transfer n1\nturbopump raft transfer n1 broker-a -n 10.0.0.1:9876",
        add_transfer,
        transfer,
    ),
    "verify": RaftAction(
        "compare the committed entries of members, byte for byte; the members must be stopped",
        "turbopump raft verify /data/n0/store /data/n1/store /data/n2/store",
        add_directories,
        verify,
    ),
}
