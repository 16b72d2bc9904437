"""`turbopump promote`: makes a slave the master of its broker name, after checks.

With the configuration file of a stopped slave it changes the file; with the address of a running one it asks
that process to start its broker again as a master.
"""

import argparse
import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from typing import get_args

import msgspec

from turbopump.broker.config import BrokerConfig, MasterRole
from turbopump.broker.config import load as load_config
from turbopump.cli import connect, promotion
from turbopump.cli.conf_file import ConfFile
from turbopump.cli.exits import warn
from turbopump.cli.failures import CommandFailure
from turbopump.cli.promotion import SlaveFacts
from turbopump.cli.records import moment
from turbopump.client.admin.brokers import properties_of
from turbopump.protocol.addresses import split_list
from turbopump.protocol.bodies import ReplicaStatus
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import request
from turbopump.protocol.headers.replicas import ReplicaPromoteRequest
from turbopump.remoting.client import Client
from turbopump.replication.progress import FILE, CopyState
from turbopump.runtime.disk import AlreadyLocked, SystemDisk
from turbopump.store.config_files import ConfigFiles
from turbopump.store.stopped_log import StoppedLog

TIMEOUT_S = 5.0
RESTART_TIMEOUT_S = 60.0
POLL_S = 0.2
Promote = Callable[[argparse.Namespace, Client], Awaitable[int]]
UNKNOWN = "when it last heard from its master is not known"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target", metavar="FILE|ADDRESS", help="broker.conf of a stopped slave, or host:port of a running one"
    )
    parser.add_argument(
        "--role",
        choices=get_args(MasterRole),
        default="ASYNC_MASTER",
        help="what it becomes (default: ASYNC_MASTER, which does not wait for slaves)",
    )
    parser.add_argument("--force", action="store_true", help="promote it whatever the checks find")
    parser.add_argument(
        "--namesrv",
        metavar="ADDR",
        help="name servers to ask for a live master (default: those of the slave)",
    )


def run(options: argparse.Namespace) -> int:
    promote = _promote_file if os.path.exists(options.target) else _promote_address
    return asyncio.run(_run(promote, options))


async def _run(promote: Promote, options: argparse.Namespace) -> int:
    client = connect.client()
    try:
        return await promote(options, client)
    finally:
        await client.close()


# --- a stopped slave, by its file ------------------------------------------------------------------------


async def _promote_file(options: argparse.Namespace, client: Client) -> int:
    path: str = options.target
    file = ConfFile.read(path)
    with file.blamed():
        config = load_config(file.text, os.environ, {}, socket.gethostname()).config
    _check_stopped(config)
    state, end = _read_store(config)
    facts = SlaveFacts(config.identity.broker_name, config.identity.role, missing=state.missing(end))
    given = connect.name_servers(options.namesrv) if options.namesrv else config.name_servers.addresses
    await _check(client, list(given), facts, options.force)
    kept = promotion.write(path, options.role)
    print(f"{path}: brokerRole={options.role}, brokerId=0; the old file is {kept}")
    print(f"The log ends at {end}; {_last_seen(state)}")
    for line in promotion.overridden(os.environ):
        warn(f"turbopump promote: {line}")
    print(f"Start the broker: mqbroker -c {path}")
    return 0


def _check_stopped(config: BrokerConfig) -> None:
    root = config.store.root_dir
    if not os.path.isdir(config.store.log_dir):
        raise CommandFailure(f"there is no store at {root}: this slave has copied nothing")
    try:
        SystemDisk().lock(os.path.join(root, "lock")).release()
    except AlreadyLocked:
        raise CommandFailure(
            f"the broker on {root} runs: promote it by its address, turbopump promote HOST:"
            f"{config.listening.port or 'PORT'}, or stop it first"
        ) from None


