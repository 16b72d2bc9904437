"""`turbopump namesrv`, also called `mqnamesrv`: runs a name server in the foreground."""

import argparse
import contextlib
import os
from dataclasses import replace

from turbopump.broker.address import advertised, primary_local_address
from turbopump.broker.readers import ADDRESSES, NotAccepted
from turbopump.broker.settings import unknown_key, variable
from turbopump.cli import logs, server_start
from turbopump.cli.conf_file import ConfFile
from turbopump.cli.server_process import serve
from turbopump.namesrv.config import NamesrvConfig, configure, known_keys, properties
from turbopump.namesrv.server import NameServer
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.conf import pack_properties, parse_properties
from turbopump.runtime.clock import SystemClock
from turbopump.runtime.disk import SystemDisk
from turbopump.runtime.network import SystemNetwork


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-c", "--configFile", metavar="FILE", help="name server configuration (properties)")
    parser.add_argument(
        "-p", "--printConfigItem", action="store_true", help="print the configuration and exit"
    )
    parser.add_argument(
        "-n",
        "--namesrvAddr",
        type=addresses,
        metavar="ADDR",
        help="all name servers, for /rocketmq/nsaddr: '10.0.0.1:9876;10.0.0.2:9876' (default: this one)",
    )
    server_start.add_argument(parser)
    server_start.add_tls_argument(parser)
    logs.add_argument(parser)


def run(options: argparse.Namespace) -> int:
    file = ConfFile.read(options.configFile)
    config, warnings = load(file)
    if options.namesrvAddr:
        config = replace(config, name_servers=options.namesrvAddr)
    if options.http_port >= 0:
        config = replace(config, http_port=options.http_port)
    if options.tls:
        config = replace(config, tls=replace(config.tls, config_file=options.tls))
    if options.printConfigItem:
        print("".join(f"{name}={value}\n" for name, value in sorted(properties(config).items())), end="")
        return 0
    log = logs.open_logs(logs.directory(options.log_dir, os.environ), ("namesrv",))

    async def start(stack: contextlib.AsyncExitStack) -> None:
        for warning in (*warnings, *file.warnings()):
            log.warning(warning)
        port = await start_namesrv(stack, config)
        line = ready_line(config, port)
        log.info(line, extra=logs.PRINTED)
        print(line, flush=True)

    return serve(start)


def addresses(text: str) -> str:
    """Reads a list of name servers for argparse, and returns it in the form that brokers accept."""
    try:
        return ADDRESSES.show(ADDRESSES.read(text))
    except NotAccepted:
        raise argparse.ArgumentTypeError(f"must be {ADDRESSES.accepts}, got {text!r}") from None


def load(file: ConfFile) -> tuple[NamesrvConfig, list[str]]:
    with file.blamed():
        config, unknown = configure(_starting_point(), file.text)
        strangers = [entry for entry in parse_properties(file.text) if entry.key in unknown]
        known = known_keys()
        return config, [f"{file.path}: {unknown_key(one.key, one.line, known)}" for one in strangers]


def _starting_point() -> NamesrvConfig:
    """Returns the defaults, with what the environment has: paths, and the key of stored secrets."""
    config = NamesrvConfig.below_home(os.path.expanduser("~"))
    home, key = os.environ.get("ROCKETMQ_HOME"), os.environ.get(variable("authKey"))
    if home:
        config = replace(config, access=replace(config.access, accounts_dir=f"{home}/conf"))
    if key:
        config, _ = configure(config, pack_properties({"authKey": key}))
    return config


async def start_namesrv(stack: contextlib.AsyncExitStack, config: NamesrvConfig, servers: int = 1) -> int:
    """Starts a name server, pushes its stop on the stack, returns its port; `servers` share this process."""
    host = advertised("", config.bind_address, primary_local_address).address
    server = NameServer(config, SystemNetwork(), SystemClock(), SystemDisk(), servers, host)
    async with server_start.unknown_hosts_named(config.bind_address):
        port = await server.start()
    stack.push_async_callback(server.stop)
    own = server.to_itself()
    await server_start.check_serving(config.bind_address, port, RequestCode.GET_BROKER_CLUSTER_INFO, own)
    return port


def ready_line(config: NamesrvConfig, port: int) -> str:
    """Returns Apache's line for a started name server, for scripts that wait for it."""
    return f"The Name Server boot success. serializeType=JSON, address {config.bind_address}:{port}"
