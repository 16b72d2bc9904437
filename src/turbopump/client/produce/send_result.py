"""How a send ends: a `SendResult` from the broker's answer, or one `SendFailed` for all failed tries."""

import logging
from collections.abc import Sequence

from turbopump.client.counted_log import CountedLog
from turbopump.client.errors import SendFailed, SendRefused, SendTimedOut, Try
from turbopump.client.message import MessageQueue, SendResult, SendStatus
from turbopump.client.produce.prepared_send import PreparedSend
from turbopump.protocol.command import Command
from turbopump.protocol.errors import AccessRefused, Refused, refusal

log = logging.getLogger(__name__)
_levels = CountedLog(log)

CONNECT_FAILED, NO_ANSWER, BROKER_UNKNOWN, NO_NAME_SERVER, TOPIC_UNKNOWN = range(10001, 10006)
"""Apache's codes for failures that no broker answered."""

MASTER_AWAY = "master away"

APACHE_LEVELS = 18
STORED = {int(status.value): status for status in SendStatus}

ADVICE = {
    CONNECT_FAILED: "Check that the brokers run and that this client can reach their addresses (brokerIP1).",
    NO_ANSWER: "The message may be stored all the same. Give more time (timeout=, send_msg_timeout=), or set "
    "send_msg_max_timeout_per_request so that there is time for another broker.",
    NO_NAME_SERVER: "No name server says which brokers have the topic: check name_servers= and their logs.",
    BROKER_UNKNOWN: "Name servers know no address of this broker: does it run, and is it registered?",
    MASTER_AWAY: "Only slaves of the topic's brokers run, and they accept no messages: start the master, or "
    "make a slave the master (`turbopump promote`).",
}


class BrokerUnknown(ConnectionError):
    """Raised when no address of a broker's master is known."""


class MasterAway(SendFailed):
    """All brokers of the topic are without a master at the moment."""


def result_of(answer: Command, queue: MessageQueue, prepared: PreparedSend) -> SendResult:
    """Returns the result of a send by the broker's answer. Raises Refused when the message was not stored."""
    status = STORED.get(answer.code)
    if status is None:
        refused = refusal(answer.code, answer.remark)
        refused.add_note(f"refused by {queue.broker}, queue {queue.id} of {queue.topic}")
        raise refused
    ext = answer.ext or {}
    number = int(ext.get("queueId", queue.id))
    topic = prepared.message.topic
    if number != queue.id or topic != queue.topic:
        queue = MessageQueue(topic, queue.broker, number)
    level = ext.get("delayLevel")
    if prepared.message.delay_level:
        _warn_of_level(topic, prepared.message.delay_level, level)
    return SendResult(
        status,
        prepared.unique_key,
        ext.get("msgId", ""),
        queue,
        int(ext.get("queueOffset", "0")),
        ext.get("durability"),
        _number(ext.get("replicas")),
        ext.get("recallHandle"),
        _number(level),
        _number(ext.get("term")),
        _number(ext.get("index")),
    )


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _warn_of_level(topic: str, asked: int, applied: str | None) -> None:
    """Logs a warning when the broker lowers the delay level of a message to its highest one.

    Apache's brokers do not say which level they apply.
    """
    if applied is None and asked > APACHE_LEVELS:
        text = "delay_level=%d for %s is above Apache's 18 levels: the broker applies its highest one"
        _levels.log((topic, asked), text, asked, topic)
    elif applied is not None and applied != str(asked):
        text = "delay_level=%d for %s is above the broker's highest: level %s is applied (messageDelayLevel)"
        _levels.log((topic, asked), text, asked, topic, applied)


def failed(topic: str, tries: Sequence[Try], timed_out: bool) -> SendFailed:
    """Returns, for the caller to raise, the SendFailed (or its class) of a send, with code and advice."""
    last = tries[-1].failure if tries else None
    if timed_out or isinstance(last, TimeoutError):
        error: SendFailed = SendTimedOut(topic, tries, NO_ANSWER, ADVICE[NO_ANSWER])
    elif isinstance(last, AccessRefused):
        error = SendRefused(topic, tries, last)
    elif isinstance(last, Refused):
        error = SendFailed(topic, tries, last.code, "The brokers say why; see their logs for more.")
    else:
        code = BROKER_UNKNOWN if isinstance(last, BrokerUnknown) else CONNECT_FAILED
        error = SendFailed(topic, tries, code, ADVICE[code])
    error.__cause__ = last
    return error
