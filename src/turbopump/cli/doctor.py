"""`turbopump doctor`: finds reasons why clients cannot use a cluster, or soon cannot. Changes nothing.

Queries name servers for their brokers, each broker at the address that clients get, and with `--topic` the
queues of a topic. The result is a list of diagnoses, made by functions without a socket.
"""

import argparse
import asyncio
import contextlib
import ipaddress
import os
import platform
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

import turbopump
from turbopump.admin.render import json_text
from turbopump.cli import connect
from turbopump.cli.exits import FAILED
from turbopump.client.name_servers import NameServers
from turbopump.client.routes import RouteCache, TopicRoute
from turbopump.protocol import bodies
from turbopump.protocol.addresses import split_address
from turbopump.protocol.body_text import printable
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import request
from turbopump.protocol.errors import BrokenBody, Refused, TopicNotFound
from turbopump.remoting.client import Client
from turbopump.runtime.chance import Chance
from turbopump.runtime.clock import SystemClock
from turbopump.runtime.times import format_time

TIMEOUT_S = 3.0
FAST_PORT_BELOW = 2
MAX_CLOCK_DIFFERENCE_S = 3.0
DISK_SOON_FULL = 0.75
"""Apache's diskMaxUsedSpaceRatio: above it old files are deleted."""
DISK_FULL = 0.9
"""Above it brokers refuse messages."""
OK, WARN, FAIL = "ok", "WARN", "FAIL"
HTTP_PROBE = b"GET / HTTP/1.0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One finding of `turbopump doctor`: level, subject, text and advice."""

    level: str
    subject: str
    text: str
    advice: str = ""

    def lines(self) -> list[str]:
        first = printable(f"{self.level:<4} {self.subject}: {self.text}")
        return [first, printable(f"     -> {self.advice}")] if self.advice else [first]


@dataclass(frozen=True, slots=True)
class KnownBroker:
    """A broker registered with a name server."""

    name: str
    id: int
    address: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--topic", help="also check the queues of this topic")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    connect.add_argument(parser)


def run(options: argparse.Namespace) -> int:
    addresses = connect.name_servers(options.namesrv)
    found = [here(), where_from(options.namesrv, os.environ, addresses)]
    found += asyncio.run(_examine(addresses, options.topic))
    failed = any(one.level == FAIL for one in found)
    if options.json:
        print(json_text({"isWell": not failed, "findings": [asdict(one) for one in found]}))
    else:
        for one in found:
            print("\n".join(one.lines()))
        print(summary(found))
    return FAILED if failed else 0


def summary(found: Sequence[Diagnosis]) -> str:
    counts = [(level, sum(one.level == level for one in found)) for level in (FAIL, WARN)]
    counted = ", ".join(f"{number} {level}" for level, number in counts if number)
    return counted or "no problems found"


# --- queries ----------------------------------------------------------------------------------------------


async def _examine(addresses: Sequence[str], topic: str | None) -> list[Diagnosis]:
    client = connect.client()
    try:
        found: list[Diagnosis] = []
        known: dict[str, set[KnownBroker]] = {}
        for address in addresses:
            finding, brokers = await _name_server(client, address)
            found.append(finding)
            if brokers is not None:
                known[address] = brokers
        found += judge_name_servers(known)
        for broker in sorted(
            {one for brokers in known.values() for one in brokers}, key=lambda one: one.address
        ):
            found += await _broker(client, broker, list(known))
        if topic is not None and known:
            found.append(await _topic(client, list(known), topic))
        return found
    finally:
        await client.close()


async def _name_server(client: Client, address: str) -> tuple[Diagnosis, set[KnownBroker] | None]:
    subject, begun = f"name server {address}", time.monotonic()
    try:
        answer = await client.call(address, request(RequestCode.GET_BROKER_CLUSTER_INFO), TIMEOUT_S)
        if answer.code == ResponseCode.SUCCESS:
            brokers = brokers_of(bodies.ClusterInfo.decode(answer.body))
            took_ms = (time.monotonic() - begun) * 1000
            return Diagnosis(
                OK, subject, f"answers in {took_ms:.0f} ms, knows {len(brokers)} brokers"
            ), brokers
        answer = await client.call(address, request(RequestCode.GET_BROKER_RUNTIME_INFO), TIMEOUT_S)
        if answer.code == ResponseCode.SUCCESS:
            advice = "give the address of a name server, whose port is usually 9876"
            return Diagnosis(FAIL, subject, "this is a broker, not a name server", advice), None
        return Diagnosis(FAIL, subject, f"answers code {answer.code}: {answer.remark}"), None
    except (OSError, BrokenBody) as error:
        return await _silent(subject, address, error), None


