"""Which broker has which topics, and which client uses which: drawn from one seed. No I/O."""

import argparse
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from turbopump.protocol.names import retry_topic
from turbopump.runtime.chance import Chance


@dataclass(frozen=True, slots=True)
class Shape:
    """The size of a cluster, and how its topics and clients are distributed."""

    brokers: int = field(default=100, metadata={"help": "masters, each with a name of its own"})
    topics: int = field(default=10_000, metadata={"help": "topics of applications"})
    name_servers: int = field(default=3, metadata={"help": "name servers"})
    clients: int = field(default=5_000, metadata={"help": "client instances, each with its own connections"})
    min_spread: int = field(default=2, metadata={"help": "brokers that have a topic, at least"})
    max_spread: int = field(default=4, metadata={"help": "brokers that have a topic, at most"})
    queues: int = field(default=8, metadata={"help": "queues of a topic on each of its brokers"})
    group_size: int = field(default=10, metadata={"help": "clients of a group: they use the same topics"})
    min_used: int = field(default=5, metadata={"help": "topics of a group, at least"})
    max_used: int = field(default=20, metadata={"help": "topics of a group, at most"})
    deaths: int = field(default=10, metadata={"help": "brokers that die together"})
    seed: int = field(default=0, metadata={"help": "of everything that is drawn"})

    def __post_init__(self) -> None:
        """Raises ValueError for a size that cannot be."""
        for one in fields(self):
            low = 0 if one.name in ("deaths", "seed") else 1
            if getattr(self, one.name) < low:
                raise ValueError(f"{one.name} must be at least {low}, got {getattr(self, one.name)}")
        if not self.min_spread <= self.max_spread <= self.brokers:
            raise ValueError("min_spread <= max_spread <= brokers is needed")
        if not self.min_used <= self.max_used <= self.topics:
            raise ValueError("min_used <= max_used <= topics is needed")
        if 2 * self.deaths >= self.brokers:
            raise ValueError("deaths must be less than half of the brokers")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    for one in fields(Shape):
        name = "--" + one.name.replace("_", "-")
        parser.add_argument(
            name, type=int, default=one.default, help=f"{one.metadata['help']} ({one.default})"
        )


def shape_of(arguments: argparse.Namespace) -> Shape:
    return Shape(**{one.name: getattr(arguments, one.name) for one in fields(Shape)})


def shape_as_json(shape: Shape) -> dict[str, Any]:
    return asdict(shape)


@dataclass(frozen=True, slots=True)
class BrokerPlan:
    """One broker: its name, host, and number of queues by topic."""

    name: str
    ip: str
    topics: dict[str, int]


@dataclass(frozen=True, slots=True)
class ClientPlan:
    """One client: its host, group, kind, and the topics that it uses."""

    ip: str
    group: str
    consumes: bool
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole cluster: brokers, clients, and the names of the brokers of each topic."""

    shape: Shape
    brokers: tuple[BrokerPlan, ...]
    clients: tuple[ClientPlan, ...]
    placement: dict[str, frozenset[str]]

    @property
    def routes(self) -> int:
        """Number of pairs of topic and broker, without the topics that every broker has."""
        return sum(map(len, self.placement.values()))

    @property
    def used(self) -> int:
        """Number of pairs of client and topic: so many routes are asked for in each period."""
        return sum(len(client.topics) for client in self.clients)


def plan(shape: Shape) -> Plan:
    """Draws a cluster: places the topics, then gives topics to groups of producers and consumers, half each.

    A group of consumers has a retry topic with one queue on each broker of its topics, which its brokers
    create for it.
    """
    chance = Chance(shape.seed)
    names = [f"broker-{number:03d}" for number in range(shape.brokers)]
    topics = [f"topic-of-application-{number:05d}" for number in range(shape.topics)]
    placement = {topic: _some(chance, names, shape.min_spread, shape.max_spread) for topic in topics}
    clients: list[ClientPlan] = []
    retries: set[str] = set()
    for number in range(0, shape.clients, shape.group_size):
        consumes = number // shape.group_size % 2 == 0
        group = f"{'CG' if consumes else 'PG'}-application-{number:05d}"
        used = sorted(_some(chance, topics, shape.min_used, shape.max_used))
        if consumes:
            used.append(retry_topic(group))
            retries.add(used[-1])
            placement[used[-1]] = frozenset().union(*(placement[topic] for topic in used[:-1]))
        members = range(number, min(number + shape.group_size, shape.clients))
        clients += [ClientPlan(_ip(2, one), group, consumes, tuple(used)) for one in members]
    held: dict[str, dict[str, int]] = {name: {} for name in names}
    for topic, on in placement.items():
        for name in on:
            held[name][topic] = 1 if topic in retries else shape.queues
    brokers = tuple(BrokerPlan(name, _ip(1, at), held[name]) for at, name in enumerate(names))
    return Plan(shape, brokers, tuple(clients), placement)


def name_server_ip(number: int) -> str:
    return _ip(0, number)


def _some(chance: Chance, of: list[str], low: int, high: int) -> frozenset[str]:
    return frozenset(chance.sample(of, chance.randint(low, high)))


def _ip(kind: int, number: int) -> str:
    return f"10.{kind}.{number // 250}.{number % 250 + 1}"


def live_brokers(plan: Plan, topic: str, dead: Iterable[str]) -> frozenset[str]:
    return plan.placement[topic] - frozenset(dead)
