"""What a command is: a row of the table. `Call` is what its function receives."""

import asyncio
import contextlib
import textwrap
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

from turbopump.admin.options import COMMON, Given, Option
from turbopump.admin.render import Output
from turbopump.client.admin import Admin
from turbopump.runtime.disk import Disk

WIDTH = 110


@dataclass(frozen=True, slots=True)
class Call:
    given: Given
    admin: Admin
    out: Output
    disk: Disk
    """Files that a command reads or writes on the operator's machine."""


@dataclass(frozen=True, slots=True)
class Command:
    name: str
    summary: str
    run: Callable[[Call], Awaitable[None]]
    options: tuple[Option[Any], ...] = ()
    one_of: tuple[Option[Any], ...] = ()
    """Exactly one of these must be given."""

    any_of: tuple[Option[Any], ...] = ()
    """At least one of these must be given; of several the first counts."""

    aliases: tuple[str, ...] = ()

    @property
    def all_options(self) -> list[Option[Any]]:
        own = {option.long: option for option in (*COMMON, *self.options, *self.one_of, *self.any_of)}
        return sorted(own.values(), key=lambda option: (option.short or option.long).lower())


class Failed(Exception):
    """The command could not do what was asked; its text is the line to print."""


@contextlib.contextmanager
def until_interrupted() -> Iterator[None]:
    """Around what runs until Ctrl-C: being interrupted is then its ordinary end."""
    with contextlib.suppress(asyncio.CancelledError):
        yield


def usage(command: Command) -> str:
    """As Apache's `mqadmin help <name>`."""
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


def _names(option: Option[Any]) -> str:
    short = f"-{option.short}," if option.short else "   "
    return f"{short}--{option.long}" + ("" if option.is_flag else " <arg>")


def _in_usage(option: Option[Any], command: Command) -> str:
    """A choice is shown where its first member stands."""
    members = command.one_of or command.any_of
    if option in members:
        first = min(members, key=lambda member: member.short)
        return " | ".join(f"-{member.short} <arg>" for member in members) if option is first else ""
    shown = option.shown + ("" if option.is_flag else " <arg>")
    return shown if option.is_required else f"[{shown}]"
