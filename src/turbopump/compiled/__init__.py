"""Compiled twins of the most expensive loops per message: plain sends, batches, keys of the index.

In: the objects that the Python loops work on. Out: the same bytes. Python remains the reference: it handles
everything that is not plain, and all messages without a compiler or with TURBOPUMP_PURE=1 in the environment.
There are no sockets and no state here.

    plain_sends.c   a read event's plain sends: twin of `broker/produce/plain_sends.py` and `store/append.py`
    groups.c        batch sends, half messages of a ledger: see `produce/send.py`, `ledger/send.py`
    commits.c       the commit of half messages: twin of `broker/transactions/ledger/settlement.py`
    appending.c     ... and of the loop in `append.py`, used by all of these
    send_header.c   the JSON header of a plain send
    pairs.c         ... its property string
    crc32.c         ... the checksum of its body
    answers.c       ... and its answer
    index_keys.c    keys to be added to the index: twin of `store/dispatch.py` and `store/index.py`
    copied.c        records that a slave has copied: twin of `store/scan.py` and `store/dispatch.py`
    signed_sends.c  what was signed of a plain send: twin of `auth/signature.py`
    frames.h        frames of a read event
    attributes.c    reading and setting attributes of Python's objects
    twins.c         the module
"""

import os
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypedDict

PURE = "TURBOPUMP_PURE"

Arrivals = list[tuple[Any, int, int]]
"""Queue, next offset and tag code of each appended message."""

Taken = tuple[int, bytes, list[Any]]
"""Result of the plain sends of a read event: bytes consumed, answers, queues."""


class PlainSends(Protocol):
    """Protocol of the compiled appender of the plain sends of read events."""

    def take(self, data: bytes, born_host: bytes, arrivals: Arrivals | None, /) -> Taken | None:
        """Appends the plain sends at the front of `data`, with a row each in `arrivals`; None if none."""


class Rules(TypedDict):
    """Defines which sends are plain, and how they are answered."""

    targets: dict[str, list[Any]]  # topic -> queues; sends to other topics are not plain
    not_plain: tuple[bytes, ...]  # properties that need special handling
    added: bytes  # appended to the properties of each message
    hurried: tuple[bytes, ...]  # parts of the answer to a send that does not wait for flush and replica; ():
    # such sends are not plain
    waited: tuple[bytes, ...]  # parts of the answer to a send that waits
    max_message_size: int
    max_frame: int


class GroupAppender(Protocol):
    """Appends all messages of a group, or returns None if any of them is not plain."""

    def batch(
        self,
        body: bytes,
        queue: Any,
        sys_flag: int,
        reconsume_times: int,
        born_timestamp: int,
        born_host: bytes,
        not_plain: tuple[bytes, ...],
        largest: int,
        id_front: bytes,
        arrivals: Arrivals | None,
        /,
    ) -> tuple[str, int, int] | None:
        """Appends a batch send; returns joined ids, first queue offset and count; None: one is not plain."""

    def halves(
        self,
        body: bytes,
        queue: Any,
        added: bytes,
        born_timestamp: int,
        born_host: bytes,
        not_plain: tuple[bytes, ...],
        most: int,
        largest: int,
        most_properties: int,
        ask: Callable[[bytes, bytes], tuple[str, int]],
        arrivals: Arrivals | None,
        /,
    ) -> tuple[int, list[int], list[str], int] | None:
        """Appends half messages; returns first queue offset, log offsets, topics, end; None: one not plain.

        Log offset and topic are given for each, the end is a log offset. `ask` returns topic and bits of the
        sys flag by topic and queue id; it may refuse.
        """

    def commit(
        self,
        halves: list[Any],
        file: Any,
        base: int,
        op_queue: Any,
        op_properties: bytes,
        op_key: bytes,
        op_code: int,
        waiting: tuple[bytes, ...],
        not_plain: tuple[bytes, ...],
        ask: Callable[[bytes, bytes], Any],
        arrivals: Arrivals | None,
        /,
    ) -> tuple[list[int], list[Any]] | None:
        """Commits half messages of one log file; returns born time and queue of each; None: one is not plain.

        Appends the messages and their op records. `ask` returns the queue by topic and queue id, or None if
        there can be none.
        """


PutKeys = Callable[..., tuple[int, int, int, int, int]]
DispatchCopied = Callable[..., tuple[int, int, int]]
"""Returns the position behind the last plain record, its log offset (-1: there was none) and store time."""


SignedSend = tuple[int, str, bytes, str, bytes, int]
"""A signed plain send: size of its frame, access key, signature, topic, what was signed, size of its body."""


class Twins(NamedTuple):
    """The functions of the compiled module."""

    plain_sends: Callable[..., PlainSends]
    groups: Callable[..., GroupAppender]
    put_keys: PutKeys
    dispatch_copied: DispatchCopied
    signed_send: Callable[[bytes, int, int], SignedSend | None]
    """Reads the signed plain send at a position of a read event; None: it is left to Python."""


def twins() -> Twins | None:
    """Returns the compiled twins; None if they are not built or TURBOPUMP_PURE=1 is set."""
    if os.environ.get(PURE, "0") not in ("", "0"):
        return None
    try:
        from turbopump.compiled import _twins
    except ImportError:
        return None
    return Twins(
        _twins.PlainSends, _twins.Groups, _twins.put_keys, _twins.dispatch_copied, _twins.signed_send
    )
