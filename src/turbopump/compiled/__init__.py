"""Compiled twins of the loops that a message costs most in: plain sends, groups of them, keys of the index.

In: the same objects that the Python loops work on. Out: the same bytes. Python remains the reference: what is
not plain is left to it, and without a compiler, or with TURBOPUMP_PURE=1 in the environment, it does
everything. Nothing here knows sockets, and nothing is remembered here.

    plain_sends.c   a read event's plain sends: twin of `broker/produce/plain_sends.py` and `store/append.py`
    groups.c        a batch send, half messages of a ledger: see `produce/send.py`, `ledger/send.py`
    commits.c       the commit of half messages: twin of `broker/transactions/ledger/settlement.py`
    appending.c     ... and of the loop in `append.py`, which all of these need
    send_header.c   the JSON header of a plain send
    pairs.c         ... its property string
    crc32.c         ... the checksum of its body
    answers.c       ... and its answer
    index_keys.c    keys that wait for the index: twin of `store/dispatch.py` and `store/index.py`
    attributes.c    reading and setting attributes of Python's objects
    twins.c         the module
"""

import os
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypedDict

PURE = "TURBOPUMP_PURE"

Arrivals = list[tuple[Any, int, int]]
"""Queue, next offset and tag code of each message that was appended."""

Taken = tuple[int, bytes, list[Any]]
"""What the plain sends of a read event came to: how many bytes they took of it, the answers, their queues."""


class PlainSends(Protocol):
    def take(self, data: bytes, born_host: bytes, arrivals: Arrivals | None, /) -> Taken | None:
        """Appends those at the front of `data`; None when there are none. `arrivals` gets a row for each."""


class Rules(TypedDict):
    """What makes a send plain, and how it is answered."""

    targets: dict[str, list[Any]]  # topic -> queues; of one that is missing nothing is taken
    not_plain: tuple[bytes, ...]  # properties that are treated in ways of their own
    added: bytes  # to the properties of each message
    hurried: tuple[bytes, ...]  # the parts of an answer to one that does not wait for flush and replica,
    waited: tuple[bytes, ...]  # and to one that does
    max_message_size: int
    max_frame: int


class Groups(Protocol):
    """Appends all of a group, or nothing and then the answer is None: something of it is not plain."""

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
        """A batch send: the ids with commas between, the first queue offset, and how many."""

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
        """Half messages: the first queue offset, of each log offset and topic, and where they end. `ask`:
        topic and bits of the sys flag by topic and queue id; it may refuse.
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
        """The messages of half messages in one file of the log, and op records: when each was born, and its
        queue. `ask`: the queue by topic and queue id, None if there can be none.
        """


PutKeys = Callable[..., tuple[int, int, int, int, int]]


class Twins(NamedTuple):
    plain_sends: Callable[..., PlainSends]
    groups: Callable[..., Groups]
    put_keys: PutKeys


def twins() -> Twins | None:
    """None: there are none on this machine, or the environment says to do without."""
    if os.environ.get(PURE, "0") not in ("", "0"):
        return None
    try:
        from turbopump.compiled import _twins
    except ImportError:
        return None
    return Twins(_twins.PlainSends, _twins.Groups, _twins.put_keys)