def _read_store(config: BrokerConfig) -> tuple[CopyState, int]:
    """Returns what the store knows of its copy, and where its log ends."""
    disk = SystemDisk()
    data = ConfigFiles(config.store.config_dir, disk).load(FILE)
    log = StoppedLog(config.store.root_dir, disk, config.store.log_dir)
    return CopyState() if data is None else msgspec.json.decode(data, type=CopyState), log.end


def _last_seen(state: CopyState) -> str:
    if not state.heard_ms:
        return UNKNOWN
    had = "it had everything" if state.followed else "it had not everything"
    return f"it heard from its master until {moment(state.heard_ms)}, and {had} then"


# --- a running slave, by its address ---------------------------------------------------------------------


async def _promote_address(options: argparse.Namespace, client: Client) -> int:
    address = connect.checked(options.target)
    before = await status_of(client, address)
    facts = SlaveFacts(
        before.brokerName,
        before.role,
        before.missing,
        before.trouble if before.state == "stopped" else "",
        before.master,
    )
    await _check(client, await _name_servers(options, client, address), facts, options.force)
    seen = f"it heard from its master until {moment(before.heardMs)}" if before.heardMs else UNKNOWN
    print(f"{address} ({before.brokerName}, id {before.brokerId}) ends at {before.end}; {seen}")
    header = ReplicaPromoteRequest(role=options.role, force=options.force)
    answer = await client.call(address, request(RequestCode.REPLICA_PROMOTE, header), TIMEOUT_S)
    if answer.code != ResponseCode.SUCCESS:
        raise CommandFailure(f"{address} refused: {answer.remark}")
    await _until_promoted(client, address, before.run)
    print(f"{address} is {options.role} of {before.brokerName} now, and takes messages")
    return 0


async def _name_servers(options: argparse.Namespace, client: Client, address: str) -> list[str]:
    """Returns the name servers that were given, or those of the broker's configuration."""
    if options.namesrv:
        return connect.name_servers(options.namesrv)
    answer = await client.call(address, request(RequestCode.GET_BROKER_CONFIG), TIMEOUT_S)
    return list(split_list(properties_of(answer.body).get("namesrvAddr", "")))


async def status_of(client: Client, address: str) -> ReplicaStatus:
    """Returns the replica status of a Turbopump broker; raises CommandFailure if it answers with none."""
    try:
        answer = await client.call(address, request(RequestCode.REPLICA_STATUS), TIMEOUT_S)
    except OSError as error:
        raise CommandFailure(f"{address} does not answer: {error}") from None
    if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        raise CommandFailure(
            f"{address} is no Turbopump broker: it does not tell about its copy. "
            f"For Apache's see: mqadmin haStatus -b {address}"
        )
    if answer.code != ResponseCode.SUCCESS:
        raise CommandFailure(f"{address} answers code {answer.code}: {answer.remark}")
    return ReplicaStatus.decode(answer.body)


async def _until_promoted(client: Client, address: str, run: int) -> None:
    """Waits until the broker answers as a restarted master; raises CommandFailure after RESTART_TIMEOUT_S."""
    try:
        async with asyncio.timeout(RESTART_TIMEOUT_S):
            while True:
                await asyncio.sleep(POLL_S)
                try:
                    now = await status_of(client, address)
                except CommandFailure:
                    continue
                if now.run != run and now.role != "SLAVE":
                    return
    except TimeoutError:
        raise CommandFailure(
            f"{address} did not come back as a master within {RESTART_TIMEOUT_S:g} s; see its broker.log"
        ) from None


async def _check(client: Client, name_servers: list[str], facts: SlaveFacts, is_forced: bool) -> None:
    """Raises CommandFailure with everything that speaks against the promotion; with --force only warns."""
    found = promotion.objections(facts, await promotion.evidence(client, name_servers, facts))
    if not found:
        return
    if facts.role == "SLAVE" and is_forced:
        for objection in found:
            warn(f"turbopump promote: forced, although {objection}")
        return
    advice = " (--force promotes it all the same)" if facts.role == "SLAVE" else ""
    raise CommandFailure(f"not promoted: {'; '.join(found)}{advice}")
