"""Helps to start servers: checks that they serve, names unknown hosts, and starts pages over HTTP."""

import argparse
import contextlib
import logging
import os
import socket
from collections.abc import AsyncIterator, Mapping

from turbopump.cli.failures import USAGE_ERROR, CommandFailure
from turbopump.protocol.addresses import MAX_PORT, join_address
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import request
from turbopump.remoting.client import Client
from turbopump.remoting.http import HttpServer, Page
from turbopump.remoting.tls import networks_of
from turbopump.remoting.tls_settings import TlsSettings
from turbopump.runtime.clock import SystemClock
from turbopump.runtime.disk import SystemDisk
from turbopump.runtime.network import Network, SystemNetwork
from turbopump.runtime.tasks import Tasks

log = logging.getLogger(__name__)

REACHABLE = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}
PROOF_TIMEOUT_S = 10.0
NO_PAGES = -1


def add_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--http-port",
        type=port,
        default=NO_PAGES,
        metavar="P",
        help="port for GET /health and /rocketmq/nsaddr (default: none; 0: any free)",
    )


def add_tls_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tls",
        type=os.path.abspath,
        metavar="FILE",
        help="TLS settings (tls.properties), such as `turbopump tls init` writes",
    )


def port(text: str) -> int:
    """Reads a port to listen on, for argparse; 0 means any free port."""
    if not (text.isascii() and text.isdecimal()) or int(text) > MAX_PORT:
        raise argparse.ArgumentTypeError(f"must be a port from 0 to {MAX_PORT}, got {text}")
    return int(text)


async def check_serving(host: str, port: int, code: RequestCode, network: Network | None) -> None:
    """Raises CommandFailure unless the server answers a request; any answer is good.

    Without a `network` the server asks for a certificate that it has not itself, and is not checked.
    """
    if network is None:
        return
    client = Client(network, SystemClock())
    try:
        await client.call(address(host, port), request(code), PROOF_TIMEOUT_S)
    except OSError as error:
        raise CommandFailure(f"started, but {address(host, port)} does not answer: {error}") from error
    finally:
        await client.close()


@contextlib.asynccontextmanager
async def unknown_hosts_named(*hosts: str) -> AsyncIterator[None]:
    """Makes a start that fails to resolve a host raise CommandFailure that names the unknown host."""
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
        raise CommandFailure(f"unknown host {host}: {error.strerror}") from None
    except UnicodeError:
        raise CommandFailure(f"invalid host name {host!r}", USAGE_ERROR) from None


def address(host: str, port: int) -> str:
    """Returns the address at which this machine reaches a server that listens on `host`."""
    return join_address(REACHABLE.get(host, host), port)


async def start_pages(
    stack: contextlib.AsyncExitStack, pages: Mapping[str, Page], host: str, port: int, tls: TlsSettings
) -> int:
    """Starts an HTTP server for pages, pushes its stop on the stack, returns its port; -1 if turned off."""
    if port == NO_PAGES:
        return NO_PAGES
    networks = networks_of(tls, SystemNetwork(), SystemDisk())
    tasks = Tasks(log)
    tasks.start(networks.watch(SystemClock()), name="reload TLS certificates")
    stack.push_async_callback(tasks.close)
    server = HttpServer(pages, networks.pages)
    chosen = await server.start(host, port)
    stack.push_async_callback(server.stop)
    return chosen
