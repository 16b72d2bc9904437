"""Route table of the name server: live brokers, their addresses and topics. Values in, values out.

A broker is a name with an address per id (0 is the master). It is kept alive by registrations and heartbeats,
and removed when it unregisters, when its connection breaks, or when its heartbeats stop. Its topics are
removed with the last address of the name, and `absent.py` remembers them. Topics of registrations are merged:
one that a registration lacks is dropped only if that is configured and the registration is a broker's
complete table. No clock and no socket belongs here: the time is passed in, and a connection is any hashable
object that identifies it.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from turbopump.namesrv.absent import AbsentBrokers
from turbopump.protocol.addresses import MASTER_ID
from turbopump.protocol.bodies import (
    BrokerData,
    ClusterInfo,
    DataVersion,
    QueueData,
    TopicConfig,
    TopicRouteData,
)
from turbopump.protocol.errors import SystemFailure
from turbopump.protocol.names import SELF_TEST_TOPIC, SYNC_MEMBER_PREFIX
from turbopump.protocol.permissions import READ_WRITE, WRITE
from turbopump.protocol.sysflag import UNIT, UNIT_SUBSCRIBED

DEFAULT_TIMEOUT_MS = 120_000
MAX_TIMEOUT_MS = 24 * 3600 * 1000
MAX_BROKERS = 10_000  # addresses of brokers
MAX_ROUTES = 500_000  # pairs of topic and broker name: a third of a GiB
MAX_MAPPING_BYTES = 64 << 20  # as JSON, of all static topics


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """Content of one registration of a broker address: identity, data version and topics."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    ha_address: str
    version: DataVersion
    topics: Mapping[str, TopicConfig]
    mappings: Mapping[str, Any] = field(default_factory=dict)
    """Mappings of static topics, passed on as the broker sent them."""

    filter_servers: tuple[str, ...] | None = None
    timeout_ms: int | None = None
    acting_master: bool | None = None
    """None from brokers that do not know the mode (4.x)."""

    zone: str | None = None


@dataclass(frozen=True, slots=True)
class MinBrokerIdChange:
    """Notice that the smallest id of a broker group changed; `recipients` are the addresses to notify."""

    broker_name: str
    min_id: int
    min_address: str
    offline_address: str | None
    ha_address: str | None
    recipients: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RegistrationResult:
    """Result of a registration: the group's master, and the notice if the smallest id changed."""

    master_address: str | None = None
    ha_address: str | None = None
    notice: MinBrokerIdChange | None = None
    ignored: bool = False
    """Another address has registered this id with a newer state of the group."""


@dataclass(frozen=True, slots=True)
class RemovedBrokers:
    """Result of a removal: names of affected brokers, connections to close, and notices to send."""

    brokers: tuple[str, ...] = ()
    connections: tuple[Hashable, ...] = ()
    notices: tuple[MinBrokerIdChange, ...] = ()


@dataclass(slots=True)
class _Broker:
    """Broker group: one broker name with its addresses by broker id."""

    cluster: str
    name: str
    addresses: dict[int, str] = field(default_factory=dict)
    acting_master: bool = False
    zone: str | None = None


@dataclass(slots=True)
class _LiveBroker:
    """Registered address of a broker, with the time of its last heartbeat and its connection."""

    broker_name: str
    updated_ms: int
    timeout_ms: int
    version: DataVersion
    connection: Hashable
    ha_address: str


_Place = tuple[str, str]  # cluster, address


