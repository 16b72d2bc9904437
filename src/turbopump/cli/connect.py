"""Connects a command to a cluster: finds the name servers, and opens a client while the command runs."""

import argparse
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass

from turbopump.cli.failures import USAGE_ERROR, CommandFailure, refusal_of
from turbopump.client import discovery
from turbopump.client.admin import Admin
from turbopump.client.credentials import signer_of
from turbopump.client.encryption import network_for
from turbopump.client.errors import SendFailed, TopicUnknown
from turbopump.client.name_servers import NameServers
from turbopump.client.routes import RouteCache
from turbopump.client.settings import ClientSettings, made
from turbopump.protocol.addresses import split_address, split_list
from turbopump.remoting.client import Client
from turbopump.runtime.chance import Chance
from turbopump.runtime.clock import SystemClock
from turbopump.runtime.network import Network, SystemNetwork

DEFAULT_ADDRESS = "127.0.0.1:9876"
NO_ANSWER = (ConnectionError, TimeoutError, socket.gaierror)  # includes Unreachable and NoNameServer


@dataclass
class ClusterConnection:
    """The client of a command, with its routes, clock and random numbers."""

    client: Client
    routes: RouteCache
    clock: SystemClock
    chance: Chance


def add_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--namesrv",
        metavar="ADDR",
        help=f"name servers, separated by ';' (default: NAMESRV_ADDR or {DEFAULT_ADDRESS})",
    )


def name_servers(flag: str | None) -> list[str]:
    given = flag or os.environ.get("NAMESRV_ADDR") or DEFAULT_ADDRESS
    addresses = [checked(address) for address in split_list(given)]
    if not addresses:
        source = "--namesrv" if flag else "NAMESRV_ADDR"
        raise CommandFailure(f"{source} must name at least one server, got {given!r}", USAGE_ERROR)
    return addresses


def checked(address: str) -> str:
    try:
        split_address(address)
    except ValueError as error:
        raise CommandFailure(f"{error}", USAGE_ERROR) from None
    return address


def client() -> Client:
    """Returns a new client; it signs its requests if settings or environment have credentials.

    Raises InvalidArgument.
    """
    signer = signer_of(made(ClientSettings, {}, discovery.defaults()))
    return Client(network(), SystemClock(), sign=signer)


def network() -> Network:
    """Returns the network of a command, with the TLS and proxies of the configuration file of clients."""
    return network_for(made(ClientSettings, {}, discovery.defaults()), SystemNetwork())


@contextlib.asynccontextmanager
async def connected(flag: str | None) -> AsyncIterator[ClusterConnection]:
    addresses = name_servers(flag)
    clock, chance, calls = SystemClock(), Chance(), client()
    with explaining_no_answer(addresses):
        try:
            yield ClusterConnection(calls, RouteCache(NameServers(calls, addresses, chance)), clock, chance)
        finally:
            await calls.close()


@contextlib.asynccontextmanager
async def administration(flag: str | None) -> AsyncIterator[Admin]:
    addresses = name_servers(flag)
    with explaining_no_answer(addresses):
        async with Admin(addresses) as admin:
            yield admin


@contextlib.contextmanager
def explaining_no_answer(addresses: Sequence[str]) -> Iterator[None]:
    """Turns an OSError for a server that does not answer into a CommandFailure that says what to do."""
    try:
        yield
    except OSError as error:
        if not is_unanswered(error):
            raise
        where = "; ".join(addresses)
        hint = "`turbopump up` starts one, --namesrv or NAMESRV_ADDR names another"
        raise CommandFailure(
            f"no answer from the name server {where} or its broker ({error}); {hint}"
        ) from None


def is_unanswered(error: OSError) -> bool:
    """Tells whether the error means that no server answered; others are of a refusal, stdout or a file."""
    if isinstance(error, SendFailed):
        return not isinstance(error, TopicUnknown) and refusal_of(error) is None
    return isinstance(error, NO_ANSWER) and not isinstance(error, BrokenPipeError)
