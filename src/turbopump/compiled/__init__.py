"""Compiled twins of the two loops that a message costs most in: plain sends, and keys of the index.

In: the same objects that the Python loops work on. Out: the same bytes. Python remains the reference: what is
not plain is left to it, and without a compiler, or with TURBOPUMP_PURE=1 in the environment, it does
everything. Nothing here knows sockets, and nothing is remembered here.

    plain_sends.c   a read event's plain sends: twin of `broker/send_many.py` and `store/append.py`
    send_header.c   ... the JSON header of one
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

Taken = tuple[int, bytes, list[Any]]
"""What the plain sends of a read event came to: how many bytes they took of it, the answers, their queues."""


class PlainSends(Protocol):
    def take(
        self, data: bytes, born_host: bytes, arrivals: list[tuple[Any, int, int]] | None, /
    ) -> Taken | None:
        """Appends those at the front of `data`; None when there are none. `arrivals`: gets queue, next offset
        and tag code of each.
        """


class Rules(TypedDict):
    """What makes a send plain, and how it is answered."""

    targets: dict[str, list[Any]]  # topic -> queues; of one that is missing nothing is taken
    not_plain: tuple[bytes, ...]  # properties that are treated in ways of their own
    added: bytes  # to the properties of each message
    hurried: tuple[bytes, ...]  # the parts of an answer to one that does not wait for flush and replica,
    waited: tuple[bytes, ...]  # and to one that does
    max_message_size: int
    max_frame: int


PutKeys = Callable[..., tuple[int, int, int, int, int]]


class Twins(NamedTuple):
    plain_sends: Callable[..., PlainSends]
    put_keys: PutKeys


def twins() -> Twins | None:
    """None: there are none on this machine, or the environment says to do without."""
    if os.environ.get(PURE, "0") not in ("", "0"):
        return None
    try:
        from turbopump.compiled._twins import PlainSends, put_keys
    except ImportError:
        return None
    return Twins(PlainSends, put_keys)
