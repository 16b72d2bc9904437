"""Attributes of topics and groups: which exist, and how `+message.type=FIFO,-reserve.time` changes them.

Pure; refusals carry Apache's remarks and code.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from turbopump.protocol.errors import SystemFailure
from turbopump.protocol.inner import OF_BATCHES, QUEUE_TYPE

MESSAGE_TYPE = "message.type"


@dataclass(frozen=True, slots=True)
class AttributeKind:
    """The values that an attribute accepts (a list or a range of numbers), and whether it can be changed."""

    values: tuple[str, ...] = ()
    low: int = 0
    high: int = 0
    changeable: bool = True
    not_yet: tuple[str, ...] = ()  # values of Apache that this broker does not support


OF_TOPICS: dict[str, AttributeKind] = {
    QUEUE_TYPE: AttributeKind(("SimpleCQ", OF_BATCHES), changeable=False),
    "cleanup.policy": AttributeKind(("DELETE", "COMPACTION"), changeable=False, not_yet=("COMPACTION",)),
    MESSAGE_TYPE: AttributeKind(
        ("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", "PRIORITY", "LITE"),
        not_yet=("LITE",),
    ),
    "reserve.time": AttributeKind(low=-1, high=2**63 - 1),
    "lite.topic.expiration": AttributeKind(low=-1, high=43_200),
}
OF_GROUPS: dict[str, AttributeKind] = {"priority.factor": AttributeKind(low=0, high=100)}


def parse_changes(text: str | None) -> dict[str, str]:
    """Parses `+key=value,-key` into {"+key": "value", "-key": ""}. Raises SystemFailure for other formats."""
    changes: dict[str, str] = {}
    for item in (text or "").split(","):
        if not item:
            continue
        key, equals, value = item.partition("=")
        if equals and "+" not in key:
            raise SystemFailure(f"add/alter attribute format is wrong: {key}")
        if not equals and "-" not in key:
            raise SystemFailure(f"delete attribute format is wrong: {key}")
        if key in changes:
            raise SystemFailure(f"key duplication: {key}")
        changes[key] = value
    return changes


def altered(
    current: Mapping[str, str] | None,
    changes: Mapping[str, str],
    kinds: Mapping[str, AttributeKind] = OF_TOPICS,
) -> dict[str, str]:
    """Returns a copy of `current` with `changes` applied. Raises SystemFailure for one that is not allowed.

    `changes` is what `parse_changes` returns; `current` is None while the topic or group is created.
    """
    after = dict(current or {})
    seen: set[str] = set()
    for signed, value in changes.items():
        sign, key = signed[:1], signed[1:]
        if not key or "+" in key or "-" in key:
            raise SystemFailure("kv string format wrong.")
        if key in seen:
            raise SystemFailure(f"alter duplication key. key: {key}")
        seen.add(key)
        _check_sign(sign, key, current)
        _check_kind(kinds, sign, key, value, creating=current is None)
        if sign == "+":
            after[key] = value
        else:
            del after[key]
    return after


def _check_sign(sign: str, key: str, current: Mapping[str, str] | None) -> None:
    if current is None:
        if sign != "+":
            raise SystemFailure(f"only add attribute is supported while creating topic. key: {key}")
    elif sign not in ("+", "-"):
        raise SystemFailure(f"wrong format key: {key}")
    elif sign == "-" and key not in current:
        raise SystemFailure(f"attempt to delete a nonexistent key: {key}")


def _check_kind(kinds: Mapping[str, AttributeKind], sign: str, key: str, value: str, creating: bool) -> None:
    kind = kinds.get(key)
    if kind is None:
        raise SystemFailure(f"unsupported key: {key}")
    if not creating and not kind.changeable:
        raise SystemFailure(f"attempt to update an unchangeable attribute. key: {key}")
    if sign == "+":
        _check_value(kind, key, value)


def _check_value(kind: AttributeKind, key: str, value: str) -> None:
    if value in kind.not_yet:
        raise SystemFailure(f"{key}={value} is not supported yet")
    if kind.values:
        if value not in kind.values:
            raise SystemFailure(f"value is not in set: [{', '.join(kind.values)}]")
    elif not _is_in_range(value, kind):
        raise SystemFailure(f"value is not in range({kind.low}, {kind.high})")


def _is_in_range(value: str, kind: AttributeKind) -> bool:
    digits = value.removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) < 20 and kind.low <= int(value) <= kind.high
