"""Blocking clients of an embedded cluster: makes them, redirects, cuts off and kills them.

With the real clock they are plain blocking clients of this library, over the event loop that all of them
share. In virtual time they run in the loop of their cluster, which has the virtual clock.
"""

import concurrent.futures
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from turbopump.client import background
from turbopump.client.blocking.face import Core, Face
from turbopump.client.errors import NotRunning
from turbopump.testing.clients import PRODUCER_GROUP
from turbopump.testing.cluster import AsyncCluster
from turbopump.testing.thread import LoopThread

if TYPE_CHECKING:
    from turbopump import Admin, Consumer, Producer, PullConsumer

T = TypeVar("T")
C = TypeVar("C", bound=Core)
F = TypeVar("F", bound=Face[Any])


class ClusterClients:
    """The clients of a `Cluster`, which are closed with it."""

    def __init__(self, core: AsyncCluster) -> None:
        self._core = core
        self._thread: LoopThread | None = None
        self._made: list[Any] = []

    def producer(self, group: str = PRODUCER_GROUP, **settings: Any) -> "Producer":
        """Returns a `turbopump.Producer` of this cluster, to be used by `with`. Takes any of its settings."""
        from turbopump import Producer

        given = {**self._core.client_settings.of_producer(settings), **self._clients()}
        return self._keep(self._here(Producer)(group, **given))

    def consumer(self, group: str, **settings: Any) -> "Consumer":
        """Returns a `turbopump.Consumer` of this cluster: add handlers by `on`, then use `with`, or `start`.

        A new group begins with the first message of a topic.
        """
        return self._consumer((), group, settings)

    def self_starting_consumer(self, group: str, **settings: Any) -> "Consumer":
        """Returns a consumer that starts with its first handler, as the fixture `consumer` does."""
        return self._consumer((_SelfStarting,), group, settings)

    def _consumer(self, more: tuple[type, ...], group: str, settings: Mapping[str, Any]) -> "Consumer":
        from turbopump import Consumer

        given = {**self._core.client_settings.of_consumer(settings), **self._clients()}
        return self._keep(self._here(Consumer, *more)(group, **given))

    def pull_consumer(
        self, group: str, topics: Sequence[str] | Mapping[str, str] = (), **settings: Any
    ) -> "PullConsumer":
        """Returns a `turbopump.PullConsumer` of this cluster, to be used by `with`.

        A new group begins with the first message of a topic.
        """
        from turbopump import PullConsumer

        given = {**self._core.client_settings.of_pull_consumer(settings), **self._clients()}
        return self._keep(self._here(PullConsumer)(group, topics=topics, **given))

    def admin(self) -> "Admin":
        """Returns a `turbopump.Admin` of this cluster, to be used by `with`."""
        from turbopump import Admin

        return self._keep(self._here(Admin)(**self._clients()))

    @contextlib.contextmanager
    def as_default(self) -> Iterator[None]:
        """Connects blocking clients created in the `with` block to this cluster, whatever their addresses.

        Any code may create them; their `name_servers` is ignored, so the program under test needs no change.

        >>> with cluster.as_default():
        ...     program.main()
        """
        from turbopump.testing.redirection import redirected, redirected_faces

        with redirected(self._clients, self._core.watch), redirected_faces(self._here, self._keep):
            yield

    def kill_client(self, client: object) -> None:
        """Kills a client as SIGKILL does: connections break, it sends nothing more. Only in virtual time.

        There each client has its own address.
        """
        self._call(_done(lambda: self._core.kill_client(client)))

    def cut_off(self, client: object) -> None:
        """Cuts a client off the network: nothing passes, and no side is notified. Only in virtual time."""
        self._call(_done(lambda: self._core.cut_off(client)))

    def rejoin(self, client: object) -> None:
        """Ends `cut_off`: the client can reach the servers again."""
        self._call(_done(lambda: self._core.rejoin(client)))

    def _clients(self) -> dict[str, Any]:
        if self._core.is_virtual:
            return self._core.client_settings.of_client()
        return {"name_servers": self._core.name_servers, "world": None}

    def _here(self, face: type[F], *more: type) -> type[F]:
        """Returns the client class with the mixins `more`, and in virtual time `_OnThread`."""
        if self._core.is_virtual:
            more = (*more, _OnThread)
        return type(face.__name__, (*more, face), {"_thread": self._thread}) if more else face

    def _keep(self, client: T) -> T:
        self._made.append(client)
        return client

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self._thread is None:
            coroutine.close()
            raise NotRunning("the cluster is not running; use `with Cluster() as cluster`")
        return self._thread.call(coroutine)


class _OnThread(Face[C]):
    """Mixin for a blocking client whose async core runs in the event loop of its cluster.

    Others run in the loop that all blocking clients share.
    """

    _thread: LoopThread

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        background.refuse_inside_loop(coroutine)
        return self._thread.call(coroutine)

    def _submit(self, call: Callable[[C], Awaitable[T]]) -> concurrent.futures.Future[T]:
        return self._thread.submit(self._awaited(self._core, call))

    def _keep(self, core: C) -> background.OpenClient:
        return background.OpenClient(core.close, self._patience_s)  # the cluster closes it

    def _iterate(self, items: Callable[[C], AsyncIterator[T]]) -> Iterator[T]:
        walk = self._called_items(items)
        end = object()
        while (item := self._wait(_next(walk, end))) is not end:
            yield item  # type: ignore[misc]


class _SelfStarting:
    """Mixin that starts a blocking consumer when its first handler is registered."""

    def on(self, *args: Any, **options: Any) -> Callable[[T], T]:
        register: Callable[[T], T] = super().on(*args, **options)  # type: ignore[misc]

        def started(handler: T) -> T:
            register(handler)
            self._start_once()
            return handler

        return started

    def subscribe(self, *args: Any, **options: Any) -> None:
        super().subscribe(*args, **options)  # type: ignore[misc]
        self._start_once()

    def _start_once(self) -> None:
        if self._open is None:  # type: ignore[attr-defined]
            self.__enter__()  # type: ignore[attr-defined]


async def _done(what: Callable[[], None]) -> None:
    """Coroutine that calls `what`, to run it in the loop's thread, which owns the state that it changes."""
    what()


async def _next(items: AsyncIterator[T], end: object) -> T | object:
    return await anext(items, end)
