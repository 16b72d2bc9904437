"""Redirects clients that a program creates to an embedded cluster, whatever name servers it gives.

The constructors of the clients are replaced for a while: new clients get the name servers of the cluster, and
in virtual time its clock and network too. Their other settings stay unchanged.
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
"""Client classes, with the number of arguments before the name servers: the group, if there is one."""


@contextlib.contextmanager
def redirected(place: Callable[[], Mapping[str, Any]], made: Callable[[Any], object]) -> Iterator[None]:
    """Context manager: new `turbopump.aio` clients get the arguments `place()` returns; `made` gets each."""
    with contextlib.ExitStack() as stack:
        for kind, before in KINDS.items():
            stack.enter_context(mock.patch.object(kind, "__init__", _placed(kind, before, place, made)))
        yield


@contextlib.contextmanager
def redirected_faces(here: Callable[[type[Any]], type[Any]], made: Callable[[Any], object]) -> Iterator[None]:
    """Context manager: the class of each new blocking client becomes `here(class)`; `made` gets each."""
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
