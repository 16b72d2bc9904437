"""`turbopump health`: sends a request to each server and prints a line; exit status 0 if all are healthy.

A name server gets a query for its cluster, a broker for its runtime figures. Without an address the name
server is queried, and then every broker registered with it.
"""

import argparse
import asyncio
from dataclasses import dataclass

from turbopump.cli import connect
from turbopump.protocol import bodies
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import Command, request
from turbopump.protocol.errors import BrokenBody
from turbopump.remoting.client import Client

TIMEOUT_S = 3.0


@dataclass(frozen=True, slots=True)
class Health:
    """Result of the check of one server."""

    address: str
    is_well: bool
    words: str
    brokers: tuple[str, ...] = ()

    def line(self) -> str:
        return f"{'ok  ' if self.is_well else 'FAIL'} {self.address} {self.words}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "address",
        metavar="ADDR",
        nargs="*",
        help="servers to check, host:port (default: a name server and its brokers)",
    )
    connect.add_argument(parser)


def run(options: argparse.Namespace) -> int:
    found = asyncio.run(_examine(options))
    for health in found:
        print(health.line())
    return 0 if all(health.is_well for health in found) else 1


async def _examine(options: argparse.Namespace) -> list[Health]:
    async with connect.connected(options.namesrv) as here:
        if options.address:
            return [await examine(here.client, connect.checked(address)) for address in options.address]
        servers = [await examine(here.client, address) for address in connect.name_servers(options.namesrv)]
        brokers = sorted({broker for server in servers for broker in server.brokers})
        return servers + [await examine(here.client, address) for address in brokers]


async def examine(client: Client, address: str) -> Health:
    try:
        # A broker answers 106 with "not supported"; an old name server would not answer 28 at all.
        answer = await client.call(address, request(RequestCode.GET_BROKER_CLUSTER_INFO), TIMEOUT_S)
        if answer.code == ResponseCode.SUCCESS:
            return of_name_server(address, answer)
        answer = await client.call(address, request(RequestCode.GET_BROKER_RUNTIME_INFO), TIMEOUT_S)
        return of_broker(address, answer)
    except (OSError, BrokenBody) as error:
        return Health(address, False, f"does not answer: {error or type(error).__name__}")


def of_name_server(address: str, answer: Command) -> Health:
    cluster = bodies.ClusterInfo.decode(answer.body)
    brokers = tuple(at for broker in cluster.brokerAddrTable.values() for at in broker.brokerAddrs.values())
    return Health(address, True, f"name server, registered brokers: {len(brokers)}", brokers)


def of_broker(address: str, answer: Command) -> Health:
    if answer.code != ResponseCode.SUCCESS:
        return Health(address, False, f"broker answers code {answer.code}: {answer.remark}")
    figures = bodies.KVTable.decode(answer.body).table
    version = figures.get("brokerVersionDesc", "of unknown version")
    trouble = figures.get("storeTrouble")  # not brokerActive, which is false for healthy slaves of Apache
    if trouble is not None:
        return Health(address, False, f"broker {version} accepts no messages: {trouble}")
    if figures.get("replicaState") == "stopped":
        return Health(address, False, f"slave {version} is no copy: {figures.get('replicaTrouble', '')}")
    if "replicaState" in figures:
        return Health(address, True, f"slave {version}, {figures['replicaState']}")
    return Health(address, True, f"broker {version}")
