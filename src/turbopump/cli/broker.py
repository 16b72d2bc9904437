"""`turbopump broker`, also called `mqbroker`: runs a broker in the foreground, with Apache's flags."""

import argparse
import contextlib
import os
import socket
from collections.abc import Mapping

from turbopump.broker.config import BrokerConfig, LoadedConfig, printed
from turbopump.broker.config import load as load_config
from turbopump.broker.server import Broker
from turbopump.cli import logs, server_start
from turbopump.cli.conf_file import ConfFile
from turbopump.cli.exits import warn
from turbopump.cli.server_process import serve
from turbopump.protocol.codes import RequestCode
from turbopump.remoting.http import TEXT, Page, name_server_pages
from turbopump.runtime.chance import Chance
from turbopump.runtime.clock import SystemClock
from turbopump.runtime.disk import SystemDisk, SystemWorkers
from turbopump.runtime.network import SystemNetwork


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
    logs.add_argument(parser)


def run(options: argparse.Namespace) -> int:
    flags = {"namesrvAddr": options.namesrvAddr} if options.namesrvAddr else {}
    loaded = load(ConfFile.read(options.configFile), flags)
    if options.printConfigItem or options.printImportantConfig:
        print(printed(loaded.config, important_only=not options.printConfigItem), end="", flush=True)
        for warning in loaded.warnings:
            warn(f"WARNING {warning}")
        return 0
    log = logs.open_logs(logs.directory(options.log_dir, os.environ), ("broker",))

    async def start(stack: contextlib.AsyncExitStack) -> None:
        broker = await start_broker(stack, loaded.config)
        await server_start.start_pages(
            stack, pages(broker), loaded.config.listening.bind_address, options.http_port
        )
        for warning in (*loaded.warnings, *broker.warnings):
            log.warning(warning)
        line = ready_line(broker)
        log.info(line, extra=logs.PRINTED)
        print(line)
        print(f"Acknowledged means: {broker.acknowledgement}", flush=True)

    return serve(start)


def load(file: ConfFile, flags: Mapping[str, str]) -> LoadedConfig:
    with file.blamed():
        return load_config(file.text, os.environ, flags, socket.gethostname())


async def start_broker(stack: contextlib.AsyncExitStack, config: BrokerConfig) -> Broker:
    """Starts a broker and pushes its stop on the stack."""
    workers = SystemWorkers()
    stack.callback(workers.close)
    broker = Broker(config, SystemNetwork(), SystemClock(), SystemDisk(), workers, Chance())
    listening = config.listening
    async with server_start.unknown_hosts_named(
        listening.bind_address, config.metrics.host, listening.advertised_address
    ):
        await broker.start()
    stack.push_async_callback(broker.stop)
    await server_start.check_serving(
        config.listening.bind_address, broker.port, RequestCode.GET_BROKER_RUNTIME_INFO
    )
    return broker


def pages(broker: Broker) -> dict[str, Page]:
    def health() -> tuple[int, str, bytes]:
        trouble = broker.trouble
        return (200, TEXT, b"ok\n") if trouble is None else (503, TEXT, f"{trouble}\n".encode())

    return {
        "/health": health,
        **name_server_pages(lambda: ";".join(broker.config.name_servers.addresses)),
    }


def ready_line(broker: Broker) -> str:
    """Returns Apache's line for a started broker, for scripts that wait for it."""
    identity, name_servers = broker.config.identity, broker.config.name_servers
    line = f"The broker[{identity.broker_name}, {broker.address}] boot success. serializeType=JSON"
    return f"{line} and name server is {';'.join(name_servers.addresses)}" if name_servers.addresses else line
