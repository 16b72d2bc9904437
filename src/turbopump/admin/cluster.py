"""Commands of whole clusters: who is there and how much they do."""

from turbopump.admin.command import Call, Command, until_interrupted
from turbopump.admin.options import number, optional, text
from turbopump.admin.render import Table
from turbopump.client.admin import Unreachable
from turbopump.client.admin.clusters import BrokerAt
from turbopump.protocol.errors import Refused

INTERVAL = optional("i", "interval", "specify intervals numbers, it is in seconds", number)
CLUSTER = optional("c", "clusterName", "which cluster", text)

BASE = Table(
    "%-22s  %-22s  %-4s  %-22s %-16s  %16s  %30s  %-22s  %-11s  %-12s  %-8s  %-10s",
    (
        *("#Cluster Name", "#Broker Name", "#BID", "#Addr", "#Version", "#InTPS(LOAD)", "#OutTPS(LOAD)"),
        *("#Timer(Progress)", "#PCWait(ms)", "#Hour", "#SPACE", "#ACTIVATED"),
    ),
    "%-22s  %-22s  %-4s  %-22s %-16s  %16s  %30s  %-22s  %11s  %-12s  %-8s  %10s",
)

Figures = dict[str, str]


async def cluster_list(call: Call) -> None:
    """With an interval again and again, a JSON document each time."""
    with until_interrupted():
        await cluster_rounds(call)


async def cluster_rounds(call: Call) -> None:
    while True:
        layout = await call.admin.clusters.layout()
        wanted = call.given[CLUSTER]
        brokers = layout.of_cluster(wanted) if wanted else list(layout.brokers)
        found = [(broker, await figures_of(call, broker)) for broker in brokers]
        now_ms = call.admin.clock.now_ms()
        documents = [document(broker, figures, now_ms) for broker, figures in found]
        call.out.show({"brokers": documents}, BASE.lines(base_row(each) for each in documents))
        interval_s = call.given[INTERVAL]
        if interval_s is None:
            return
        await call.admin.clock.sleep(interval_s)


async def figures_of(call: Call, broker: BrokerAt) -> Figures:
    """None for a broker that does not answer: its row stays, empty."""
    try:
        return await call.admin.brokers.figures(broker.address)
    except (Unreachable, Refused) as error:
        call.out.warn(str(error))
        return {}


def document(broker: BrokerAt, figures: Figures, now_ms: int) -> dict[str, object]:
    earliest = figures.get("earliestMessageTimeStamp") or "0"
    return {
        "cluster": broker.cluster,
        "brokerName": broker.name,
        "brokerId": broker.id,
        "address": broker.address,
        "version": figures.get("brokerVersionDesc", ""),
        "inTps": rate(figures.get("putTps")),
        "outTps": rate(figures.get("getTransferredTps")),
        "sendQueueSize": figures.get("sendThreadPoolQueueSize", ""),
        "active": figures.get("brokerActive") == "true",
        "hours": (now_ms - int(earliest)) / 3_600_000,
        "diskRatio": float(figures.get("commitLogDiskRatio") or 0),
    }


def rate(text: str | None) -> float:
    """The first of `10.0 20.0 30.0`: of the last ten seconds."""
    return float(text.split()[0]) if text and text.split() else 0.0


def base_row(shown: dict[str, object]) -> tuple[object, ...]:
    return (
        shown["cluster"],
        shown["brokerName"],
        shown["brokerId"],
        shown["address"],
        shown["version"],
        *("", "", "", ""),
        f"{shown['hours']:.2f}",
        f"{shown['diskRatio']:.4f}",
        shown["active"],
    )


COMMANDS = (Command("clusterList", "List cluster infos.", cluster_list, (INTERVAL, CLUSTER)),)
