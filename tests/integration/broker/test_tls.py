"""Our client with our name server and broker, over TLS on real sockets, on both event loops."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import uvloop
from tests.integration.broker.tls_files import Files

from turbopump.aio import Admin, Consumer, Message, MessageExt, Producer
from turbopump.broker.config import load
from turbopump.broker.server import Broker
from turbopump.errors import ClientError
from turbopump.namesrv.config import NamesrvConfig
from turbopump.namesrv.server import NameServer
from turbopump.runtime.chance import Chance
from turbopump.runtime.clock import SystemClock
from turbopump.runtime.disk import SystemDisk, SystemWorkers
from turbopump.runtime.network import SystemNetwork

HOST = "127.0.0.1"
PATIENCE_S = 60
LOOPS = pytest.mark.parametrize(
    "make_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
MakeLoop = Callable[[], asyncio.AbstractEventLoop]


@contextlib.asynccontextmanager
async def cluster(files: Files) -> AsyncIterator[tuple[NameServer, Broker]]:
    tls = files.servers()
    config = NamesrvConfig(listen_port=0, bind_address=HOST, http_port=0, tls=tls)
    servers = NameServer(config, SystemNetwork(), SystemClock(), SystemDisk())
    port = await servers.start()
    text = "".join(
        f"{line}\n"
        for line in (
            f"bindAddress={HOST}",
            f"brokerIP1={HOST}",
            "listenPort=0",
            f"namesrvAddr={HOST}:{port}",
            f"storePathRootDir={files.directory / 'store'}",
            "mappedFileSizeCommitLog=1048576",
            "maxHashSlotNum=100",
            "maxIndexNum=400",
            "brokerFastFailureEnable=false",
            "metricsExporterType=PROM",
            "metricsPromExporterPort=0",
            "tlsServerMode=enforcing",
            f"tlsServerCertPath={tls.cert_path}",
            "tlsServerNeedClientAuth=require",
            f"tlsServerTrustCertPath={tls.trust_path}",
            "tlsEnable=true",
            f"tlsClientCertPath={tls.client_cert_path}",
            f"tlsClientTrustCertPath={tls.client_trust_path}",
            "tlsHttpMode=enforcing",
        )
    )
    workers = SystemWorkers()
    broker = Broker(load(text).config, SystemNetwork(), SystemClock(), SystemDisk(), workers, Chance(1))
    await broker.start()
    try:
        yield servers, broker
    finally:
        await broker.stop()
        await servers.stop(0)
        workers.close()


def run(make_loop: MakeLoop, scene: Callable[[], object]) -> None:
    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(asyncio.wait_for(scene(), PATIENCE_S))  # type: ignore[arg-type]


@LOOPS
def test_messages_are_sent_and_consumed_over_mutual_tls(make_loop: MakeLoop, tmp_path: Path) -> None:
    files = Files.written(tmp_path)

    async def scene() -> None:
        async with cluster(files) as (servers, _):
            where = {"name_servers": f"{HOST}:{servers.port}", **files.client("alice")}
            read: list[str] = []
            done = asyncio.Event()

            async def handle(message: MessageExt) -> None:
                read.append(message.text)
                if len(read) == 50:
                    done.set()

            async with Admin(**where) as admin:  # type: ignore[arg-type]
                await admin.topics.create("orders", queues=4)
            async with Producer("makers", **where) as producer:  # type: ignore[arg-type]
                await producer.send(Message("large", bytes(3_000_000)))
                consumer = Consumer("readers", **where)  # type: ignore[arg-type]
                consumer.subscribe("orders", handle)
                async with consumer:
                    for number in range(50):
                        await producer.send(Message("orders", str(number).encode()))
                    await done.wait()
            assert sorted(map(int, read)) == list(range(50))

    run(make_loop, scene)


@LOOPS
@pytest.mark.parametrize("who", ["", "stranger"])
def test_a_client_without_a_good_certificate_learns_nothing(
    make_loop: MakeLoop, who: str, tmp_path: Path
) -> None:
    files = Files.written(tmp_path)

    async def scene() -> None:
        async with cluster(files) as (servers, _):
            where = {"name_servers": f"{HOST}:{servers.port}", **files.client(who)}
            async with Admin(**where) as admin:  # type: ignore[arg-type]
                with pytest.raises((ClientError, OSError)):
                    await admin.topics.names()

    run(make_loop, scene)


@LOOPS
def test_all_ports_of_a_broker_take_tls_alone(make_loop: MakeLoop, tmp_path: Path) -> None:
    files = Files.written(tmp_path)

    async def is_closed(port: int) -> bool:
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n" + bytes(40))
        with contextlib.suppress(ConnectionError):
            return await reader.read() == b""
        return True

    async def scene() -> None:
        async with cluster(files) as (servers, broker):
            ports = (
                servers.port,
                servers.http_port,
                broker.port,
                broker.port - 2,
                broker.port + 1,
                broker.metrics_port,
            )
            assert [await is_closed(port) for port in ports] == [True] * len(ports)
            context = ssl.create_default_context(cafile=files.path("ca"))
            context.load_cert_chain(files.path("alice"))
            for port, path in ((servers.http_port, "/health"), (broker.metrics_port, "/metrics")):
                reader, writer = await asyncio.open_connection(HOST, port, ssl=context)
                writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
                assert (await reader.read()).startswith(b"HTTP/1.1 200")

    run(make_loop, scene)
