"""Commands for whole clusters: their brokers, load and send times."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta, timezone

import msgspec

from turbopump.admin.command import AdminCommand, Call, until_interrupted
from turbopump.admin.failures import line_of
from turbopump.admin.options import boolean, defaulting, flag, number, optional, text
from turbopump.admin.render import TextTable
from turbopump.admin.sending import GROUP, timed
from turbopump.client.admin import ServerUnreachable
from turbopump.client.admin.clusters import BrokerAt, Layout
from turbopump.client.message import Message
from turbopump.client.produce.sender import Sender
from turbopump.protocol.errors import Refused

# --- clusterList -----------------------------------------------------------------------------------------

MORE = flag("m", "moreStats", "Print more stats")
INTERVAL = optional("i", "interval", "specify intervals numbers, it is in seconds", number)
CLUSTER = optional("c", "clusterName", "which cluster", text)

BASE = TextTable(
    "%-22s  %-22s  %-4s  %-22s %-16s  %16s  %30s  %-22s  %-11s  %-12s  %-8s  %-10s",
    (
        *("#Cluster Name", "#Broker Name", "#BID", "#Addr", "#Version", "#InTPS(LOAD)", "#OutTPS(LOAD)"),
        *("#Timer(Progress)", "#PCWait(ms)", "#Hour", "#SPACE", "#ACTIVATED"),
    ),
    "%-22s  %-22s  %-4s  %-22s %-16s  %16s  %30s  %-22s  %11s  %-12s  %-8s  %10s",
)
MORE_STATS = TextTable(
    "%-16s  %-32s %14s %14s %14s %14s",
    ("#Cluster Name", "#Broker Name", "#InTotalYest", "#OutTotalYest", "#InTotalToday", "#OutTotalToday"),
)


async def cluster_list(call: Call) -> None:
    """Runs `clusterList`: prints brokers and their load, once or every `interval` seconds until Ctrl-C."""
    interval_s = call.given[INTERVAL]
    if interval_s is None:
        await show_cluster(call)
        return
    with until_interrupted():
        while True:
            await show_cluster(call)
            await call.admin.clock.sleep(interval_s)


async def show_cluster(call: Call) -> None:
    brokers = wanted(await call.admin.clusters.layout(), call.given[CLUSTER])
    found = [
        LoadFigures(broker, await figures_of(call, broker), call.admin.clock.now_ms()) for broker in brokers
    ]
    document = {"brokers": [load.document() for load in found]}
    if call.given[MORE]:
        lines = MORE_STATS.lines(load.more_row() for load in found)
    else:
        lines = BASE.lines(load.row() for load in found)
    call.out.show(document, lines)


def wanted(layout: Layout, cluster: str | None) -> Sequence[BrokerAt]:
    return layout.of_cluster(cluster) if cluster else layout.brokers


async def figures_of(call: Call, broker: BrokerAt) -> dict[str, str]:
    """Returns a broker's runtime figures; {}, after a printed warning, if it is unreachable or refuses."""
    try:
        return await call.admin.brokers.figures(broker.address)
    except (ServerUnreachable, Refused) as error:
        call.out.warn(line_of(error))
        return {}


