"""Defines `AdminCommand`, a row of the table of commands, and `Call`, the argument of its function."""

import asyncio
import contextlib
import textwrap
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

from turbopump.admin.options import COMMON, CommandOption, Given
from turbopump.admin.render import Output
from turbopump.client.admin import Admin
from turbopump.runtime.disk import Disk

WIDTH = 110


@dataclass(frozen=True, slots=True)
class Call:
    """The argument of a command function: client, options, output and files."""

    given: Given
    admin: Admin
    out: Output
    disk: Disk
    """Files that a command reads or writes on the user's machine."""


@dataclass(frozen=True, slots=True)
class AdminCommand:
    """One command of mqadmin: name, summary, function and options."""

    name: str
    summary: str
    run: Callable[[Call], Awaitable[None]]
    options: tuple[CommandOption[Any], ...] = ()
    one_of: tuple[CommandOption[Any], ...] = ()
    """Exactly one of these must be given."""

    any_of: tuple[CommandOption[Any], ...] = ()
    """At least one of these must be given; of several the first is used."""

    aliases: tuple[str, ...] = ()

    @property
    def all_options(self) -> list[CommandOption[Any]]:
        own = {option.long: option for option in (*COMMON, *self.options, *self.one_of, *self.any_of)}
        return sorted(own.values(), key=lambda option: (option.short or option.long).lower())


class CommandFailed(Exception):
    """A command failed; the text is the line to print."""


@contextlib.contextmanager
def until_interrupted() -> Iterator[None]:
    """Ends the block normally on Ctrl-C, for a command that runs until it is interrupted."""
    with contextlib.suppress(asyncio.CancelledError):
        yield


def usage(command: AdminCommand) -> str:
    """Returns the help of a command, as Apache's `mqadmin help <name>` prints it."""
    rows = [(_names(option), option.help) for option in command.all_options]
    width = max(len(names) for names, _ in rows)
    words = [_in_usage(option, command) for option in command.all_options]
    return "\n".join(
        [
            textwrap.fill(
                f"usage: mqadmin {command.name} {' '.join(filter(None, words))}",
                WIDTH,
                subsequent_indent=" " * 7,
                break_long_words=False,
                break_on_hyphens=False,
            ),
            *(f" {names:<{width}}    {help}" for names, help in rows),
            "",
            command.summary,
        ]
    )


def _names(option: CommandOption[Any]) -> str:
    short = f"-{option.short}," if option.short else "   "
    return f"{short}--{option.long}" + ("" if option.is_flag else " <arg>")


def _in_usage(option: CommandOption[Any], command: AdminCommand) -> str:
    """Returns an option for the usage line; the first of alternatives gives `-a | -b`, the others ""."""
    for members in (command.one_of, command.any_of):
        if option in members:
            first = min(members, key=lambda member: member.short)
            return " | ".join(f"-{member.short} <arg>" for member in members) if option is first else ""
    shown = option.shown + ("" if option.is_flag else " <arg>")
    return shown if option.is_required else f"[{shown}]"
