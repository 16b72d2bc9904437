"""`turbopump up`: runs name server and broker in one process, with everything under one directory.

Prints addresses, the data directory, the meaning of an acknowledgement, and three commands to try.
"""

import argparse
import asyncio
import contextlib
import logging
import os
import shutil
import signal
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import replace

import turbopump
from turbopump.broker.address import ANYWHERE
from turbopump.broker.config import BrokerConfig, change
from turbopump.broker.server import Broker
from turbopump.broker.settings import variable
from turbopump.cli import logs, server_start
from turbopump.cli.broker import load, pages, start_broker, with_port
from turbopump.cli.broker import ready_line as broker_ready_line
from turbopump.cli.conf_file import ConfFile
from turbopump.cli.failures import USAGE_ERROR, CommandFailure
from turbopump.cli.namesrv import ready_line as namesrv_ready_line
from turbopump.cli.namesrv import start_namesrv
from turbopump.cli.server_process import serve
from turbopump.namesrv.config import NamesrvConfig
from turbopump.remoting.http import name_server_pages
from turbopump.replication.dledger.group import DLedgerGroup

DATA = "data"
HERE_ONLY = "127.0.0.1"
WIDTH = 110
SERVERS = 3  # the name server, the broker and its fast port


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", metavar="DIR", help=f"directory of all data (default: ./{DATA})")
    parser.add_argument(
        "--namesrv-port", type=server_start.port, default=9876, metavar="P", help="default: 9876; 0: any free"
    )
    parser.add_argument(
        "--broker-port", type=server_start.port, metavar="P", help="default: 10911; 0: any free"
    )
    parser.add_argument(
        "--host",
        metavar="H",
        help=f"address to listen on and to register (default: {HERE_ONLY}; 0.0.0.0: all addresses)",
    )
    parser.add_argument(
        "-c", "--configFile", metavar="FILE", help="broker configuration, Apache's broker.conf"
    )
    parser.add_argument(
        "--demo",
        action="store_true",
        help="run a demo on Spark: orders to a topic, to a Delta table and back",
    )
    server_start.add_argument(parser)
    server_start.add_tls_argument(parser)
    logs.add_argument(parser, "DIR/logs")


def run(options: argparse.Namespace) -> int:
    data = os.path.abspath(options.data or DATA)
    host = options.host or HERE_ONLY
    file = ConfFile.read(options.configFile)
    loaded = load(file, flags_of(options, data, file.keys(), os.environ))
    check_members(loaded.config)
    log = logs.open_logs(
        logs.directory(options.log_dir, os.environ, os.path.join(data, "logs")), ("namesrv", "broker")
    )

    async def start(stack: contextlib.AsyncExitStack) -> None:
        servers = replace(namesrv_config(host, options.namesrv_port, data), tls=loaded.config.tls)
        port = await start_namesrv(stack, servers, SERVERS)
        address = server_start.address(host, port)
        config = await with_port(change(loaded.config, "namesrvAddr", address), stack)
        broker = await start_broker(stack, config)
        for warning in (*dropped(file), *loaded.warnings, *(broker.warnings if options.host else ())):
            log.warning(
                warning
            )  # not if 127.0.0.1 is the default: then it is expected to be for this machine only
        known_as = server_start.address(host_for_others(host, broker), port)
        served = {**pages(lambda: broker), **name_server_pages(lambda: known_as)}
        logging.getLogger("turbopump.namesrv").info(namesrv_ready_line(servers, port), extra=logs.PRINTED)
        logging.getLogger("turbopump.broker").info(broker_ready_line(broker), extra=logs.PRINTED)
        http_port = await server_start.start_pages(stack, served, host, options.http_port, loaded.config.tls)
        health = f"http://{server_start.address(host, http_port)}/health" if http_port > 0 else ""
        print(welcome(broker, known_as, data, health), flush=True)
        if options.demo:
            await start_demo(stack, address, data)

    return serve(start)


