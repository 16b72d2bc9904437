"""Shows the state of the broker as a table of texts (28), with every key that Apache's tools read.

Values are measured or zero, never invented. There are no queues between threads here: requests that wait to
be handled are shown as the queue of sends, and the time spent waiting for the disk as the time that the log
is locked. Two kinds of keys are not Apache's: `storeTrouble` says why the store cannot be written to, and is
present only then; `replica…` is about copies of the log.
"""

from collections.abc import Callable, Mapping, Sequence

from turbopump.broker.delay.timer_counts import TimerProgress
from turbopump.broker.metrics.statistics import Statistics
from turbopump.broker.metrics.traffic import BUCKETS, Traffic
from turbopump.broker.storage import Storage
from turbopump.protocol.bodies import KVTable
from turbopump.protocol.codes import VERSION, RequestCode, version_name
from turbopump.remoting.router import Answer, Request, Route, Routes
from turbopump.remoting.server import Server
from turbopump.runtime.clock import Clock
from turbopump.runtime.disk import Usage

NO_POOL = 2**31 - 1  # Apache's way to say that there is no transient store pool to run out of
QUEUES = ("send", "pull", "litePull", "query", "ack")
NOT_THERE = {
    "EndTransactionQueueSize": "0",
    "EndTransactionThreadPoolQueueCapacity": "0",
    "dispatchMaxBuffer": "0",
    "pageCacheLockTimeMills": "0",
}
"""Keys of features and thread pools that this broker does not have; tools fail or print blanks without."""


