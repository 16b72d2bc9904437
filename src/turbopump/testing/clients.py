"""Clients of an embedded cluster for `async with`: makes them, redirects, cuts off and kills them."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from turbopump.client.admin import Admin
from turbopump.client.world import World
from turbopump.testing.client_settings import ClusterClientSettings
from turbopump.testing.failures import HandlerFailures
from turbopump.testing.network import Host, MemoryNetwork
from turbopump.testing.servers import HOST

if TYPE_CHECKING:
    from turbopump.client.produce.producer import Producer
    from turbopump.client.pull.consumer import PullConsumer
    from turbopump.client.push.consumer import Consumer

T = TypeVar("T")

PRODUCER_GROUP = "testing"


class AsyncClusterClients:
    """The clients of an `AsyncCluster`, which are closed with it."""

    client_settings: ClusterClientSettings
    _network: MemoryNetwork

    def __init__(self) -> None:
        self._made: list[_Closable] = []
        self.failures = HandlerFailures()
        """Exceptions of the handlers of its consumers."""

    def producer(self, group: str = PRODUCER_GROUP, **settings: Any) -> "Producer":
        """Returns a `turbopump.aio.Producer`, to be used by `async with`. Takes any of its settings."""
        from turbopump.client.produce.producer import Producer

        return self._keep(Producer(group, **self.client_settings.of_producer(settings)))

    def consumer(self, group: str, **settings: Any) -> "Consumer":
        """Returns a consumer: add handlers by `on`, then start. New groups begin with the first message."""
        from turbopump.client.push.consumer import Consumer

        return self._keep(Consumer(group, **self.client_settings.of_consumer(settings)))

    def pull_consumer(
        self, group: str, topics: Sequence[str] | Mapping[str, str] = (), **settings: Any
    ) -> "PullConsumer":
        """Returns a pull consumer. A new group begins with the first message of a topic."""
        from turbopump.client.pull.consumer import PullConsumer

        return self._keep(
            PullConsumer(group, topics=topics, **self.client_settings.of_pull_consumer(settings))
        )

    def admin(self) -> Admin:
        return self._keep(Admin(**self.client_settings.of_client()))

    @contextlib.contextmanager
    def as_default(self) -> Iterator[None]:
        """Connects async clients created in the `with` block to this cluster, whatever their addresses.

        Any code may create them; their `name_servers` is ignored, so the program under test needs no change.
        """
        from turbopump.testing.redirection import redirected

        with redirected(self.client_settings.of_client, lambda client: self.watch(self._keep(client))):
            yield

    def watch(self, client: object) -> None:
        """Records exceptions of the handlers of a consumer that the program under test created."""
        from turbopump.client.push.consumer import Consumer

        if isinstance(client, Consumer):
            client._hooks = (*client._hooks, self.failures)

    def kill_client(self, client: object) -> None:
        """Kills a client as SIGKILL does: connections break, it sends nothing more. Only in virtual time.

        There each client has its own address.
        """
        self.cut_off(client)
        self._network.break_connections(host_of(client))

    def cut_off(self, client: object) -> None:
        """Cuts a client off the network: nothing passes, and no side is notified. Only in virtual time."""
        self._network.cut(HOST, host_of(client))

    def rejoin(self, client: object) -> None:
        """Ends `cut_off`: the client can reach the servers again."""
        self._network.join(HOST, host_of(client))

    def _keep(self, client: T) -> T:
        self._made.append(client)  # type: ignore[arg-type]
        return client

    async def _close_clients(self) -> None:
        for client in reversed(self._made):
            await client.close()


class _Closable:
    async def close(self) -> None: ...


def host_of(client: Any) -> str:
    """Returns the IP address of a client of a virtual cluster; raises RuntimeError for any other client."""
    core = getattr(client, "_core", client)
    world: World = core.world if isinstance(core, Admin) else core._world
    if not isinstance(world.network, Host):
        raise RuntimeError('clients can be cut off only in virtual time: Cluster(clock="virtual")')
    return world.network.ip
