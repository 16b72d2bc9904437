"""Where a job reads or writes, as one word: `topic:Orders`, `log:data/store`, `delta:lake/orders`. Pure."""

import os
from dataclasses import dataclass

from turbopump.protocol.names import dlq_topic, retry_topic

READ_FROM = ("topic", "log", "delta", "parquet", "dlq")
WRITE_TO = ("topic", "group", "delta", "parquet")
FILES = ("log", "delta", "parquet")
PARTS = ("topic", "date", "hour")  # partition columns that a table may have


@dataclass(frozen=True, slots=True)
class JobEndpoint:
    """A source or target of a job: its kind and its name."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @property
    def topic(self) -> str:
        """The topic of an endpoint that is one; for a group its retry topic, which it alone reads."""
        names = {"group": retry_topic(self.name), "dlq": dlq_topic(self.name)}
        return names.get(self.kind, self.name)

    @property
    def is_topic(self) -> bool:
        return self.kind in ("topic", "group", "dlq")


def source(text: str) -> JobEndpoint:
    """Reads the word of a source. Raises ValueError."""
    return _end(text, READ_FROM)


def target(text: str) -> JobEndpoint:
    """Reads the word of a target. Raises ValueError."""
    return _end(text, WRITE_TO)


def _end(text: str, kinds: tuple[str, ...]) -> JobEndpoint:
    kind, colon, name = text.partition(":")
    if not colon or kind not in kinds or not name.strip():
        raise ValueError(f"must be {', '.join(f'{kind}:NAME' for kind in kinds[:-1])} or {kinds[-1]}:NAME")
    return JobEndpoint(kind, _place(name.strip()) if kind in FILES else name.strip())


def _place(path: str) -> str:
    """Makes a path absolute: Spark's processes may run in other directories than this one."""
    return path if "://" in path else os.path.abspath(path)