async def _silent(subject: str, address: str, error: Exception) -> Diagnosis:
    """Returns the diagnosis of an address that did not answer; asks it whether it is an HTTP server."""
    host, port = split_address(address)
    why = str(error) or type(error).__name__
    try:
        async with asyncio.timeout(TIMEOUT_S):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(HTTP_PROBE)
                start = await reader.read(5)
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
    except (OSError, TimeoutError):
        start = b""
    if start == b"HTTP/":
        return Diagnosis(
            FAIL, subject, "this is an HTTP server", "give the port of a name server, usually 9876"
        )
    advice = "`turbopump up` starts one, --namesrv or NAMESRV_ADDR names another; or a firewall blocks it"
    return Diagnosis(FAIL, subject, f"does not answer: {why}", advice)


async def _broker(client: Client, broker: KnownBroker, name_servers: Sequence[str]) -> list[Diagnosis]:
    subject = f"broker {broker.name} ({broker.id}) at {broker.address}"
    try:
        answer = await client.call(broker.address, request(RequestCode.GET_BROKER_RUNTIME_INFO), TIMEOUT_S)
        figures = bodies.KVTable.decode(answer.body).table if answer.code == ResponseCode.SUCCESS else {}
    except (OSError, BrokenBody) as error:
        return [unreachable(subject, broker.address, str(error) or type(error).__name__)]
    found = judge_broker(subject, figures, SystemClock().now_ms())
    found += judge_address(subject, broker.address, name_servers)
    found += await _fast_port(subject, broker.address)
    return found


async def _fast_port(subject: str, address: str) -> list[Diagnosis]:
    host, port = split_address(address)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            _, writer = await asyncio.open_connection(host, port - FAST_PORT_BELOW)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    except (OSError, TimeoutError):
        advice = f"open port {port - FAST_PORT_BELOW}, or have those clients set vipChannelEnabled=false"
        text = f"its fast port {port - FAST_PORT_BELOW} cannot be reached: Java clients before 4.6 send there"
        return [Diagnosis(WARN, subject, text, advice)]
    return []


async def _topic(client: Client, name_servers: list[str], topic: str) -> Diagnosis:
    try:
        routes = RouteCache(NameServers(client, name_servers, Chance()))
        return judge_route(topic, await routes.refresh(topic))
    except TopicNotFound:
        return judge_route(topic, None)
    except (OSError, Refused) as error:
        return Diagnosis(FAIL, f"topic {topic}", f"cannot get its route: {error}")


# --- diagnoses ---------------------------------------------------------------------------------------------


def here() -> Diagnosis:
    now = format_time(SystemClock().now_ms())
    python = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    return Diagnosis(OK, "here", f"turbopump {turbopump.__version__}, {python}, clock {now}")


def where_from(flag: str | None, environ: Mapping[str, str], addresses: Sequence[str]) -> Diagnosis:
    source = "--namesrv" if flag else "NAMESRV_ADDR" if environ.get("NAMESRV_ADDR") else "the default"
    return Diagnosis(OK, "address", f"name servers by {source}: {'; '.join(addresses)}")


def brokers_of(cluster: bodies.ClusterInfo) -> set[KnownBroker]:
    return {
        KnownBroker(name, int(number), address)
        for name, broker in cluster.brokerAddrTable.items()
        for number, address in broker.brokerAddrs.items()
    }


def judge_name_servers(known: Mapping[str, set[KnownBroker]]) -> Iterable[Diagnosis]:
    """Yields a diagnosis per broker that only some name servers know, or one if there are no brokers."""
    everything = set().union(*known.values()) if known else set()
    if known and not everything:
        advice = "start one with `mqbroker -n ADDRESS`, or read its log if it cannot register"
        yield Diagnosis(FAIL, "brokers", "no broker is registered", advice)
    for address, brokers in known.items():
        for missing in sorted(everything - brokers, key=lambda one: one.address):
            advice = "configure all name servers in the broker (namesrvAddr): clients use any of them"
            text = f"{missing.name} at {missing.address} is not registered here, but with another name server"
            yield Diagnosis(WARN, f"name server {address}", text, advice)


