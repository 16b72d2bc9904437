"""One call of `mqadmin`: find the command, read its options, run it, turn failures into a line and a status.

Exit status: 0 done, 1 failed, 2 asked wrongly. Comes in: the words of the command line and the world around
it. Nothing here touches the terminal or the environment by itself.
"""

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from turbopump.admin.command import Call, Command, Failed, usage
from turbopump.admin.commands import AREAS, BY_NAME
from turbopump.admin.failures import explain
from turbopump.admin.options import HELP, JSON, NAME_SERVERS, Given, WrongUse, parse
from turbopump.admin.render import Output
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
ASKED_WRONGLY = 2
DEFAULT_ADDRESS = "127.0.0.1:9876"


@dataclass(frozen=True, slots=True)
class World:
    network: Network
    clock: Clock
    disk: Disk
    chance: Chance
    environ: Mapping[str, str]
    write: Callable[[str], None]
    """To stdout."""

    warn: Callable[[str], None]
    """A line to stderr."""


async def run(words: Sequence[str], world: World) -> int:
    try:
        await _run(words, world)
    except (WrongUse, InvalidArgument) as error:
        world.warn(str(error))
        return ASKED_WRONGLY
    except BrokenPipeError:  # the reader of our lines, who has seen enough
        raise
    except Exception as error:
        line = explain(error)
        if line is None:
            raise
        world.warn(line)
        return FAILED
    return 0


async def _run(words: Sequence[str], world: World) -> None:
    asked, *rest = words or ["help"]
    if asked in ("help", "-h", "--help"):
        world.write(usage(find(rest[0])) + "\n" if rest else overview())
        return
    command = find(asked)
    try:
        given = parse(rest, command.options, command.one_of, command.any_of)
    except WrongUse as error:
        raise WrongUse(f"{error}; `mqadmin help {command.name}` shows the options") from None
    if given[HELP]:
        world.write(usage(command) + "\n")
        return
    for word in given.ignored:
        world.warn(f"{word!r} belongs to no option and is ignored")
    out = Output(world.write, world.warn, given[JSON])
    servers = name_servers(given, world.environ)
    surroundings = client.World(world.network, world.clock, world.chance)
    async with Admin(servers, world=surroundings) as admin:
        await command.run(Call(given, admin, out, world.disk))


def find(name: str) -> Command:
    """Names are read in any case."""
    if name.lower() in UNSUPPORTED:
        raise Failed(UNSUPPORTED[name.lower()])
    command = BY_NAME.get(name.lower())
    if command is None:
        near = difflib.get_close_matches(name.lower(), BY_NAME, 1, 0.7)
        hint = f", perhaps {BY_NAME[near[0]].name}?" if near else "; `mqadmin help` lists all"
        raise WrongUse(f"there is no command {name}{hint}")
    return command


def name_servers(given: Given, environ: Mapping[str, str]) -> list[str]:
    text = given[NAME_SERVERS] or environ.get("NAMESRV_ADDR") or DEFAULT_ADDRESS
    addresses = list(split_list(text))
    if not addresses:
        raise WrongUse(f"-n {text!r} names no server")
    for address in addresses:
        try:
            split_address(address)
        except ValueError as error:
            raise WrongUse(f"-n: {error}") from None
    return addresses


def overview() -> str:
    """As Apache's `mqadmin` without a word."""
    rows = [f"   {each.name:<35} {each.summary}" for commands in AREAS.values() for each in commands]
    return "\n".join(
        [
            "The most commonly used mqadmin commands are:",
            *rows,
            "",
            "See 'mqadmin help <command>' for more information on a specific command.",
            "Every command prints JSON with --json. Exit status: 0 done, 1 failed, 2 asked wrongly.",
            "",
        ]
    )
