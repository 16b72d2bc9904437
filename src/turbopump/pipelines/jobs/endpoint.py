"""Parses where a job reads or writes: `topic:Orders`, `log:data/store`, `delta:lake/orders`. Pure."""

import os
from dataclasses import dataclass

from turbopump.protocol.names import dlq_topic, retry_topic

READ_FROM = ("topic", "log", "delta", "parquet", "dlq")
WRITE_TO = ("topic", "group", "delta", "parquet")
FILES = ("log", "delta", "parquet")
PARTS = ("topic", "date", "hour")  # partition columns that a table may have


@dataclass(frozen=True, slots=True)
class JobEndpoint:
    """A source or target of a job: its kind (topic, group, dlq, log, delta, parquet) and its name."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @property
    def topic(self) -> str:
        """The topic's name; for kind `group` its retry topic, for kind `dlq` its dead-letter topic."""
        names = {"group": retry_topic(self.name), "dlq": dlq_topic(self.name)}
        return names.get(self.kind, self.name)

    @property
    def is_topic(self) -> bool:
        return self.kind in ("topic", "group", "dlq")


def source(text: str) -> JobEndpoint:
    """Parses a source such as `topic:Orders`. Raises ValueError for a kind that cannot be read."""
    return _end(text, READ_FROM)


def target(text: str) -> JobEndpoint:
    """Parses a target such as `delta:lake/orders`. Raises ValueError for a kind that cannot be written."""
    return _end(text, WRITE_TO)


def _end(text: str, kinds: tuple[str, ...]) -> JobEndpoint:
    kind, colon, name = text.partition(":")
    if not colon or kind not in kinds or not name.strip():
        raise ValueError(f"must be {', '.join(f'{kind}:NAME' for kind in kinds[:-1])} or {kinds[-1]}:NAME")
    return JobEndpoint(kind, _place(name.strip()) if kind in FILES else name.strip())


def _place(path: str) -> str:
    """Returns the path made absolute, since Spark's processes may run elsewhere; a URL as it is."""
    return path if "://" in path else os.path.abspath(path)
