"""`turbopump broker`, also called `mqbroker`: runs a broker in the foreground, with Apache's flags."""

import argparse
import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import replace

from turbopump.broker.config import BrokerConfig, LoadedConfig, MasterRole, printed
from turbopump.broker.config import load as load_config
from turbopump.broker.server import Broker
from turbopump.cli import logs, promotion, server_start
from turbopump.cli.conf_file import ConfFile
from turbopump.cli.exits import warn
from turbopump.cli.server_process import serve
from turbopump.protocol.addresses import FAST_PORT_STEP, HA_PORT_STEP, MASTER_ID
from turbopump.protocol.codes import RequestCode
from turbopump.remoting.http import TEXT, Page, name_server_pages
from turbopump.runtime.chance import Chance
from turbopump.runtime.clock import SystemClock
from turbopump.runtime.disk import SystemDisk, SystemWorkers
from turbopump.runtime.network import SystemNetwork
from turbopump.runtime.ports import reserved_port
from turbopump.runtime.tasks import Tasks
from turbopump.store.location import refuse_dledger

log = logging.getLogger("turbopump.broker")

PROMOTION_PAUSE_S = 0.2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-c", "--configFile", metavar="FILE", help="broker configuration, Apache's broker.conf"
    )
    parser.add_argument(
        "-n", "--namesrvAddr", metavar="ADDR", help="name servers: '10.0.0.1:9876;10.0.0.2:9876'"
    )
    parser.add_argument(
        "-p", "--printConfigItem", action="store_true", help="print the configuration and exit"
    )
    parser.add_argument(
        "-m", "--printImportantConfig", action="store_true", help="print the important settings and exit"
    )
    server_start.add_argument(parser)
    server_start.add_tls_argument(parser)
    logs.add_argument(parser)


def run(options: argparse.Namespace) -> int:
    given = {"namesrvAddr": options.namesrvAddr, "tlsConfigFile": options.tls}
    flags = {key: text for key, text in given.items() if text}
    file = ConfFile.read(options.configFile)
    loaded = load(file, flags)
    if options.printConfigItem or options.printImportantConfig:
        print(printed(loaded.config, important_only=not options.printConfigItem), end="", flush=True)
        for warning in loaded.warnings:
            warn(f"WARNING {warning}")
        return 0
    logs.open_logs(logs.directory(options.log_dir, os.environ), ("broker",))
    process = BrokerProcess(loaded.config, options.configFile)

    async def start(stack: contextlib.AsyncExitStack) -> None:
        await process.start(stack)
        await server_start.start_pages(
            stack,
            pages(lambda: process.broker),
            loaded.config.listening.bind_address,
            options.http_port,
            loaded.config.tls,
        )
        for warning in (*loaded.warnings, *file.warnings(), *process.broker.warnings):
            log.warning(warning)
        show_ready(process.broker)

    return serve(start, process.run)


def load(file: ConfFile, flags: Mapping[str, str]) -> LoadedConfig:
    with file.blamed():
        return load_config(file.text, os.environ, flags, socket.gethostname())