async def start_demo(stack: contextlib.AsyncExitStack, name_server: str, data: str) -> None:
    """Starts the demo as a process of its own, and pushes its stop on the stack.

    The demo ends before the servers. Nothing heavy is imported here.
    """
    print(flush=True)
    command = [sys.executable, "-m", "turbopump.pipelines.demo", name_server, data]
    demo = await asyncio.create_subprocess_exec(*command, start_new_session=True)

    async def stop() -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(demo.pid, signal.SIGTERM)
        await demo.wait()

    stack.push_async_callback(stop)


def flags_of(
    options: argparse.Namespace, data: str, in_file: set[str], environ: Mapping[str, str]
) -> dict[str, str]:
    """Returns broker settings from flags, and defaults of `up` for keys not in file and environment."""
    defaults = {
        "storePathRootDir": os.path.join(data, "store"),
        "bindAddress": HERE_ONLY,
        "brokerName": "broker-a",
        "enablePropertyFilter": "true",
    }
    silent = {key for key in defaults if key not in in_file and variable(key) not in environ}
    flags = {key: text for key, text in defaults.items() if key in silent}
    if options.data:
        flags["storePathRootDir"] = defaults["storePathRootDir"]
    if options.tls:
        flags["tlsConfigFile"] = options.tls
    if options.host:
        flags["bindAddress"] = options.host
    if options.broker_port is not None:
        flags["listenPort"] = str(options.broker_port)
    return flags


def check_members(config: BrokerConfig) -> None:
    """Raises CommandFailure for a DLedger group of several members: this command runs one broker."""
    rules = config.dledger
    if rules.enabled and len(DLedgerGroup.parse(rules.group, rules.self_id, rules.peers).addresses) > 1:
        raise CommandFailure(
            "`up` runs one broker, and dLegerPeers names several: start each member with "
            "`turbopump broker -c FILE`, and a name server with `turbopump namesrv`",
            USAGE_ERROR,
        )


def dropped(file: ConfFile) -> list[str]:
    """Returns warnings about settings of the file that have no effect with this command."""
    keys = file.keys()
    unheeded = "namesrvAddr has no effect with `up`, which starts its own name server"
    return [f"{file.path}: {unheeded}"] if "namesrvAddr" in keys else []


def namesrv_config(host: str, port: int, data: str) -> NamesrvConfig:
    return NamesrvConfig(
        listen_port=port,
        bind_address=host,
        kv_config_path=os.path.join(data, "namesrv", "kvConfig.json"),
        config_store_path=os.path.join(data, "namesrv", "namesrv.properties"),
    )


def host_for_others(host: str, broker: Broker) -> str:
    """Returns the host at which other machines reach the name server: `host`, or the broker's if 0.0.0.0."""
    return broker.address.rpartition(":")[0] if host in ANYWHERE else host


def command_line() -> str:
    """Returns the command that runs this program in another terminal."""
    program = sys.argv[0]
    if program.endswith("__main__.py") or not os.path.exists(program):  # "-c" is no file
        return f"{sys.executable} -m turbopump"
    found = shutil.which("turbopump")
    return "turbopump" if found and os.path.samefile(found, program) else os.path.relpath(program)


def welcome(broker: Broker, name_server: str, data: str, health: str) -> str:
    store = os.path.abspath(broker.config.store.root_dir)
    rows = {
        "name server": name_server,
        "broker": f"{broker.config.identity.broker_name} at {broker.address}",
        "health": health,
        "data": data,
        "store": "" if store == os.path.join(data, "store") else store,
        "acknowledged": broker.acknowledgement,
    }
    namesrv_option = "" if name_server == f"{HERE_ONLY}:9876" else f" --namesrv {name_server}"
    command = command_line()
    return "\n".join(
        (
            f"Turbopump {turbopump.__version__} is ready.",
            "",
            *(row(label, text) for label, text in rows.items() if text),
            "",
            "To try it, in another terminal:",
            "",
            f'  {command} send hello "Hello, RocketMQ"{namesrv_option}',
            f"  {command} tail hello --from first{namesrv_option}",
            f"  export NAMESRV_ADDR={name_server}   # for mqadmin and every RocketMQ client: Java, Go, C++",
            "",
            "Ctrl-C stops it.",
        )
    )


def row(label: str, text: str) -> str:
    return textwrap.fill(text, WIDTH, initial_indent=f"  {label:<16}", subsequent_indent=" " * 18)
