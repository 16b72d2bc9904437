"""Checks the fields of a message when a `Message` is made (client.md §3.1).

Values in, InvalidArgument out, which says what would be valid. `rules.py` checks what depends on the
producer, such as the longest body, when the message is sent.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from functools import lru_cache

from turbopump.client.errors import InvalidArgument
from turbopump.client.times import time_ms
from turbopump.protocol import names, properties
from turbopump.protocol.errors import InvalidParameter

I32_END = 1 << 31
MAX_DELAY_S = 1 << 50
PATH_SEPARATOR = "/"
TAG_OR = "||"
MAX_REMEMBERED = 1024  # topics and tags that passed the check; a program has few of them

TIMERS = frozenset({properties.TIMER_DELAY_SEC, properties.TIMER_DELAY_MS, properties.TIMER_DELIVER_MS})
OURS = {
    properties.TAGS: "give it as tags=",
    properties.KEYS: "give them as keys=",
    properties.DELAY: "give it as delay_level=",
    properties.WAIT: "give it as wait_store_ok=",
}
RESERVED = frozenset(
    {
        *OURS,
        properties.RETRY_TOPIC,
        properties.REAL_TOPIC,
        properties.REAL_QUEUE_ID,
        properties.TRANSACTION_PREPARED,
        properties.PRODUCER_GROUP,
        properties.MIN_OFFSET,
        properties.MAX_OFFSET,
        properties.ORIGIN_MESSAGE_ID,
        properties.TRANSFER_FLAG,
        properties.CORRECTION_FLAG,
        properties.MQ2_FLAG,
        properties.RECONSUME_TIME,
        properties.MAX_RECONSUME_TIMES,
        properties.MSG_REGION,
        properties.TRACE_ON,
        properties.EXTEND_UNIQ_INFO,
        properties.CONSUME_START_TIME,
        properties.DUP_INFO,
        properties.TRANSACTION_PREPARED_QUEUE_OFFSET,
        properties.INSTANCE_ID,
        properties.CORRELATION_ID,
        properties.REPLY_TO_CLIENT,
        properties.TTL,
        properties.ARRIVE_TIME,
        properties.PUSH_REPLY_TIME,
        properties.CLUSTER,
        properties.MESSAGE_TYPE,
        properties.POP_CK,
        properties.POP_CK_OFFSET,
        properties.FIRST_POP_TIME,
        properties.INNER_MULTI_QUEUE_OFFSET,
        properties.TIMER_ENQUEUE_MS,
        properties.TIMER_DEQUEUE_MS,
        properties.TIMER_ROLL_TIMES,
        properties.TIMER_OUT_MS,
        properties.TIMER_DEL_UNIQUE_KEY,
        properties.TIMER_DELAY_LEVEL,
        properties.BORN_HOST,
        properties.BORN_TIMESTAMP,
        properties.DLQ_ORIGIN_TOPIC,
        properties.DLQ_ORIGIN_MESSAGE_ID,
        properties.RECORD_CRC,
    }
)
"""Names of properties that clients and brokers set themselves. Allowed are those for which Java has setters
and this client has no argument: the timers, BUYER_ID, and UNIQ_KEY for sending the same message twice."""


def check_topic(topic: object) -> None:
    """Raises InvalidArgument unless `topic` is a text that a topic can have as its name."""
    if not isinstance(topic, str):
        raise InvalidArgument(f"topic must be text, got {type(topic).__name__}")
    check_name("topic", topic, names.check_topic)


check_topic_once = lru_cache(MAX_REMEMBERED)(check_topic)
"""`check_topic` with a cache: 0.05 µs for a text that was checked before."""


def check_name(kind: str, name: str, check: Callable[[str], None]) -> None:
    if not name or name.isspace():
        raise InvalidArgument(f"the {kind} must not be empty")
    try:
        check(name)
    except InvalidParameter:
        longest = names.MAX_GROUP_LENGTH if kind == "group" else names.MAX_TOPIC_LENGTH
        if len(name) > longest:
            raise InvalidArgument(
                f"the {kind} must have at most {longest} characters, got {len(name)}: {name[:40]}…"
            ) from None
        raise InvalidArgument(
            f"the {kind} must have only letters a-z A-Z, digits, % | _ and -, got {name!r}"
        ) from None


@lru_cache(MAX_REMEMBERED)
def check_tag(tag: str) -> None:
    """Raises InvalidArgument for a tag that no consumer could subscribe to."""
    _check_text("the tag", tag)
    if TAG_OR in tag:
        raise InvalidArgument(
            f"tags must be one tag, got {tag!r}: a message has one tag, only consumers name several with ||"
        )
    if tag != tag.strip():
        raise InvalidArgument(
            f"the tag must not begin or end with a blank, got {tag!r}: write {tag.strip()!r}"
        )


def check_keys(keys: Iterable[str]) -> None:
    for key in keys:
        if not isinstance(key, str):
            raise InvalidArgument(f"a key must be text, got {key!r}: write str(key)")
        if not key:
            raise InvalidArgument("a key must not be empty, got '': leave keys out when there is none")
        if key.split() != [key]:
            raise InvalidArgument(f"a key must not contain a blank, got {key!r}: give several keys as a list")
        _check_text("the key", key)


def check_properties(given: Mapping[str, str]) -> None:
    for name, value in given.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise InvalidArgument(f"properties must be text, got {value!r} for {name!r}")
        if name in RESERVED:
            raise InvalidArgument(
                f"the property {name} is reserved for the protocol: {OURS.get(name, 'choose another name')}"
            )
        if not name.strip() or not value.strip():
            raise InvalidArgument(f"a property must have a name and a value, got {name!r} and {value!r}")
        _check_text("the property", name)
        _check_text(f"the property {name}", value)
    if at := given.get(properties.TIMER_DELIVER_MS):
        time_ms(at, 0, properties.TIMER_DELIVER_MS)
    if PATH_SEPARATOR in given.get(properties.INNER_MULTI_DISPATCH, ""):
        raise InvalidArgument(f"{properties.INNER_MULTI_DISPATCH} must name queues without {PATH_SEPARATOR}")


def _check_text(what: str, text: str) -> None:
    if not isinstance(text, str):
        raise InvalidArgument(f"{what} must be text, got {type(text).__name__}")
    if properties.NAME_END in text or properties.PAIR_END in text:
        raise InvalidArgument(
            f"{what} must not contain \\x01 or \\x02, which separate properties, got {text!r}"
        )
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidArgument(f"{what} must be valid UTF-8, got {text!r}: {error.reason}") from None


def check_numbers(delay_level: int, flag: int) -> None:
    if not isinstance(delay_level, int) or not isinstance(flag, int):
        raise InvalidArgument(f"delay_level and flag must be whole numbers, got {delay_level!r} and {flag!r}")
    if delay_level < 0:
        raise InvalidArgument(
            f"delay_level must be 0 (no delay) or 1 to 18 (messageDelayLevel), got {delay_level}"
        )
    if not -I32_END <= flag < I32_END or delay_level >= I32_END:
        raise InvalidArgument(f"flag and delay_level must have at most 32 bits, got {flag} and {delay_level}")


def check_time(
    delay_level: int,
    delay: float | timedelta | None,
    deliver_at: datetime | int | None,
    given: Mapping[str, str],
) -> None:
    """Raises InvalidArgument unless at most one valid time of delivery is given."""
    given_times = [delay_level != 0, delay is not None, deliver_at is not None]
    if sum(given_times) > 1 or not TIMERS.isdisjoint(given):
        raise InvalidArgument("only one of delay_level=, delay= and deliver_at= may be given")
    if delay is not None and (
        isinstance(delay, bool) or not isinstance(delay, int | float | timedelta) or not _is_finite(delay)
    ):
        raise InvalidArgument(f"delay must be seconds or a timedelta, at least 0, got {delay!r}")
    if isinstance(deliver_at, timedelta):
        raise InvalidArgument(
            f"deliver_at must be a point in time, got {deliver_at!r}: write delay= for a time from now on"
        )
    if isinstance(deliver_at, str):
        raise InvalidArgument(
            f"deliver_at must be a datetime with a time zone or milliseconds since 1970, got {deliver_at!r}"
        )
    if deliver_at is not None:
        time_ms(deliver_at, 0, "deliver_at")


def check_priority(priority: int | None, is_delayed: bool) -> None:
    if isinstance(priority, bool) or not isinstance(priority, int) or not 0 <= priority < I32_END:
        raise InvalidArgument(f"priority must be a whole number, at least 0, got {priority!r}")
    if is_delayed:
        raise InvalidArgument("priority must not be given for a delayed message: brokers remove it")


def _is_finite(delay: float | timedelta) -> bool:
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    return 0 <= seconds < MAX_DELAY_S
