"""What servers of both roles need around them: the proof that they serve, and pages over HTTP."""

import argparse
import contextlib
import socket
from collections.abc import AsyncIterator, Mapping

from turbopump.cli.failures import ASKED_WRONGLY, Failure
from turbopump.protocol.addresses import MAX_PORT, join_address
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import request
from turbopump.remoting.client import Client
from turbopump.remoting.http import HttpServer, Page
from turbopump.runtime.clock import SystemClock
from turbopump.runtime.network import SystemNetwork

REACHABLE = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}
PROOF_TIMEOUT_S = 10.0
NO_PAGES = -1


def add_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--http-port",
        type=port,
        default=NO_PAGES,
        metavar="P",
        help="serve GET /health and /rocketmq/nsaddr there (default: not served; 0: any free)",
    )


def port(text: str) -> int:
    """For argparse: a port to listen on, where 0 means any free one."""
    if not (text.isascii() and text.isdecimal()) or int(text) > MAX_PORT:
        raise argparse.ArgumentTypeError(f"{text} is not a port: a number from 0 to {MAX_PORT}")
    return int(text)


async def prove(host: str, port: int, code: RequestCode) -> None:
    """A ready line is true only when a request has been answered: any answer will do."""
    client = Client(SystemNetwork(), SystemClock())
    try:
        await client.call(address(host, port), request(code), PROOF_TIMEOUT_S)
    except OSError as error:
        raise Failure(f"started, but {address(host, port)} does not answer: {error}") from error
    finally:
        await client.close()


@contextlib.asynccontextmanager
async def hosts_told(*hosts: str) -> AsyncIterator[None]:
    """Around a start that uses these: an error of the resolver does not say which of them is unknown."""
    try:
        yield
    except (socket.gaierror, UnicodeError):
        for host in filter(None, hosts):
            await _known(host)
        raise


async def _known(host: str) -> None:
    try:
        await SystemNetwork().resolve(host)
    except OSError as error:
        raise Failure(f"the host {host} is not known: {error.strerror}") from None
    except UnicodeError:
        raise Failure(f"the host {host!r} cannot be one", ASKED_WRONGLY) from None


def address(host: str, port: int) -> str:
    """The address at which this machine reaches a server that listens on `host`."""
    return join_address(REACHABLE.get(host, host), port)


async def start_pages(
    stack: contextlib.AsyncExitStack, pages: Mapping[str, Page], host: str, port: int
) -> int:
    """Returns the port, or -1 when none was asked for. The stop is left on the stack."""
    if port == NO_PAGES:
        return NO_PAGES
    server = HttpServer(pages, SystemNetwork())
    chosen = await server.start(host, port)
    stack.push_async_callback(server.stop)
    return chosen
