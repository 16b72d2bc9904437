"""Runs one call of `mqadmin`: finds the command, parses its options, turns failures into a line and a status.

Exit status: 0 done, 1 failed, 2 wrong usage. In: the words of the command line and an `AdminEnvironment`. The
terminal and the environment variables are not used directly.
"""

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from turbopump.admin.command import AdminCommand, Call, CommandFailed, usage
from turbopump.admin.commands import AREAS, BY_NAME
from turbopump.admin.failures import explain
from turbopump.admin.options import CREDENTIALS, HELP, JSON, NAME_SERVERS, Given, UsageError, parse
from turbopump.admin.render import Output
from turbopump.admin.signing import signing_settings
from turbopump.admin.unsupported import UNSUPPORTED
from turbopump.client import world as client
from turbopump.client.admin import Admin
from turbopump.client.errors import InvalidArgument
from turbopump.protocol.addresses import split_address, split_list
from turbopump.runtime.chance import Chance
from turbopump.runtime.clock import Clock
from turbopump.runtime.disk import Disk
from turbopump.runtime.network import Network

FAILED = 1
USAGE_ERROR = 2
DEFAULT_ADDRESS = "127.0.0.1:9876"


@dataclass(frozen=True, slots=True)
class AdminEnvironment:
    """Network, clock, disk, environment variables and output of one call of `mqadmin`."""

    network: Network
    clock: Clock
    disk: Disk
    chance: Chance
    environ: Mapping[str, str]
    write: Callable[[str], None]
    """Writes to stdout."""

    warn: Callable[[str], None]
    """Writes a line to stderr."""


async def run(words: Sequence[str], environment: AdminEnvironment) -> int:
    try:
        await _run(words, environment)
    except (UsageError, InvalidArgument) as error:
        environment.warn(str(error))
        return USAGE_ERROR
    except BrokenPipeError:  # the reader of stdout has closed it
        raise
    except Exception as error:
        line = explain(error)
        if line is None:
            raise
        environment.warn(line)
        return FAILED
    return 0


async def _run(words: Sequence[str], environment: AdminEnvironment) -> None:
    asked, *rest = words or ["help"]
    if asked in ("help", "-h", "--help"):
        environment.write(usage(find(rest[0])) + "\n" if rest else overview())
        return
    command = find(asked)
    try:
        given = parse(rest, command.options, command.one_of, command.any_of)
    except UsageError as error:
        raise UsageError(f"{error}; `mqadmin help {command.name}` shows the options") from None
    if given[HELP]:
        environment.write(usage(command) + "\n")
        return
    for word in given.ignored:
        environment.warn(f"{word!r} belongs to no option and is ignored")
    out = Output(environment.write, environment.warn, given[JSON])
    servers = name_servers(given, environment.environ)
    world = client.World(environment.network, environment.clock, environment.chance)
    signed = signing_settings(given[CREDENTIALS], environment.environ, environment.disk)
    async with Admin(servers, world=world, **signed) as admin:
        await command.run(Call(given, admin, out, environment.disk))


def find(name: str) -> AdminCommand:
    """Returns the command with this name, in any case. Raises UsageError; CommandFailed if unsupported."""
    if name.lower() in UNSUPPORTED:
        raise CommandFailed(UNSUPPORTED[name.lower()])
    command = BY_NAME.get(name.lower())
    if command is None:
        near = difflib.get_close_matches(name.lower(), BY_NAME, 1, 0.7)
        hint = f", perhaps {BY_NAME[near[0]].name}?" if near else "; `mqadmin help` lists all"
        raise UsageError(f"there is no command {name}{hint}")
    return command


def name_servers(given: Given, environ: Mapping[str, str]) -> list[str]:
    text = given[NAME_SERVERS] or environ.get("NAMESRV_ADDR") or DEFAULT_ADDRESS
    addresses = list(split_list(text))
    if not addresses:
        raise UsageError(f"-n must name at least one server, got {text!r}")
    for address in addresses:
        try:
            split_address(address)
        except ValueError as error:
            raise UsageError(f"-n: {error}") from None
    return addresses


def overview() -> str:
    """Returns the list of commands, as Apache's `mqadmin` prints it without arguments."""
    rows = [f"   {each.name:<35} {each.summary}" for commands in AREAS.values() for each in commands]
    return "\n".join(
        [
            "The most commonly used mqadmin commands are:",
            *rows,
            "",
            "See 'mqadmin help <command>' for more information on a specific command.",
            "Every command prints JSON with --json. Exit status: 0 done, 1 failed, 2 wrong usage.",
            "",
        ]
    )