class BrokerLoad(msgspec.Struct, rename="camel"):
    """A broker in the JSON of clusterList. A figure it did not send is None; rates and totals are then 0."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    version: str | None
    active: bool
    in_tps: float
    out_tps: float
    send_queue_size: int | None
    send_queue_wait_ms: int | None
    pull_queue_size: int | None
    pull_queue_wait_ms: int | None
    ack_queue_size: int | None
    ack_queue_wait_ms: int | None
    timer_read_behind: int | None
    timer_offset_behind: int | None
    timer_congest_num: int | None
    page_cache_lock_ms: int | None
    earliest_message_timestamp: int | None
    disk_ratio: float
    in_total_yesterday: int
    out_total_yesterday: int
    in_total_today: int
    out_total_today: int


class LoadFigures:
    """The load figures of one broker in clusterList, as a row of text and as a document."""

    def __init__(self, broker: BrokerAt, figures: dict[str, str], now_ms: int) -> None:
        self._broker = broker
        self._figures = figures
        self._now_ms = now_ms

    def row(self) -> tuple[object, ...]:
        figures = self._figures
        broker = self._broker
        earliest = self._whole("earliestMessageTimeStamp")
        hours = 0.0 if earliest is None else (self._now_ms - earliest) / 3_600_000
        behind = f"{self._whole('timerReadBehind') or 0}-{self._whole('timerOffsetBehind') or 0}"
        congested = (self._whole("timerCongestNum") or 0) / 10_000
        timer_tps = f"{self._rate('timerEnqueueTps'):.1f}, {self._rate('timerDequeueTps'):.1f}"
        return (
            broker.cluster,
            broker.name,
            broker.id,
            broker.address,
            figures.get("brokerVersionDesc", ""),
            f"{self._rate('putTps'):9.2f}({self._queue('send')})",
            f"{self._out_tps():9.2f}({self._queue('pull')}|{self._queue('ack', 'N')})",
            f"{behind}({congested:.1f}w, {timer_tps})",
            figures.get("pageCacheLockTimeMills", ""),
            f"{hours:.2f}",
            f"{self._rate('commitLogDiskRatio'):.4f}",
            figures.get("brokerActive") == "true",
        )

    def more_row(self) -> tuple[object, ...]:
        return (self._broker.cluster, self._broker.name, *self._totals())

    def document(self) -> BrokerLoad:
        in_yesterday, out_yesterday, in_today, out_today = self._totals()
        return BrokerLoad(
            cluster=self._broker.cluster,
            broker_name=self._broker.name,
            broker_id=self._broker.id,
            address=self._broker.address,
            version=self._figures.get("brokerVersionDesc"),
            active=self._figures.get("brokerActive") == "true",
            in_tps=self._rate("putTps"),
            out_tps=self._out_tps(),
            send_queue_size=self._whole("sendThreadPoolQueueSize"),
            send_queue_wait_ms=self._whole("sendThreadPoolQueueHeadWaitTimeMills"),
            pull_queue_size=self._whole("pullThreadPoolQueueSize"),
            pull_queue_wait_ms=self._whole("pullThreadPoolQueueHeadWaitTimeMills"),
            ack_queue_size=self._whole("ackThreadPoolQueueSize"),
            ack_queue_wait_ms=self._whole("ackThreadPoolQueueHeadWaitTimeMills"),
            timer_read_behind=self._whole("timerReadBehind"),
            timer_offset_behind=self._whole("timerOffsetBehind"),
            timer_congest_num=self._whole("timerCongestNum"),
            page_cache_lock_ms=self._whole("pageCacheLockTimeMills"),
            earliest_message_timestamp=self._whole("earliestMessageTimeStamp"),
            disk_ratio=self._rate("commitLogDiskRatio"),
            in_total_yesterday=in_yesterday,
            out_total_yesterday=out_yesterday,
            in_total_today=in_today,
            out_total_today=out_today,
        )

    def _totals(self) -> tuple[int, int, int, int]:
        def total(key: str) -> int:
            return self._whole(key) or 0

        put, got = "msgPutTotal", "msgGetTotal"
        return (
            total(f"{put}TodayMorning") - total(f"{put}YesterdayMorning"),
            total(f"{got}TodayMorning") - total(f"{got}YesterdayMorning"),
            total(f"{put}TodayNow") - total(f"{put}TodayMorning"),
            total(f"{got}TodayNow") - total(f"{got}TodayMorning"),
        )

    def _out_tps(self) -> float:
        """Returns the rate of messages read, whose key differs between 4.9 and 5.0."""
        return self._rate("getTransferredTps" if "getTransferredTps" in self._figures else "getTransferedTps")

    def _queue(self, kind: str, absent: str = "") -> str:
        size = self._figures.get(f"{kind}ThreadPoolQueueSize", absent)
        return f"{size},{self._figures.get(f'{kind}ThreadPoolQueueHeadWaitTimeMills', absent)}ms"

    def _rate(self, key: str) -> float:
        """Returns the first number of a figure such as `10.0 20.0 30.0`; 0.0 if it is absent or no number."""
        words = self._figures.get(key, "").split()
        try:
            return float(words[0]) if words else 0.0
        except ValueError:
            return 0.0

    def _whole(self, key: str) -> int | None:
        try:
            return int(self._figures[key])
        except (KeyError, ValueError):
            return None


# --- clusterRT -------------------------------------------------------------------------------------------

AMOUNT = defaulting("a", "amount", "message amount | default 100", number, 100)
SIZE = defaulting("s", "size", "message size | default 128 Byte", number, 128)
SEND_TO = optional("c", "cluster", "cluster name | default display all cluster", text)
AS_LOG = defaulting("p", "print log", "print as tlog | default false", boolean, False)
ROOM = defaulting("m", "machine room", "machine room name | default noname", text, "noname")
PAUSE = defaulting("i", "interval", "print interval | default 10 seconds", number, 10)

SEND_TIMES = TextTable(
    "%-24s  %-24s  %-4s  %-8s  %-8s",
    ("#Cluster Name", "#Broker Name", "#RT", "#successCount", "#failCount"),
    "%-24s  %-24s  %-8s  %-16s  %-16s",
)
BEIJING = timezone(timedelta(hours=8))  # the time zone of Apache's log format, everywhere


class SendTime(msgspec.Struct, rename="camel"):
    """The average send time of one broker in ms, in the JSON of clusterRT."""

    cluster: str
    broker_name: str
    rt_ms: float
    success_count: int
    fail_count: int


async def cluster_rt(call: Call) -> None:
    """Runs `clusterRT`: measures and prints each broker's average send time, in rounds until Ctrl-C."""
    producer = call.admin.producer(GROUP)
    brokers = wanted(await call.admin.clusters.layout(), call.given[SEND_TO])
    names = sorted({(broker.cluster, broker.name) for broker in brokers})
    if not call.given[AS_LOG]:
        call.out.line(SEND_TIMES.form % SEND_TIMES.headings)
    with until_interrupted():
        while True:
            found = [await send_time(call, producer, *name) for name in names]
            call.out.show({"brokers": found}, send_lines(call, found))
            await call.admin.clock.sleep(call.given[PAUSE])