class TopicRouteTable:
    """Table of registered brokers and the routes of their topics."""

    def __init__(
        self,
        support_acting_master: bool = False,
        delete_topic_with_registration: bool = False,
        max_brokers: int = MAX_BROKERS,
        max_routes: int = MAX_ROUTES,
        max_mapping_bytes: int = MAX_MAPPING_BYTES,
    ) -> None:
        self.support_acting_master = support_acting_master
        self.delete_topic_with_registration = delete_topic_with_registration
        self._max_brokers = max_brokers
        self._max_routes = max_routes
        self._max_mapping_bytes = max_mapping_bytes
        self._clusters: dict[str, dict[str, None]] = {}  # broker names, in order of registration
        self._brokers: dict[str, _Broker] = {}
        self._topics: dict[str, dict[str, QueueData]] = {}  # topic -> broker name
        self._mappings: dict[str, dict[str, Any]] = {}  # topic -> broker name
        self._mapping_bytes = 0
        self._filter_servers: dict[_Place, tuple[str, ...]] = {}
        self._live: dict[_Place, _LiveBroker] = {}
        self._route_count = 0
        self._absent = AbsentBrokers(max_routes)
        self.on_change: Callable[[], None] | None = None
        """Called when the queues or brokers of a topic change."""

    # Brokers

    def register(
        self, registration: BrokerRegistration, connection: Hashable, now_ms: int
    ) -> RegistrationResult:
        """Registers a broker; raises SystemFailure if the table is full, or a new broker sent only one topic.

        The second makes the broker send its whole table.
        """
        place = (registration.cluster, registration.address)
        self._check_broker(registration)
        if self._is_too_much(registration):
            self._keep_alive(place, registration.broker_name, connection, now_ms)
            raise SystemFailure(
                f"register broker failed: more than {self._max_routes} routes "
                f"or {self._max_mapping_bytes} bytes of mappings"
            )
        self._end_former(place, registration.broker_name)
        broker = self._brokers.get(registration.broker_name)
        if broker is not None and self._is_outdated(broker, registration):
            self._drop_live(place)
            _drop_address(broker, registration.address, keep=None)
            return RegistrationResult(ignored=True)
        first = broker is None or registration.broker_id not in broker.addresses
        if broker is None:
            broker = _Broker(registration.cluster, registration.broker_name)
            self._brokers[broker.name] = broker
            self._absent.forget(broker.name)
        self._clusters.setdefault(registration.cluster, {})[broker.name] = None
        notice_due = self._place(broker, registration)
        self._take_topics(broker, registration, first)
        self._live[place] = _LiveBroker(
            broker.name,
            now_ms,
            _timeout_ms(registration.timeout_ms),
            registration.version,
            connection,
            registration.ha_address,
        )
        if registration.filter_servers is not None:
            self._filter_servers[place] = registration.filter_servers
            if not registration.filter_servers:
                del self._filter_servers[place]
        master, ha_address = self._master_of(broker) if registration.broker_id != MASTER_ID else (None, None)
        notice = _notice(broker, None, registration.ha_address) if notice_due else None
        return RegistrationResult(master, ha_address, notice)

    def unregister(self, cluster: str, broker_name: str, address: str) -> RemovedBrokers:
        """Removes a broker address, and the broker with its last address; does nothing if it is unknown."""
        live = self._live.get((cluster, address))
        if live is not None and live.broker_name == broker_name:
            self._drop_live((cluster, address))
        broker = self._brokers.get(broker_name)
        if broker is None:
            return RemovedBrokers()
        min_id = min(broker.addresses)
        gone = _drop_address(broker, address, keep=None)
        if not broker.addresses:
            self._forget(broker)
            return RemovedBrokers(brokers=(broker_name,))
        if not gone:
            return RemovedBrokers()
        if broker.acting_master and MASTER_ID not in broker.addresses:
            self._change_perms(broker_name, lambda perm: perm & ~WRITE)
        notice = _notice(broker, address, live.ha_address if live else None) if min_id in gone else None
        return RemovedBrokers(brokers=(broker_name,), notices=(notice,) if notice else ())

    def alive(self, cluster: str, address: str, now_ms: int) -> None:
        """Records a heartbeat of a registered address; does nothing if the address is unknown."""
        live = self._live.get((cluster, address))
        if live is not None:
            live.updated_ms = now_ms

    def version_of(self, cluster: str, address: str) -> DataVersion | None:
        live = self._live.get((cluster, address))
        return live.version if live else None

    def expire(self, now_ms: int) -> RemovedBrokers:
        """Removes broker addresses whose last heartbeat is older than their timeout."""
        late = [place for place, live in self._live.items() if live.updated_ms + live.timeout_ms < now_ms]
        connections = tuple(dict.fromkeys(self._live[place].connection for place in late))
        return self._end(late, connections)

    def disconnected(self, connection: Hashable) -> RemovedBrokers:
        """Removes the broker addresses that last registered on this connection."""
        return self._end([place for place, live in self._live.items() if live.connection == connection], ())

    def absent(self, topic: str, known: Iterable[str]) -> list[str]:
        """Returns the sorted names of brokers that have, or may have, the topic and are not registered now.

        The topics of `known` brokers that this table has not seen leave are unknown: they count as having it.
        """
        names = {name for name in known if name not in self._brokers}
        return sorted(self._absent.having(topic) | (names - self._absent.names()))

    def forget_absent(self, broker_name: str) -> None:
        """Removes a broker, which will not come back, from the table of absent brokers."""
        self._absent.forget(broker_name)

    def members(self, broker_name: str) -> dict[int, str]:
        broker = self._brokers.get(broker_name)
        return dict(broker.addresses) if broker else {}

    def clusters(self) -> ClusterInfo:
        return ClusterInfo(
            brokerAddrTable={name: _broker_data(broker) for name, broker in self._brokers.items()},
            clusterAddrTable={cluster: list(names) for cluster, names in self._clusters.items()},
        )

    # Topics

    def route(self, topic: str) -> TopicRouteData | None:
        """Returns the queues and brokers of a topic; None when no registered broker has the topic."""
        queues = self._topics.get(topic)
        if not queues:
            return None
        brokers = [self._brokers[name] for name in queues if name in self._brokers]
        if not brokers:
            return None
        return TopicRouteData(
            brokerDatas=[self._shown(broker, topic, queues[broker.name]) for broker in brokers],
            filterServerTable=self._filter_servers_of(brokers),
            queueDatas=list(queues.values()),
            topicQueueMappingByBroker=dict(self._mappings[topic]) if topic in self._mappings else None,
        )

    def topics(self) -> list[str]:
        return list(self._topics)

    def topics_of(self, cluster: str) -> list[str]:
        names = self._clusters.get(cluster, {})
        return [topic for topic, queues in self._topics.items() if not names.keys().isdisjoint(queues)]

    def system_topics(self) -> tuple[list[str], str | None]:
        """Returns all cluster and broker names, which are topics too, and the address of any one broker."""
        names = dict.fromkeys(self._clusters)
        for brokers in self._clusters.values():
            names.update(brokers)
        addresses = (address for broker in self._brokers.values() for address in broker.addresses.values())
        return list(names), next(addresses, None)

    def unit_topics(self) -> list[str]:
        return self._topics_with(lambda flag: flag & UNIT != 0)

    def unit_sub_topics(self) -> list[str]:
        return self._topics_with(lambda flag: flag & UNIT_SUBSCRIBED != 0)

    def unit_sub_ununit_topics(self) -> list[str]:
        return self._topics_with(lambda flag: flag & UNIT == 0 and flag & UNIT_SUBSCRIBED != 0)

    def add_topic(self, topic: str, queues: Iterable[QueueData]) -> None:
        """Sets a topic's queues on some brokers; does nothing if one of the brokers is unknown, as Apache.

        Raises SystemFailure when the table is full.
        """
        by_broker = {queue.brokerName: queue for queue in queues}
        if not self._brokers.keys() >= by_broker.keys():
            return
        added = len(by_broker.keys() - self._topics.get(topic, {}).keys())
        if self._route_count + added > self._max_routes:
            raise SystemFailure(f"register topic failed: more than {self._max_routes} routes")
        for queue in by_broker.values():
            self._set_queues(topic, queue)

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Removes a topic from all brokers, or from those of one cluster."""
        names = list(self._clusters.get(cluster, {}) if cluster else self._topics.get(topic, {}))
        for name in names:
            self._drop_queues(topic, name)
        if not cluster:
            self._absent.drop_topic(topic)

    def wipe_write_perm(self, broker_name: str) -> int:
        """Removes the write permission of a broker's topics; returns their number."""
        return self._change_perms(broker_name, lambda perm: perm & ~WRITE)

    def add_write_perm(self, broker_name: str) -> int:
        """Sets the permission of a broker's topics to read and write; returns their number.

        TBW102 loses its third bit, in Apache too.
        """
        return self._change_perms(broker_name, lambda perm: READ_WRITE)

    # Inside

    def _check_broker(self, registration: BrokerRegistration) -> None:
        """Raises SystemFailure for a new broker if the table is full or the broker sent one topic only."""
        broker = self._brokers.get(registration.broker_name)
        known = broker is not None and registration.broker_id in broker.addresses
        if not known and len(registration.topics) == 1:
            # A change of one topic, sent to a name server that has not seen the others. Apache's answer
            # makes the broker send its complete table.
            raise SystemFailure("register broker failed")
        place = (registration.cluster, registration.address)
        if place not in self._live and len(self._live) >= self._max_brokers:
            raise SystemFailure(f"register broker failed: {self._max_brokers} brokers are registered")

    def _is_too_much(self, registration: BrokerRegistration) -> bool:
        """Returns whether a registration would exceed the limits of routes or of mapping bytes.

        New routes are counted only when the table could be full.
        """
        name = registration.broker_name
        new_bytes = sum(
            _size(mapping) - _size(self._mappings.get(topic, {}).get(name))
            for topic, mapping in registration.mappings.items()
        )
        if self._mapping_bytes + new_bytes > self._max_mapping_bytes:
            return True
        if self._route_count + len(registration.topics) <= self._max_routes:
            return False
        added = sum(name not in self._topics.get(topic, ()) for topic in registration.topics)
        return self._route_count + added > self._max_routes

    def _keep_alive(self, place: _Place, broker_name: str, connection: Hashable, now_ms: int) -> None:
        """Updates heartbeat time and connection of an earlier registration when a new one is refused."""
        live = self._live.get(place)
        if live is not None and live.broker_name == broker_name:
            live.updated_ms = now_ms
            live.connection = connection

    def _drop_live(self, place: _Place) -> None:
        self._live.pop(place, None)
        self._filter_servers.pop(place, None)

    def _end_former(self, place: _Place, broker_name: str) -> None:
        """Removes an address from the broker of another name, or the other cluster, it was in before."""
        cluster, address = place
        former = self._live.get(place)
        if former is None:
            others = [other for other, live in self._live.items() if live.broker_name == broker_name]
            for other in others:
                if other[1] == address:
                    self._drop_live(other)
        elif former.broker_name != broker_name:
            self.unregister(cluster, former.broker_name, address)

    def _is_outdated(self, broker: _Broker, registration: BrokerRegistration) -> bool:
        """Returns whether another address has registered this broker id with a newer state of the group."""
        holder = broker.addresses.get(registration.broker_id)
        if holder is None or holder == registration.address:
            return False
        live = self._live.get((registration.cluster, holder))
        return live is not None and live.version.stateVersion > registration.version.stateVersion

    def _place(self, broker: _Broker, registration: BrokerRegistration) -> bool:
        """Sets the address of a broker id; returns whether this id replaced another as the smallest."""
        broker.acting_master = bool(registration.acting_master)
        broker.zone = registration.zone
        min_id = min(broker.addresses, default=MASTER_ID)
        _drop_address(broker, registration.address, keep=registration.broker_id)
        broker.addresses[registration.broker_id] = registration.address
        return registration.broker_id < min_id

    def _take_topics(self, broker: _Broker, registration: BrokerRegistration, first: bool) -> None:
        """Stores a registration's topics if it is of the master, or of the slave that may act as master."""
        is_master = registration.broker_id == MASTER_ID
        may_act = registration.acting_master is not None and registration.broker_id == min(broker.addresses)
        if not is_master and not may_act:
            return
        # No field marks a complete table, but only a complete one contains the built-in topics.
        is_full = SELF_TEST_TOPIC in registration.topics
        if self.delete_topic_with_registration and is_full and not registration.mappings:
            held = [topic for topic, queues in self._topics.items() if broker.name in queues]
            for gone in held:
                if gone not in registration.topics:
                    self._drop_queues(gone, broker.name)
        known = self.version_of(registration.cluster, registration.address)
        changed = first or known != registration.version
        mask = ~WRITE if not is_master and broker.acting_master else ~0
        for name, topic in registration.topics.items():
            if changed or broker.name not in self._topics.get(name, ()):
                self._set_queues(name, _queue_data(broker.name, topic, mask))
        if changed:
            for name, mapping in registration.mappings.items():
                # Brokers send a mapping with its topic or later; without one it would never be dropped.
                if broker.name in self._topics.get(name, ()):
                    self._set_mapping(name, broker.name, mapping)

    def _master_of(self, broker: _Broker) -> tuple[str | None, str | None]:
        master = broker.addresses.get(MASTER_ID)
        live = self._live.get((broker.cluster, master)) if master else None
        return (master, live.ha_address) if live else (None, None)

    def _end(self, places: Iterable[_Place], connections: tuple[Hashable, ...]) -> RemovedBrokers:
        ended = [self.unregister(cluster, self._live[cluster, at].broker_name, at) for cluster, at in places]
        return RemovedBrokers(
            tuple(name for removed in ended for name in removed.brokers),
            connections,
            tuple(notice for removed in ended for notice in removed.notices),
        )

    def _forget(self, broker: _Broker) -> None:
        del self._brokers[broker.name]
        for cluster in [name for name, brokers in self._clusters.items() if broker.name in brokers]:
            del self._clusters[cluster][broker.name]
            if not self._clusters[cluster]:
                del self._clusters[cluster]
        topics = [name for name, queues in self._topics.items() if broker.name in queues]
        self._absent.add(broker.name, topics)
        for topic in topics:
            self._drop_queues(topic, broker.name)

    def _set_queues(self, topic: str, queues: QueueData) -> None:
        of_topic = self._topics.setdefault(topic, {})
        before = of_topic.get(queues.brokerName)
        self._route_count += before is None
        of_topic[queues.brokerName] = queues
        if self.on_change is not None and queues != before:
            self.on_change()

    def _set_mapping(self, topic: str, broker_name: str, mapping: Any) -> None:
        of_topic = self._mappings.setdefault(topic, {})
        self._mapping_bytes += _size(mapping) - _size(of_topic.get(broker_name))
        of_topic[broker_name] = mapping

    def _drop_queues(self, topic: str, broker_name: str) -> None:
        queues = self._topics.get(topic, {})
        if queues.pop(broker_name, None) is not None:
            self._route_count -= 1
            if self.on_change is not None:
                self.on_change()
        if not queues:
            self._topics.pop(topic, None)
        mappings = self._mappings.get(topic, {})
        self._mapping_bytes -= _size(mappings.pop(broker_name, None))
        if not mappings:
            self._mappings.pop(topic, None)

    def _change_perms(self, broker_name: str, change: Callable[[int], int]) -> int:
        touched = 0
        for queues in self._topics.values():
            if broker_name in queues:
                queue = queues[broker_name]
                queues[broker_name] = msgspec.structs.replace(queue, perm=change(queue.perm))
                touched += 1
        return touched

    def _topics_with(self, wanted: Callable[[int], bool]) -> list[str]:
        return [
            topic
            for topic, queues in self._topics.items()
            if wanted(next(iter(queues.values())).topicSysFlag)
        ]

    def _shown(self, broker: _Broker, topic: str, queues: QueueData) -> BrokerData:
        shown = _broker_data(broker)
        acts = (
            self.support_acting_master and broker.acting_master and not topic.startswith(SYNC_MEMBER_PREFIX)
        )
        if acts and MASTER_ID not in broker.addresses and not queues.perm & WRITE:
            shown.brokerAddrs[MASTER_ID] = shown.brokerAddrs.pop(min(shown.brokerAddrs))
        return shown

    def _filter_servers_of(self, brokers: list[_Broker]) -> dict[str, list[str]]:
        return {
            address: list(self._filter_servers[broker.cluster, address])
            for broker in brokers
            for address in broker.addresses.values()
            if (broker.cluster, address) in self._filter_servers
        }


