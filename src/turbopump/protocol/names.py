"""Rules for the names of topics, groups and filter modules, and the names reserved by the system.

The checks raise `InvalidParameter` with the remark of Apache 5.5 (4.9 answers the same cases with code 1).
"""

import re
from typing import Final

from turbopump.protocol.errors import InvalidParameter

TAG: Final = "TAG"
SQL92: Final = "SQL92"
WASM: Final = "WASM"
"""Kinds of filter expressions: tags, a condition on properties, or the name of a WASM module (Turbopump)."""

MODULE_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)

RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"
LIGHT_PREFIX: Final = "%LMQ%"  # of light queues, which have no topic of their own
SYSTEM_PREFIX: Final = "rmq_sys_"
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
REPLY_POSTFIX: Final = "REPLY_TOPIC"

AUTO_CREATE_TOPIC: Final = "TBW102"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
BENCHMARK_TOPIC: Final = "BenchmarkTest"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
OFFSET_MOVED_TOPIC: Final = "OFFSET_MOVED_EVENT"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
CHECKPOINT_TOPIC: Final = "CHECKPOINT_TOPIC"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
LEDGER_TOPIC: Final = "rmq_sys_TURBOPUMP_LEDGER"
GLOBAL_TOPIC: Final = "rmq_sys_TURBOPUMP_GLOBAL"
TABLE_TOPIC: Final = "rmq_sys_TURBOPUMP_TABLES"
"""Tables of a DLedger group's leader, as records of its log: topics, groups, offsets, progress of delays."""
REVIVE_PREFIX: Final = "rmq_sys_REVIVE_LOG_"
SYNC_MEMBER_PREFIX: Final = "rmq_sys_SYNC_BROKER_MEMBER_"
ORDER_TOPIC_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"
KNOWN_BROKERS_NAMESPACE: Final = "TURBOPUMP_KNOWN_BROKERS"
"""Turbopump's name server: each broker that ever registered, with its cluster. Delete a key to forget it."""
ABSENT_BROKERS_NAMESPACE: Final = "TURBOPUMP_ABSENT_BROKERS"
"""Turbopump's name server, read only: topic -> `broker;broker`, the known brokers that are not registered now
and have the topic, or may have it. The key `*` means any topic."""
ANY_TOPIC: Final = "*"

MAX_TOPIC_LENGTH: Final = 127
MAX_RETRY_TOPIC_LENGTH: Final = 255
MAX_GROUP_LENGTH: Final = 120

SYSTEM_TOPICS: Final = frozenset(
    {
        AUTO_CREATE_TOPIC,
        SELF_TEST_TOPIC,
        BENCHMARK_TOPIC,
        SCHEDULE_TOPIC,
        OFFSET_MOVED_TOPIC,
        TRACE_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
        "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
        CHECK_MAX_TIME_TOPIC,
        CHECKPOINT_TOPIC,
    }
)
NOT_FOR_SENDERS: Final = frozenset(
    {
        *(SCHEDULE_TOPIC, HALF_TOPIC, OP_HALF_TOPIC, CHECK_MAX_TIME_TOPIC, SELF_TEST_TOPIC),
        *(OFFSET_MOVED_TOPIC, LEDGER_TOPIC, GLOBAL_TOPIC, TABLE_TOPIC),
    }
)
"""Topics to which clients must not send."""

SYSTEM_GROUPS: Final = frozenset(
    {
        "TOOLS_CONSUMER",
        "FILTERSRV_CONSUMER",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PULL",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
        "CID_RMQ_SYS_TRANS",
    }
)

_ALLOWED = re.compile(r"[%|a-zA-Z0-9_-]+")
_ALLOWED_TEXT = "^[%|a-zA-Z0-9_-]+$"


def check_topic(name: str) -> None:
    longest = MAX_RETRY_TOPIC_LENGTH if is_retry_or_dlq(name) else MAX_TOPIC_LENGTH
    _check("topic", name, longest)


def check_group(name: str) -> None:
    _check("group", name, MAX_GROUP_LENGTH)


def is_system_topic(name: str) -> bool:
    """Tells whether the protocol reserves the name; a broker adds its own name and that of its cluster."""
    return name in SYSTEM_TOPICS or name.startswith(SYSTEM_PREFIX)


def is_system_group(name: str) -> bool:
    return name in SYSTEM_GROUPS or name.startswith(SYSTEM_GROUP_PREFIX)


def is_retry_or_dlq(topic: str) -> bool:
    return topic.startswith((RETRY_PREFIX, DLQ_PREFIX))


def retry_topic(group: str) -> str:
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    return DLQ_PREFIX + group


def _check(kind: str, name: str, longest: int) -> None:
    if not name or name.isspace():
        raise InvalidParameter(f"The specified {kind} is blank.")
    if not _ALLOWED.fullmatch(name):
        raise InvalidParameter(
            f"The specified {kind}: {name}, contains illegal characters, allowing only {_ALLOWED_TEXT}"
        )
    if len(name) > longest:
        raise InvalidParameter(f"The specified {kind}: {name}, is longer than {kind} max length: {longest}")
