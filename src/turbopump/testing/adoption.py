"""Clients that a program makes for itself, wherever it makes them, become clients of an embedded cluster.

For a while the clients' constructors are replaced: whatever name servers the program names, it gets those of
the cluster, and in virtual time its clock and network too. Its own settings stay as they are.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest import mock

from turbopump.client.admin.admin import Admin
from turbopump.client.blocking.face import Face
from turbopump.client.produce.producer import Producer
from turbopump.client.pull.consumer import PullConsumer
from turbopump.client.push.consumer import Consumer

KINDS: Mapping[type, int] = {Producer: 1, Consumer: 1, PullConsumer: 1, Admin: 0}
"""The clients, with how many arguments come before the name servers: the group, if they have one."""


@contextlib.contextmanager
def adopted(place: Callable[[], Mapping[str, Any]], made: Callable[[Any], object]) -> Iterator[None]:
    """`place` gives arguments for a new client. `made` is told of each."""
    with contextlib.ExitStack() as stack:
        for kind, before in KINDS.items():
            stack.enter_context(mock.patch.object(kind, "__init__", _placed(kind, before, place, made)))
        yield


@contextlib.contextmanager
def adopted_faces(here: Callable[[type[Any]], type[Any]], made: Callable[[Any], object]) -> Iterator[None]:
    """Blocking clients become what `here` makes of their class."""
    original = Face.__init__

    @functools.wraps(original)
    def init(face: Any, *args: Any, **options: Any) -> None:
        original(face, *args, **options)
        face.__class__ = here(type(face))
        made(face)

    with mock.patch.object(Face, "__init__", init):
        yield


def _placed(
    kind: type[Any], before: int, place: Callable[[], Mapping[str, Any]], made: Callable[[Any], object]
) -> Callable[..., None]:
    original = kind.__init__

    @functools.wraps(original)
    def init(client: Any, *args: Any, **options: Any) -> None:
        original(client, *args[:before], **{**options, **place()})
        made(client)

    return init
