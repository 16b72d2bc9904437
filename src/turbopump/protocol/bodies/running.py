"""Bodies about a running consumer: its state, as it reports it."""

from turbopump.protocol.bodies.base import Body, DialectBody, WireQueue, always, empty_list, empty_map
from turbopump.protocol.bodies.clients import SubscriptionData
from turbopump.protocol.headers.base import I32, I64


class ProcessQueueInfo(Body):
    """State of one queue of a consumer. `droped` is Java's spelling."""

    cachedMsgCount: I32 = always(0)
    cachedMsgMaxOffset: I64 = always(0)
    cachedMsgMinOffset: I64 = always(0)
    cachedMsgSizeInMiB: I32 = always(0)
    commitOffset: I64 = always(0)
    droped: bool = always(False)
    lastConsumeTimestamp: I64 = always(0)
    lastLockTimestamp: I64 = always(0)
    lastPullTimestamp: I64 = always(0)
    locked: bool = always(False)
    transactionMsgCount: I32 = always(0)
    transactionMsgMaxOffset: I64 = always(0)
    transactionMsgMinOffset: I64 = always(0)
    tryUnlockTimes: I64 = always(0)


class PopProcessQueueInfo(Body):
    droped: bool = always(False)
    lastPopTimestamp: I64 = always(0)
    waitAckCount: I32 = always(0)


class ConsumeRates(Body):
    consumeFailedMsgs: I64 = always(0)
    consumeFailedTPS: float = always(0.0)
    consumeOKTPS: float = always(0.0)
    consumeRT: float = always(0.0)
    pullRT: float = always(0.0)
    pullTPS: float = always(0.0)


class ConsumerRunningInfo(DialectBody):
    jstack: str | None = None
    mqPopTable: dict[WireQueue, PopProcessQueueInfo] | None = None
    mqTable: dict[WireQueue, ProcessQueueInfo] = empty_map()
    properties: dict[str, str] = empty_map()
    statusTable: dict[str, ConsumeRates] = empty_map()
    subscriptionSet: list[SubscriptionData] = empty_list()
    userConsumerInfo: dict[str, str] | None = None


class ConsumeMessageDirectlyResult(Body):
    autoCommit: bool = always(True)
    consumeResult: str | int | None = None
    order: bool = always(False)
    remark: str | None = None
    spentTimeMills: I64 = always(0)
