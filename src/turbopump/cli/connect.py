"""What `send`, `tail` and `health` share: where the name server is, and a client while the command runs."""

import argparse
import contextlib
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass

from turbopump.cli.failures import ASKED_WRONGLY, Failure
from turbopump.client.routes import Routes
from turbopump.remoting.client import Client, split_address
from turbopump.runtime.chance import Chance
from turbopump.runtime.clock import SystemClock
from turbopump.runtime.network import SystemNetwork

DEFAULT_ADDRESS = "127.0.0.1:9876"


@dataclass
class Connected:
    client: Client
    routes: Routes
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
    return [checked(address.strip()) for address in given.split(";") if address.strip()]


def checked(address: str) -> str:
    try:
        split_address(address)
    except ValueError as error:
        raise Failure(f"{error}", ASKED_WRONGLY) from None
    return address


@contextlib.asynccontextmanager
async def connected(flag: str | None) -> AsyncIterator[Connected]:
    """A lost or missing server becomes a line that says what to do."""
    addresses = name_servers(flag)
    clock, chance = SystemClock(), Chance()
    client = Client(SystemNetwork(), clock)
    try:
        yield Connected(client, Routes(client, addresses, chance), clock, chance)
    except OSError as error:
        where = "; ".join(addresses)
        hint = "`turbopump up` starts one, --namesrv or NAMESRV_ADDR names another"
        raise Failure(f"no answer from the name server {where} or its broker ({error}); {hint}") from None
    finally:
        await client.close()
