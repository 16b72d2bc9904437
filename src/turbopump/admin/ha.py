"""Commands for masters and slaves: how far the copies of a log are."""

from collections.abc import Iterator

from turbopump.admin.command import AdminCommand, Call, until_interrupted
from turbopump.admin.options import host_port, number, optional, text
from turbopump.admin.render import TextTable, moment
from turbopump.protocol.bodies import HARuntimeInfo

CLUSTER = optional("c", "clusterName", "which cluster", text)
BROKER = optional("b", "brokerAddr", "which broker to fetch", host_port)
INTERVAL = optional("i", "interval", "the interval(second) of get info", number)

SLAVES = TextTable(
    "%-32s  %-16s %16s %16s %16s %16s",
    ("#SlaveAddr", "#SlaveAckOffset", "#Diff", "#TransferSpeed(KB/s)", "#Status", "#TransferFromWhere"),
    "%-32s  %-16d %16d %16.2f %16s %16d",
)


async def ha_status(call: Call) -> None:
    """Shows the slaves of masters, or the master of a slave; with an interval repeatedly."""
    interval_s = call.given[INTERVAL]
    if interval_s is None:
        await show_status(call)
        return
    with until_interrupted():
        while True:
            await show_status(call)
            await call.admin.clock.sleep(interval_s)


async def show_status(call: Call) -> None:
    broker, cluster = call.given[BROKER], call.given[CLUSTER]
    if broker:
        addresses = [broker]
    else:
        assert cluster is not None, "one of -b and -c was given"
        addresses = (await call.admin.clusters.layout()).masters(cluster)
    documents = []
    for address in addresses:
        status = await call.admin.brokers.ha_status(address)
        for line in lines_of(address, status):
            call.out.line(line)
        documents.append({"address": address, "status": status})
    call.out.show({"brokers": documents}, [])


def lines_of(address: str, status: HARuntimeInfo) -> Iterator[str]:
    yield ""
    if status.master:
        slaves = status.haConnectionInfo
        yield f"#MasterAddr\t{address}"
        yield f"#MasterCommitLogMaxOffset\t{status.masterCommitLogMaxOffset}"
        yield f"#SlaveNum\t{len(slaves)}"
        yield f"#InSyncSlaveNum\t{status.inSyncSlaveNums}"
        yield from SLAVES.lines(
            (
                slave.addr,
                slave.slaveAckOffset,
                slave.diff,
                slave.transferredByteInSecond / 1024,
                "OK" if slave.inSync else "Fall Behind",
                slave.transferFromWhere,
            )
            for slave in slaves
        )
        return
    client = status.haClientRuntimeInfo
    yield f"#MasterAddr\t{client.masterAddr}"
    yield f"#CommitLogMaxOffset\t{client.maxOffset}"
    yield f"#TransferSpeed(KB/s)\t{client.transferredByteInSecond / 1024:.2f}"
    yield f"#LastReadTime\t{moment(client.lastReadTimestamp)}"
    yield f"#LastWriteTime\t{moment(client.lastWriteTimestamp)}"
    yield f"#MasterFlushOffset\t{client.masterFlushOffset}"


COMMANDS = (
    AdminCommand(
        "haStatus",
        "Fetch ha runtime status data.",
        ha_status,
        (INTERVAL,),
        any_of=(BROKER, CLUSTER),
        aliases=("getBrokerHAStatus",),
    ),
)