class RuntimeHandler:
    """Handles requests for the broker's runtime table (28), which describes its state as texts by key."""

    def __init__(
        self,
        store: Storage,
        traffic: Traffic,
        statistics: Statistics,
        clock: Clock,
        usage: Callable[[str], Usage],
        accept_from_ms: int = 0,
        delayed: Callable[[], Mapping[int, tuple[int, int]]] = dict,
        servers: Sequence[Server] = (),
        timed: Callable[[], TimerProgress] = TimerProgress,
        replicas: Callable[[], dict[str, str]] = dict,
    ) -> None:
        """`delayed` returns by delay level the first offset that waits, and the end of the level's queue."""
        self._store = store
        self._traffic = traffic
        self._statistics = statistics
        self._clock = clock
        self._usage = usage
        self._accept_from_ms = accept_from_ms
        self._delayed = delayed
        self._servers = servers
        self._timed = timed
        self._replicas = replicas

    def routes(self) -> Routes:
        return {RequestCode.GET_BROKER_RUNTIME_INFO: Route(None, self.show)}

    async def show(self, request: Request[None]) -> Answer:
        await self._statistics.fold()
        return Answer(body=KVTable(table=self.table()).encode())

    def table(self) -> dict[str, str]:
        table = NOT_THERE | self._life() | self._puts() | self._totals() | self._rates() | self._disk()
        for queue in QUEUES:
            table[f"{queue}ThreadPoolQueueSize"] = "0"
            table[f"{queue}ThreadPoolQueueCapacity"] = "0"
            table[f"{queue}ThreadPoolQueueHeadWaitTimeMills"] = "0"
        table |= self._waits() | self._timers() | self._replicas()
        for level, (first, end) in self._delayed().items():
            table[f"scheduleMessageOffset_{level}"] = f"{first},{end}"
        return dict(sorted(table.items()))

    def _life(self) -> dict[str, str]:
        flags = self._store.flags
        life = {
            "bootTimestamp": str(self._traffic.booted_ms),
            "runtime": lasted(self._clock.now_ms() - self._traffic.booted_ms),
            "brokerActive": "false" if flags.blocked else "true",  # false on every slave, as with Apache
            "brokerVersion": str(VERSION),
            "brokerVersionDesc": version_name(VERSION),
            "startAcceptSendRequestTimeStamp": str(self._accept_from_ms),
        }
        return life if flags.fault is None else life | {"storeTrouble": flags.fault}

    def _waits(self) -> dict[str, str]:
        longest_s = max((server.waits_s for server in self._servers), default=0.0)
        return {
            "sendThreadPoolQueueSize": str(sum(server.waiting for server in self._servers)),
            "sendThreadPoolQueueHeadWaitTimeMills": str(int(longest_s * 1000)),
            "pageCacheLockTimeMills": str(int(self._store.flusher.waits_s * 1000)),
        }

    def _timers(self) -> dict[str, str]:
        timed = self._timed()
        return {
            "timerReadBehind": str(timed.behind_ms // 1000),
            "timerOffsetBehind": str(timed.queue_behind),
            "timerCongestNum": str(timed.waiting),
            "timerEnqueueTps": str(timed.taken_in_tps),
            "timerDequeueTps": str(timed.given_out_tps),
        }

    def _puts(self) -> dict[str, str]:
        traffic, store = self._traffic, self._store
        times = max(store.log.appended_messages, 1)  # at least 1, as with Apache: it is a divisor
        buckets = zip(BUCKETS, traffic.puts_by_time, strict=True)
        return {
            "putMessageTimesTotal": str(times),
            "putMessageFailedTimes": str(traffic.put_failures),
            "putMessageSizeTotal": str(store.log.appended_bytes),
            "putMessageAverageSize": str(store.log.appended_bytes / times),
            "putMessageEntireTimeMax": str(traffic.slowest_put_ms),
            "putMessageDistributeTime": " ".join(f"{name}:{count}" for name, count in buckets),
            "putLatency99": f"{traffic.put_latency_ms(0.99):.2f}",
            "putLatency999": f"{traffic.put_latency_ms(0.999):.2f}",
            "getMessageEntireTimeMax": str(traffic.slowest_get_ms),
        }

    def _totals(self) -> dict[str, str]:
        put, got = self._statistics.put_total, self._statistics.get_total
        return {
            "msgPutTotalYesterdayMorning": str(put.yesterday_morning),
            "msgPutTotalTodayMorning": str(put.this_morning),
            "msgPutTotalTodayNow": str(put.now),
            "msgGetTotalYesterdayMorning": str(got.yesterday_morning),
            "msgGetTotalTodayMorning": str(got.this_morning),
            "msgGetTotalTodayNow": str(got.now),
        }

    def _rates(self) -> dict[str, str]:
        traffic = self._traffic
        transferred = traffic.got_rates()
        return {
            "putTps": traffic.put_rates(),
            "getFoundTps": traffic.found_rates(),
            "getMissTps": traffic.missed_rates(),
            "getTotalTps": traffic.pull_rates(),
            "getTransferredTps": transferred,
            "getTransferedTps": transferred,  # 4.9's spelling
        }

    def _disk(self) -> dict[str, str]:
        store = self._store
        log_dir, queue_dir = store.config.log_dir, store.config.queue_dir
        log_usage = self._usage(log_dir)
        first = store.log.look_up(store.log.min_offset)
        buffers = store.log.pool_buffers_left
        return {
            "commitLogMinOffset": str(store.log.min_offset),
            "commitLogMaxOffset": str(store.log.end),
            "commitLogDiskRatio": str(log_usage.used_ratio),
            f"commitLogDiskRatio_{log_dir}": str(log_usage.used_ratio),
            "consumeQueueDiskRatio": str(self._usage(queue_dir).used_ratio),
            "commitLogDirCapacity": f"Total : {size(log_usage.total)}, Free : {size(log_usage.free)}.",
            "dispatchBehindBytes": str(store.log.end - store.log.dispatched),
            "remainHowManyDataToFlush": size(store.log.end - store.log.synced),
            "remainTransientStoreBufferNumbs": str(NO_POOL if buffers is None else buffers),
            "earliestMessageTimeStamp": str(first.store_timestamp if first else -1),
        }


def lasted(milliseconds: int) -> str:
    minutes, seconds = divmod(milliseconds // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def size(count: int) -> str:
    """Returns a number of bytes as text in Apache's form: `1.5 MiB`."""
    if count < 1024:
        return f"{count} B"
    amount = float(count)
    for unit in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        amount /= 1024
        if amount < 1024 or unit == "PiB":
            break
    return f"{amount:.1f} {unit}"
