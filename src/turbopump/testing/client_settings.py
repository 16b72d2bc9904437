"""Settings of the clients of an embedded cluster: address, world, and intervals that suit its clock."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from turbopump.client.settings import ConsumeFromWhere
from turbopump.client.world import World
from turbopump.testing.failures import HandlerFailures
from turbopump.testing.network import MemoryNetwork
from turbopump.testing.servers import MAX_HOLD_S

QUICK: Mapping[str, float] = {
    "persist_consumer_offset_interval": 0.1,
    "poll_name_server_interval": 1.0,
    "rebalance_wait_interval": 1.0,
}
"""Settings of consumers in real time: short intervals, so that tests do not wait for them."""
SPARING: Mapping[str, float] = {
    "heartbeat_broker_interval": 90.0,  # brokers remove clients without a heartbeat for two minutes
    "poll_name_server_interval": 600.0,
}
"""Settings of all clients in virtual time: long intervals, since each costs real time. The cluster notifies
clients of changed routes, so they need not poll."""
SPARING_CONSUMERS: Mapping[str, float] = {
    **SPARING,
    "persist_consumer_offset_interval": 120.0,  # `wait_until_consumed` does not wait for it
    "rebalance_wait_interval": 600.0,  # brokers notify consumers of other members, as in real time
}
SPARING_PULLS: Mapping[str, float] = {
    **SPARING,
    "broker_suspend_max_time": MAX_HOLD_S - 20.0,  # a message ends the wait immediately
    "consumer_timeout_when_suspend": MAX_HOLD_S - 10.0,
}


@dataclass
class ClusterClientSettings:
    """Makes the settings of new clients. `network` is that of virtual time; None: real time."""

    name_servers: str
    world: World
    network: MemoryNetwork | None
    offsets_dir: str
    failures: HandlerFailures
    _hosts: "itertools.count[int]" = field(default_factory=itertools.count)

    def of_client(self) -> dict[str, Any]:
        """Returns `name_servers` and `world` for one client; in virtual time each has its own IP address."""
        world = self.world
        if self.network is not None:
            third, last = divmod(next(self._hosts), 250)
            world = replace(world, network=self.network.at(f"127.0.{third + 1}.{last + 1}"))
        return {"name_servers": self.name_servers, "world": world}

    def of_producer(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the arguments of a producer: the cluster's defaults, overridden by `given`."""
        return {**self.of_client(), **({} if self.network is None else SPARING), **given}

    def of_pull_consumer(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the arguments of a pull consumer: the cluster's defaults, overridden by `given`."""
        if self.network is None:
            return self._of_group(given)
        sparing = SPARING if given.keys() & SPARING_PULLS.keys() - SPARING.keys() else SPARING_PULLS
        return self._of_group({**sparing, **given})

    def of_consumer(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the arguments of a push consumer: defaults, overridden by `given`, and a failure hook.

        The hook records exceptions of its handlers.
        """
        hooks = (*given.get("hooks", ()), self.failures)
        intervals = QUICK if self.network is None else SPARING_CONSUMERS
        return self._of_group({**intervals, **given, "hooks": hooks})

    def _of_group(self, given: Mapping[str, Any]) -> dict[str, Any]:
        return {
            **self.of_client(),
            "consume_from_where": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            "local_offset_store_dir": self.offsets_dir,
            **given,
        }