class BrokerProcess:
    """The broker of this process; a slave that is promoted is stopped and started again as a master."""

    def __init__(self, config: BrokerConfig, conf_path: str | None) -> None:
        self._config = config
        self._conf_path = conf_path
        self._broker: Broker | None = None
        self._role: MasterRole | None = None
        self._asked = asyncio.Event()
        self._tasks = Tasks(log)
        self._brokers = contextlib.AsyncExitStack()

    @property
    def broker(self) -> Broker:
        """The broker as it runs now, or ran last."""
        assert self._broker is not None, "the process was not started"
        return self._broker

    async def start(self, stack: contextlib.AsyncExitStack) -> None:
        """Starts the broker and pushes its stop on the stack."""
        self._config = await with_port(self._config, stack)
        self._broker = await start_broker(self._brokers, self._config, self._promote)
        stack.push_async_callback(self._stop)

    async def _stop(self) -> None:
        await self._tasks.wait()  # for a restart that has begun: it would leave the store half open
        await self._brokers.aclose()

    async def run(self) -> None:
        """Starts the broker again as a master each time that this is asked for, until it is cancelled."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            restart = self._tasks.start(self._restart(), name="promote the broker", log_failure=False)
            await asyncio.shield(restart)

    def _promote(self, role: MasterRole) -> None:
        self._role = role
        self._asked.set()

    async def _restart(self) -> None:
        assert self._role is not None, "no promotion was requested"
        await asyncio.sleep(PROMOTION_PAUSE_S)  # the request for it is answered first
        self._write(self._role)
        self._config = as_master(self._config, self._role)
        await self._brokers.aclose()
        self._broker = await start_broker(self._brokers, self._config, self._promote)
        show_ready(self._broker)

    def _write(self, role: MasterRole) -> None:
        """Writes the role to the configuration file; if that fails, the broker is promoted all the same."""
        words = "Set brokerRole=%s and brokerId=0 where this broker is configured, before its next start"
        if self._conf_path is None:
            log.warning(words, role)
            return
        try:
            kept = promotion.write(self._conf_path, role)
        except OSError as error:
            log.error(words + ": %s", role, error)
        else:
            log.info("Wrote brokerRole=%s to %s; the old file is %s", role, self._conf_path, kept)
            for line in promotion.overridden(os.environ):
                log.warning(line)


def as_master(config: BrokerConfig, role: MasterRole) -> BrokerConfig:
    """Returns the configuration of a slave as that of a master."""
    return replace(config, identity=replace(config.identity, role=role, broker_id=MASTER_ID))


async def with_port(config: BrokerConfig, stack: contextlib.AsyncExitStack) -> BrokerConfig:
    """Returns the configuration with a free main port instead of 0, reserved until the stack is closed.

    A member of a DLedger group has no replication port beside it.
    """
    listening = config.listening
    if listening.port:
        return config
    has_ha_port = not (listening.ha_port or config.dledger.enabled)
    steps = (FAST_PORT_STEP, HA_PORT_STEP) if has_ha_port else (FAST_PORT_STEP,)
    async with server_start.unknown_hosts_named(listening.bind_address):
        port = stack.enter_context(reserved_port(listening.bind_address, steps))
    return replace(config, listening=replace(listening, port=port))


async def start_broker(
    stack: contextlib.AsyncExitStack,
    config: BrokerConfig,
    promote: Callable[[MasterRole], None] | None = None,
) -> Broker:
    """Starts a broker and pushes its stop on the stack. `promote`: called when a slave is to be a master."""
    disk = SystemDisk()
    if not config.dledger.enabled:
        # It would begin an empty commit log beside the messages that are there.
        refuse_dledger(config.store.root_dir, disk, "a start without enableDLegerCommitLog=true")
    workers = SystemWorkers()
    stack.callback(workers.close)
    broker = Broker(config, SystemNetwork(), SystemClock(), disk, workers, Chance())
    broker.promote = promote
    listening = config.listening
    async with server_start.unknown_hosts_named(
        listening.bind_address, config.metrics.host, listening.advertised_address
    ):
        await broker.start()
    stack.push_async_callback(broker.stop)
    await server_start.check_serving(
        config.listening.bind_address, broker.port, RequestCode.GET_BROKER_RUNTIME_INFO, broker.to_itself()
    )
    return broker


def pages(broker: Callable[[], Broker]) -> dict[str, Page]:
    def health() -> tuple[int, str, bytes]:
        trouble = broker().trouble
        return (200, TEXT, b"ok\n") if trouble is None else (503, TEXT, f"{trouble}\n".encode())

    return {
        "/health": health,
        **name_server_pages(lambda: ";".join(broker().config.name_servers.addresses)),
    }


def show_ready(broker: Broker) -> None:
    """Prints and logs that the broker serves, and what an acknowledgement means."""
    line = ready_line(broker)
    log.info(line, extra=logs.PRINTED)
    print(line)
    print(f"Acknowledged means: {broker.acknowledgement}", flush=True)


def ready_line(broker: Broker) -> str:
    """Returns Apache's line for a started broker, for scripts that wait for it."""
    identity, name_servers = broker.config.identity, broker.config.name_servers
    line = f"The broker[{identity.broker_name}, {broker.address}] boot success. serializeType=JSON"
    return f"{line} and name server is {';'.join(name_servers.addresses)}" if name_servers.addresses else line
