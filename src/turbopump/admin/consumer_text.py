"""Formats groups and their members as Apache's tools print them."""

from collections.abc import Iterator

from turbopump.admin.message_text import map_text
from turbopump.admin.render import TextTable, compact_moment
from turbopump.protocol import bodies
from turbopump.protocol.bodies import ConsumerRunningInfo, GroupRetryPolicy, SubscriptionGroupConfig

STUCK_MS = 60_000

GROUP_FIELDS = (
    "groupName",
    "consumeEnable",
    "consumeFromMinEnable",
    "consumeBroadcastEnable",
    "consumeMessageOrderly",
    "retryQueueNums",
    "retryMaxTimes",
    "groupRetryPolicy",
    "brokerId",
    "whichBrokerWhenConsumeSlowly",
    "notifyConsumerIdsChangedEnable",
    "groupSysFlag",
    "consumeTimeoutMinute",
    "subscriptionDataSet",
    "attributes",
)
"""Fields in the order of Java's class."""


def group_text(config: SubscriptionGroupConfig) -> str:
    values = [f"{name}={group_value(config, name) or 'null'}" for name in GROUP_FIELDS]
    return f"SubscriptionGroupConfig{{{', '.join(values)}}}"


def group_value(config: SubscriptionGroupConfig, name: str) -> str:
    """Formats one field of a group's configuration as text; empty if it is absent."""
    value = getattr(config, name)
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case GroupRetryPolicy():
            return policy_text(value)
        case dict():
            return map_text(value)
        case list():
            return f"[{', '.join(map(subscription_text, value))}]"
        case _:
            return str(value)


def policy_text(policy: GroupRetryPolicy) -> str:
    exponential, customized = policy.exponentialRetryPolicy, policy.customizedRetryPolicy
    shown = {
        "type": policy.type,
        "exponentialRetryPolicy": "null"
        if exponential is None
        else f"ExponentialRetryPolicy{{initial={exponential.initial}, max={exponential.max}, "
        f"multiplier={exponential.multiplier}}}",
        "customizedRetryPolicy": "null"
        if customized is None
        else f"CustomizedRetryPolicy{{next={customized.next}}}",
    }
    return f"GroupRetryPolicy{{{', '.join(f'{name}={value}' for name, value in shown.items())}}}"


def subscription_text(data: bodies.SimpleSubscriptionData) -> str:
    return (
        f"SimpleSubscriptionData{{topic={data.topic}, expressionType={data.expressionType}, "
        f"expression={data.expression}, version={data.version}}}"
    )


# --- the state of a member -----------------------------------------------------------------------

OFFSETS = TextTable(
    "%-64s  %-32s  %-4s  %-20s",
    ("#Topic", "#Broker Name", "#QID", "#Consumer Offset"),
    "%-32s  %-32s  %-4d  %-20d",
)
DETAIL = TextTable(
    "%-64s  %-32s  %-4s  %-20s",
    ("#Topic", "#Broker Name", "#QID", "#ProcessQueueInfo"),
    "%-64s  %-32s  %-4d  %s",
)
POP_DETAIL = TextTable(
    "%-32s  %-32s  %-4s  %-20s",
    ("#Topic", "#Broker Name", "#QID", "#ProcessQueueInfo"),
    "%-32s  %-32s  %-4d  %s",
)
RATES = TextTable(
    "%-64s  %14s %14s %14s %14s %18s %25s",
    (
        *("#Topic", "#Pull RT", "#Pull TPS", "#Consume RT", "#ConsumeOK TPS"),
        *("#ConsumeFailed TPS", "#ConsumeFailedMsgsInHour"),
    ),
    "%-32s  %14.2f %14.2f %14.2f %14.2f %18.2f %25d",
)


