"""What the commands of clients share: where the name server is, and a client while the command runs."""

import argparse
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass

from turbopump.cli.failures import ASKED_WRONGLY, Failure, refusal_of
from turbopump.client.admin import Admin
from turbopump.client.errors import SendFailed, TopicUnknown
from turbopump.client.name_servers import NameServers
from turbopump.client.routes import RouteCache
from turbopump.protocol.addresses import split_address, split_list
from turbopump.remoting.client import Client
from turbopump.runtime.chance import Chance
from turbopump.runtime.clock import SystemClock
from turbopump.runtime.network import SystemNetwork

DEFAULT_ADDRESS = "127.0.0.1:9876"
SILENCE = (ConnectionError, TimeoutError, socket.gaierror)  # Unreachable and NoNameServer are among them


@dataclass
class Connected:
    client: Client
    routes: RouteCache
    clock: SystemClock
    chance: Chance


def add_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--namesrv",
        metavar="ADDR",
        help=f"name server, several separated by ';' (default: NAMESRV_ADDR or {DEFAULT_ADDRESS})",
    )


def name_servers(flag: str | None) -> list[str]:
    given = flag or os.environ.get("NAMESRV_ADDR") or DEFAULT_ADDRESS
    addresses = [checked(address) for address in split_list(given)]
    if not addresses:
        source = "--namesrv" if flag else "NAMESRV_ADDR"
        raise Failure(f"{source} {given!r} names no server", ASKED_WRONGLY)
    return addresses


def checked(address: str) -> str:
    try:
        split_address(address)
    except ValueError as error:
        raise Failure(f"{error}", ASKED_WRONGLY) from None
    return address


@contextlib.asynccontextmanager
async def connected(flag: str | None) -> AsyncIterator[Connected]:
    addresses = name_servers(flag)
    clock, chance = SystemClock(), Chance()
    client = Client(SystemNetwork(), clock)
    with advised(addresses):
        try:
            yield Connected(client, RouteCache(NameServers(client, addresses, chance)), clock, chance)
        finally:
            await client.close()


@contextlib.asynccontextmanager
async def administration(flag: str | None) -> AsyncIterator[Admin]:
    addresses = name_servers(flag)
    with advised(addresses):
        async with Admin(addresses) as admin:
            yield admin


@contextlib.contextmanager
def advised(addresses: Sequence[str]) -> Iterator[None]:
    """A lost or missing server becomes a line that says what to do."""
    try:
        yield
    except OSError as error:
        if not is_silence(error):
            raise
        where = "; ".join(addresses)
        hint = "`turbopump up` starts one, --namesrv or NAMESRV_ADDR names another"
        raise Failure(f"no answer from the name server {where} or its broker ({error}); {hint}") from None


def is_silence(error: OSError) -> bool:
    """Nobody answered; other errors are of the broker that refused, of stdout, or of a file."""
    if isinstance(error, SendFailed):
        return not isinstance(error, TopicUnknown) and refusal_of(error) is None
    return isinstance(error, SILENCE) and not isinstance(error, BrokenPipeError)
