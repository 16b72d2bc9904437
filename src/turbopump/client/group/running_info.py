"""Makes the report of a consumer about itself that tools ask for (307), with Apache's names."""

import asyncio
import dataclasses
import io
import sys
import threading
import traceback
from collections.abc import Iterable, Mapping
from enum import Enum

from turbopump.client.group.consume_stats import TopicConsumeStats
from turbopump.client.group.subscription import Subscription
from turbopump.client.message import MessageQueue
from turbopump.client.push.process_queue import ProcessQueue
from turbopump.client.settings import SECRETS, ClientSettings
from turbopump.protocol import bodies

MIB = 1 << 20
MAX_FRAMES = 32


def running_info(
    properties: Mapping[str, str],
    subscriptions: Iterable[Subscription],
    held: Mapping[MessageQueue, ProcessQueue],
    stats: Mapping[str, TopicConsumeStats],
    now_s: float,
) -> bodies.ConsumerRunningInfo:
    return bodies.ConsumerRunningInfo(
        properties=dict(properties),
        subscriptionSet=[subscription.to_wire() for subscription in subscriptions],
        mqTable={queue.to_wire(): queue_info(one) for queue, one in sorted(held.items())},
        mqPopTable={},
        statusTable={topic: consume_status(of_topic, now_s) for topic, of_topic in sorted(stats.items())},
    )


def queue_info(held: ProcessQueue) -> bodies.ProcessQueueInfo:
    return bodies.ProcessQueueInfo(
        commitOffset=held.committable,
        cachedMsgCount=held.count,
        cachedMsgMinOffset=held.committable if held.count else 0,
        cachedMsgMaxOffset=held.newest,
        cachedMsgSizeInMiB=held.bytes // MIB,
        droped=held.dropped,
        locked=held.locked_at_s is not None,
        lastLockTimestamp=held.last_lock_ms,
        lastPullTimestamp=held.last_pull_ms,
        lastConsumeTimestamp=held.last_consume_ms,
    )


def consume_status(stats: TopicConsumeStats, now_s: float) -> bodies.ConsumeRates:
    return bodies.ConsumeRates(
        pullRT=stats.pulls.mean(now_s),
        pullTPS=stats.pulled.rate(now_s),
        consumeRT=stats.consumed.mean(now_s),
        consumeOKTPS=stats.consumed.rate(now_s),
        consumeFailedTPS=stats.failed.rate(now_s),
        consumeFailedMsgs=stats.failed_in_hour.count(now_s),
    )


def settings_as_text(settings: ClientSettings) -> dict[str, str]:
    """Returns all settings except those with passwords, as text, by the names and units of `settings.py`."""
    named = {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}
    return {name: _text(value) for name, value in named.items() if name not in SECRETS}


def _text(value: object) -> str:
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, bool):
        return str(value).lower()
    if callable(value):
        return getattr(value, "__name__", None) or type(value).__name__
    return str(value)


def stacks() -> str:
    """Returns the stacks of all threads of the process and all tasks of this loop, as text."""
    out = io.StringIO()
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        print(f"{names.get(ident, 'unknown')} TID: {ident}", file=out)
        print("".join(traceback.format_stack(frame)), file=out)
    for task in asyncio.all_tasks():
        print(f"task {task.get_name()}", file=out)
        task.print_stack(limit=MAX_FRAMES, file=out)
    return out.getvalue()