def _size(mapping: Any) -> int:
    return 0 if mapping is None else len(msgspec.json.encode(mapping))


def in_zone(route: TopicRouteData, zone: str) -> TopicRouteData:
    """Returns a copy of the route with only the brokers of a zone, and those without a master."""
    brokers = [
        broker
        for broker in route.brokerDatas
        if MASTER_ID not in broker.brokerAddrs or (broker.zoneName or "").lower() == zone.lower()
    ]
    removed = {broker.brokerName for broker in route.brokerDatas} - {broker.brokerName for broker in brokers}
    queues = [queue for queue in route.queueDatas if queue.brokerName not in removed]
    return msgspec.structs.replace(route, brokerDatas=brokers, queueDatas=queues)


def _timeout_ms(asked_ms: int | None) -> int:
    if asked_ms is None:
        return DEFAULT_TIMEOUT_MS
    return max(0, min(asked_ms, MAX_TIMEOUT_MS))


def _drop_address(broker: _Broker, address: str, keep: int | None) -> list[int]:
    """Removes an address from all broker ids but `keep`; returns the ids that had it.

    A slave may have become the master.
    """
    left = [number for number, known in broker.addresses.items() if known == address and number != keep]
    for number in left:
        del broker.addresses[number]
    return left


def _notice(broker: _Broker, offline_address: str | None, ha_address: str | None) -> MinBrokerIdChange:
    min_id = min(broker.addresses)
    if offline_address is not None or len(broker.addresses) == 1:
        recipients = tuple(broker.addresses.values())
    else:
        recipients = tuple(address for number, address in broker.addresses.items() if number != min_id)
    return MinBrokerIdChange(
        broker.name, min_id, broker.addresses[min_id], offline_address, ha_address, recipients
    )


def _broker_data(broker: _Broker) -> BrokerData:
    return BrokerData(
        brokerAddrs=dict(broker.addresses),
        brokerName=broker.name,
        cluster=broker.cluster,
        enableActingMaster=broker.acting_master,
        zoneName=broker.zone,
    )


def _queue_data(broker_name: str, topic: TopicConfig, mask: int) -> QueueData:
    return QueueData(
        brokerName=broker_name,
        perm=topic.perm & mask,
        readQueueNums=topic.readQueueNums,
        topicSysFlag=topic.topicSysFlag,
        writeQueueNums=topic.writeQueueNums,
    )