async def send_time(call: Call, producer: Sender, cluster: str, broker: str) -> SendTime:
    """Measures sends to the topic with the broker's name; the first, which connects, is not averaged."""
    message = Message(broker, b"a" * call.given[SIZE])
    amount = call.given[AMOUNT]
    sends = [await timed(call.admin.clock, producer.send(message)) for _ in range(amount)]
    elapsed_ms = sum(send.elapsed_ms for send in sends[1:])
    done = sum(send.result is not None for send in sends)
    return SendTime(cluster, broker, elapsed_ms / max(amount - 1, 1), done, amount - done)


def send_lines(call: Call, found: Iterable[SendTime]) -> list[str]:
    if not call.given[AS_LOG]:
        return [
            SEND_TIMES.row(
                each.cluster, each.broker_name, f"{each.rt_ms:.2f}", each.success_count, each.fail_count
            )
            for each in found
        ]
    now = datetime.fromtimestamp(call.admin.clock.now_ms() / 1000, BEIJING).strftime("%Y-%m-%d %H:%M:%S")
    room = call.given[ROOM]
    return [f"{now}|{room}|{each.cluster}|{each.broker_name}|{each.rt_ms:.0f}" for each in found]


COMMANDS = (
    AdminCommand("clusterList", "List cluster infos.", cluster_list, (MORE, INTERVAL, CLUSTER)),
    AdminCommand(
        "clusterRT",
        "List All clusters Message Send RT.",
        cluster_rt,
        (AMOUNT, SIZE, SEND_TO, AS_LOG, ROOM, PAUSE),
    ),
)
