"""`turbopump namesrv`, also called `mqnamesrv`: a name server in the foreground."""

import argparse
import contextlib
import os
from dataclasses import replace

from turbopump.cli import logs, serving
from turbopump.cli.conf import ConfFile
from turbopump.cli.process import serve
from turbopump.namesrv.config import NamesrvConfig, configure, properties
from turbopump.namesrv.server import NameServer
from turbopump.protocol.codes import RequestCode
from turbopump.runtime.clock import SystemClock
from turbopump.runtime.disk import SystemDisk
from turbopump.runtime.network import SystemNetwork


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-c", "--configFile", metavar="FILE", help="name server configuration (properties)")
    parser.add_argument(
        "-p", "--printConfigItem", action="store_true", help="print the configuration and exit"
    )
    parser.add_argument(
        "-n", "--namesrvAddr", metavar="ADDR", help="accepted, as by Apache's, without effect"
    )
    serving.add_argument(parser)
    logs.add_argument(parser)


def run(options: argparse.Namespace) -> int:
    config, warnings = load(ConfFile.read(options.configFile))
    if options.http_port >= 0:
        config = replace(config, http_port=options.http_port)
    if options.printConfigItem:
        print("".join(f"{name}={value}\n" for name, value in sorted(properties(config).items())), end="")
        return 0
    log = logs.open_logs(logs.directory(options.log_dir, os.environ), ("namesrv",))

    async def start(stack: contextlib.AsyncExitStack) -> None:
        for warning in warnings:
            log.warning(warning)
        port = await start_namesrv(stack, config)
        print(ready_line(config, port), flush=True)

    return serve(start)


def load(file: ConfFile) -> tuple[NamesrvConfig, list[str]]:
    with file.blamed():
        config, unknown = configure(NamesrvConfig.below(os.path.expanduser("~")), file.text)
    return config, [f"{file.path}: unknown key, no effect: {key}" for key in unknown]


async def start_namesrv(stack: contextlib.AsyncExitStack, config: NamesrvConfig, servers: int = 1) -> int:
    """Returns the port it serves on. Its stop is left on the stack. `servers` there are in this process."""
    server = NameServer(config, SystemNetwork(), SystemClock(), SystemDisk(), servers)
    port = await server.start()
    stack.push_async_callback(server.stop)
    await serving.prove(config.bind_address, port, RequestCode.GET_BROKER_CLUSTER_INFO)
    return port


def ready_line(config: NamesrvConfig, port: int) -> str:
    """In Apache's words, for those who wait for them."""
    return f"The Name Server boot success. serializeType=JSON, address {config.bind_address}:{port}"