def running_lines(info: ConsumerRunningInfo) -> Iterator[str]:
    yield "#Consumer Properties#"
    for name, value in info.properties.items():
        yield f"{name:<40}: {value}"
    yield from ("", "", "#Consumer Subscription#")
    for number, one in enumerate(sorted(info.subscriptionSet, key=lambda one: one.topic), 1):
        mode = str(one.classFilterMode).lower()
        yield f"{number:03d} Topic: {one.topic:<40} ClassFilter: {mode:<8} SubExpression: {one.subString}"
    queues = sorted(info.mqTable.items())
    yield from ("", "", "#Consumer Offset#")
    yield from OFFSETS.lines(
        (queue.topic, queue.brokerName, queue.queueId, held.commitOffset) for queue, held in queues
    )
    yield from ("", "", "#Consumer MQ Detail#")
    yield from DETAIL.lines(
        (queue.topic, queue.brokerName, queue.queueId, held_text(held)) for queue, held in queues
    )
    yield from ("", "", "#Consumer Pop Detail#")
    yield from POP_DETAIL.lines(
        (queue.topic, queue.brokerName, queue.queueId, pop_text(held))
        for queue, held in sorted((info.mqPopTable or {}).items())
    )
    yield from ("", "", "#Consumer RT&TPS#")
    yield from RATES.lines(
        (
            *(topic, one.pullRT, one.pullTPS, one.consumeRT, one.consumeOKTPS),
            *(one.consumeFailedTPS, one.consumeFailedMsgs),
        )
        for topic, one in sorted(info.statusTable.items())
    )
    yield from ("", "", "#User Consume Info#")
    for name, value in (info.userConsumerInfo or {}).items():
        yield f"{name:<40}: {value}"
    if info.jstack is not None:
        yield from ("", "", "#Consumer jstack#", info.jstack)


def held_text(held: bodies.ProcessQueueInfo) -> str:
    shown = {
        "commitOffset": held.commitOffset,
        "cachedMsgMinOffset": held.cachedMsgMinOffset,
        "cachedMsgMaxOffset": held.cachedMsgMaxOffset,
        "cachedMsgCount": held.cachedMsgCount,
        "cachedMsgSizeInMiB": held.cachedMsgSizeInMiB,
        "transactionMsgMinOffset": held.transactionMsgMinOffset,
        "transactionMsgMaxOffset": held.transactionMsgMaxOffset,
        "transactionMsgCount": held.transactionMsgCount,
        "locked": str(held.locked).lower(),
        "tryUnlockTimes": held.tryUnlockTimes,
        "lastLockTimestamp": compact_moment(held.lastLockTimestamp),
        "droped": str(held.droped).lower(),
        "lastPullTimestamp": compact_moment(held.lastPullTimestamp),
        "lastConsumeTimestamp": compact_moment(held.lastConsumeTimestamp),
    }
    return f"ProcessQueueInfo [{', '.join(f'{name}={value}' for name, value in shown.items())}]"


def pop_text(held: bodies.PopProcessQueueInfo) -> str:
    return (
        f"PopProcessQueueInfo [waitAckCount:{held.waitAckCount}, droped:{str(held.droped).lower()}, "
        f"lastPopTimestamp:{held.lastPopTimestamp}]"
    )


def troubles(client_id: str, info: ConsumerRunningInfo, now_ms: int) -> list[str]:
    """Returns a line for each queue of a push consumer that does not progress."""
    if info.properties.get("PROP_CONSUME_TYPE") != "CONSUME_PASSIVELY":
        return []
    is_orderly = info.properties.get("PROP_CONSUMEORDERLY") == "true"
    found = []
    for queue, held in sorted(info.mqTable.items()):
        name = f"MessageQueue [topic={queue.topic}, brokerName={queue.brokerName}, queueId={queue.queueId}]"
        silent_ms = now_ms - held.lastConsumeTimestamp
        if is_orderly and not held.locked:
            since_ms = now_ms - held.lastLockTimestamp
            found.append(f"{client_id} {name} can't lock for a while, {since_ms}ms")
        elif is_orderly and held.droped and held.tryUnlockTimes > 0:
            found.append(f"{client_id} {name} unlock {held.tryUnlockTimes} times, still failed")
        elif not is_orderly and silent_ms > STUCK_MS and held.cachedMsgCount > 0:
            found.append(f"{client_id} {name} can't consume for a while, maybe blocked, {silent_ms}ms")
    return found