def unreachable(subject: str, address: str, why: str) -> Diagnosis:
    host, _ = split_address(address)
    advice = (
        "clients get this address: set brokerIP1 (TURBOPUMP_BROKER_IP1) to one that they can "
        f"reach, and publish the port if it runs in a container; {host} {_kind_of(host)}"
    )
    return Diagnosis(FAIL, subject, f"cannot be reached from here: {why}", advice)


def judge_address(subject: str, address: str, name_servers: Sequence[str]) -> list[Diagnosis]:
    """Returns a diagnosis if the broker's address is loopback and a name server's is not; else []."""
    host, _ = split_address(address)
    if not _is_loopback(host) or all(_is_loopback(split_address(one)[0]) for one in name_servers):
        return []
    advice = "set brokerIP1 (TURBOPUMP_BROKER_IP1) to the broker's address in the network"
    text = f"clients get the address {address}: on other machines they would connect to themselves"
    return [Diagnosis(FAIL, subject, text, advice)]


def judge_broker(subject: str, figures: Mapping[str, str], now_ms: int) -> list[Diagnosis]:
    if not figures:
        return [Diagnosis(WARN, subject, "answers, but without runtime figures")]
    found = [Diagnosis(OK, subject, f"answers, version {figures.get('brokerVersionDesc', 'unknown')}")]
    if trouble := figures.get("storeTrouble"):
        found.append(Diagnosis(FAIL, subject, f"accepts no messages: {trouble}"))
    found += _judge_disk(subject, figures)
    clock_ms = clock_of(figures)
    if clock_ms is not None and abs(clock_ms - now_ms) > MAX_CLOCK_DIFFERENCE_S * 1000:
        ahead = (clock_ms - now_ms) / 1000
        text = f"its clock differs from the one here by {ahead:+.0f} s"
        advice = "run NTP on both: delays, timers and times in options use the broker's clock"
        found.append(Diagnosis(WARN, subject, text, advice))
    return found


def _judge_disk(subject: str, figures: Mapping[str, str]) -> list[Diagnosis]:
    try:
        used = float(figures.get("commitLogDiskRatio", "0"))
    except ValueError:
        return []
    if used < DISK_SOON_FULL:
        return []
    text = f"its disk is {used:.0%} full ({figures.get('commitLogDirCapacity', 'size unknown').rstrip('.')})"
    advice = "free space or lower fileReservedTime: above 75% messages are deleted early, above 90% refused"
    return [Diagnosis(FAIL if used >= DISK_FULL else WARN, subject, text, advice)]


def clock_of(figures: Mapping[str, str]) -> int | None:
    """Returns the broker's clock in ms, to the second, from its start and run time; None if unknown."""
    parts = [int(number) for number in re.findall(r"\d+", figures.get("runtime", ""))]
    booted = figures.get("bootTimestamp", "")
    if len(parts) != 4 or not booted.isdecimal():
        return None
    days, hours, minutes, seconds = parts
    return int(booted) + 1000 * (((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def judge_route(topic: str, route: TopicRoute | None) -> Diagnosis:
    subject = f"topic {topic}"
    if route is None:
        advice = (
            f"`mqadmin updateTopic -t {topic} -c CLUSTER` creates it, or a first send where brokers allow it"
        )
        return Diagnosis(WARN, subject, "no name server has a route for it", advice)
    reads, writes = len(route.subscribe), len(route.publish)
    text = f"{writes} queues to write, {reads} to read, on {_brokers(route)}"
    if not reads or not writes:
        return Diagnosis(WARN, subject, text, "`mqadmin updateTopicPerm -p 6` makes it readable and writable")
    return Diagnosis(OK, subject, text)


def _brokers(route: TopicRoute) -> str:
    return ", ".join(sorted({queue.broker for queue in (*route.publish, *route.subscribe)})) or "no broker"


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _kind_of(host: str) -> str:
    """Returns words that describe a host: a name, or a loopback, container, private or public address."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "is a name that must be resolvable here"
    if address.is_loopback:
        return "is the client's own machine"
    if address in ipaddress.ip_network("172.16.0.0/12"):
        return "looks like an address of a container network"
    return "is a private address" if address.is_private else "is a public address"
