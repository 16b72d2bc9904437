"""Rules by which a request names its topics and groups; the table of codes is in `needs.py`.

In: a command, the name of the cluster. Out: its needs, in the order in which they are checked. Each rule
reads what the handler of the request will use, by the same decoder, and nothing else: a field that only looks
like the resource counts for nothing.

    %RETRY%G                    belongs to group G: a right to the group is one to its retry topic
    %DLQ%G                      an ordinary topic
    SCHEDULE_TOPIC_XXXX, ...    the broker keeps messages of other topics there: rights to the cluster as well
    %LMQ%x, named in a message  a topic of its own, to which a send writes too
"""

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Protocol, TypeVar

from turbopump.auth.resources import Action, Need, cluster, group
from turbopump.auth.resources import topic as plain_topic
from turbopump.protocol import batch, bodies, light, properties
from turbopump.protocol.command import Command
from turbopump.protocol.global_transactions import split_ledger_id
from turbopump.protocol.names import (
    ABSENT_BROKERS_NAMESPACE,
    ANY_TOPIC,
    AUTO_CREATE_TOPIC,
    CHECK_MAX_TIME_TOPIC,
    GLOBAL_TOPIC,
    HALF_TOPIC,
    LEDGER_TOPIC,
    OFFSET_MOVED_TOPIC,
    OP_HALF_TOPIC,
    ORDER_TOPIC_NAMESPACE,
    REPLY_POSTFIX,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    TABLE_TOPIC,
    TIMER_TOPIC,
)

Needs = tuple[Need, ...]

PUB, SUB, GET = Action.PUB, Action.SUB, Action.GET
CREATE, UPDATE, DELETE = Action.CREATE, Action.UPDATE, Action.DELETE

OF_OTHERS = frozenset(
    {
        *(SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC, OP_HALF_TOPIC, CHECK_MAX_TIME_TOPIC),
        *("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"),
        *(OFFSET_MOVED_TOPIC, LEDGER_TOPIC, GLOBAL_TOPIC, TABLE_TOPIC),
    }
)
"""Topics in which the broker keeps messages of other topics, or its own tables."""

MAX_REMEMBERED_NAME = 255  # characters: longer names are refused anyway, and must not fill the memory
MAX_REMEMBERED = 8192  # topics of sends: about 2 MB


class Rule(Protocol):
    """Interface: returns the needs of one request. () means that an identity suffices."""

    def __call__(self, command: Command, cluster: str, /) -> Needs: ...


# --- one name -------------------------------------------------------------------------------------------


def topic_needs(name: str, cluster_name: str, *any_of: Action) -> Needs:
    """Returns what it takes to do one of these with a topic: a retry topic belongs to its group."""
    if name.startswith(RETRY_PREFIX):
        of_group = tuple(dict.fromkeys(SUB if action is PUB else action for action in any_of))
        return (group(name[len(RETRY_PREFIX) :], *of_group),)
    if name in OF_OTHERS:
        return plain_topic(name, *any_of), cluster(cluster_name, GET if _only_reads(any_of) else UPDATE)
    return (plain_topic(name, *any_of),)


def _only_reads(any_of: Iterable[Action]) -> bool:
    return set(any_of) <= {SUB, GET, Action.LIST}


# --- fields ---------------------------------------------------------------------------------------------


def on_topic(*any_of: Action, field: str = "topic") -> Rule:
    """Returns the rule of a request about the topic in a header field, which counts as "" without it."""
    return lambda command, cluster: topic_needs(_field(command, field), cluster, *any_of)


def on_topic_if_given(*any_of: Action, field: str = "topic") -> Rule:
    def rule(command: Command, cluster: str) -> Needs:
        name = _field(command, field)
        return topic_needs(name, cluster, *any_of) if name else ()

    return rule


def on_group(*any_of: Action, field: str = "consumerGroup") -> Rule:
    return lambda command, cluster: (group(_field(command, field), *any_of),)


def on_group_if_given(*any_of: Action, field: str = "consumerGroup") -> Rule:
    """Returns the rule of a request whose handler does something with a group only if the field is there."""

    def rule(command: Command, cluster: str) -> Needs:
        name = (command.ext or {}).get(field)
        return () if name is None else (group(name, *any_of),)

    return rule


def on_group_or_cluster(*any_of: Action, field: str) -> Rule:
    """Returns the rule of a request that reads one group's, or without a group those of all."""

    def rule(command: Command, name: str) -> Needs:
        named = _field(command, field)
        return (group(named, *any_of) if named else cluster(name, GET),)

    return rule


def on_ledger_id(*any_of: Action) -> Rule:
    """Returns the rule of a request about a transactional id, which counts as a group.

    Ids of global transactions count as the group to which those belong.
    """
    return lambda command, cluster: (group(_owner_of(_field(command, "id")), *any_of),)


def _owner_of(id: str) -> str:
    parts = split_ledger_id(id)
    return id if parts is None else parts[0]


def on_cluster(*any_of: Action) -> Rule:
    return lambda command, name: (cluster(name, *any_of),)


def both(*rules: Rule) -> Rule:
    """Returns the rule of a request that needs what each of several rules says."""
    return lambda command, cluster: tuple(need for rule in rules for need in rule(command, cluster))


def _field(command: Command, name: str) -> str:
    return (command.ext or {}).get(name, "")


# --- sends ----------------------------------------------------------------------------------------------


def send(topic_field: str, properties_field: str, batch_field: str) -> Rule:
    """Returns the rule of a send of one message, by the names of its fields: Pub on its topic.

    And Pub on the light queues that the message names.
    """

    def rule(command: Command, cluster: str) -> Needs:
        ext = command.ext or {}
        name = ext.get(topic_field, "")
        needs = needs_of_send(name, cluster) if len(name) <= MAX_REMEMBERED_NAME else pub_needs(name, cluster)
        text = ext.get(properties_field, "")
        if properties.INNER_MULTI_DISPATCH in text:
            needs += _lights(text, cluster)
        # The messages of a batch have properties of their own. What a handler makes of any other text in this
        # field does not matter: what is not plainly one message counts as a batch here.
        if ext.get(batch_field, "false") != "false" and _LIGHTS in command.body:
            needs += _lights_of_batch(command.body, cluster)
        return tuple(dict.fromkeys(needs)) if len(needs) > 1 else needs

    return rule


def reply(send_rule: Rule, topic_field: str) -> Rule:
    """Returns the rule of a reply to a request: that of its send, and Pub on the reply topic of the cluster.

    It goes to the client that it names, so a right to any topic is not enough.
    """

    def rule(command: Command, cluster: str) -> Needs:
        needs, topic = send_rule(command, cluster), f"{cluster}_{REPLY_POSTFIX}"
        # Clients of 4.x with a namespace reply to the topic of that name in their namespace.
        if _field(command, topic_field).rpartition("%")[2] == topic:
            return needs
        return *needs, *pub_needs(topic, cluster)

    return rule


_LIGHTS = properties.INNER_MULTI_DISPATCH.encode()


def pub_needs(topic: str, cluster: str) -> Needs:
    return topic_needs(topic, cluster, PUB)


needs_of_send = lru_cache(MAX_REMEMBERED)(pub_needs)
"""Returns what a send to a topic needs, for names that are short enough to be remembered."""


def _lights(text: str | bytes, cluster: str) -> Needs:
    """Returns Pub on the light queues that the properties of a message name."""
    named = light.named(properties.find(text, properties.INNER_MULTI_DISPATCH) or "")
    return tuple(need for name in named for need in pub_needs(name, cluster))


def _lights_of_batch(body: bytes, cluster: str) -> Needs:
    found = (_lights(own, cluster) for _, _, own in batch.split(body) if _LIGHTS in own)
    return tuple(need for needs in found for need in needs)


def halves(command: Command, cluster: str) -> Needs:
    """Rule of a frame of half messages (9702): Pub on its id as a group, and on the topic of each message."""
    names: dict[str, None] = {}
    lights: dict[str, None] = {}
    for _, _, own in batch.split(command.body):
        names[properties.find(own, properties.REAL_TOPIC) or ""] = None
        if _LIGHTS in own:
            lights |= dict.fromkeys(light.named(properties.find(own, properties.INNER_MULTI_DISPATCH) or ""))
    needs = (need for name in (*names, *lights) for need in pub_needs(name, cluster))
    return tuple(dict.fromkeys((group(_owner_of(_field(command, "id")), PUB), *needs)))


# --- routes, progress, clones ---------------------------------------------------------------------------


def route(command: Command, cluster: str) -> Needs:
    """Rule of a route request (105): any right to use the topic.

    The route of TBW102 says where topics can be created, which every sender asks for a new topic.
    """
    name = _field(command, "topic")
    return () if name == AUTO_CREATE_TOPIC else topic_needs(name, cluster, PUB, SUB, GET)


OF_ROUTES = frozenset({ABSENT_BROKERS_NAMESPACE, ORDER_TOPIC_NAMESPACE})
"""Namespaces of a name server with values about a topic, whose name is the key: they belong to its route."""


def value_of_namespace(command: Command, cluster_name: str) -> Needs:
    """Rule of a value of a name server (101): that of a route, if it is about a topic; else the cluster."""
    key = _field(command, "key")
    if _field(command, "namespace") in OF_ROUTES and key != ANY_TOPIC:
        return topic_needs(key, cluster_name, PUB, SUB, GET)
    return (cluster(cluster_name, GET),)


def progress(command: Command, cluster: str) -> Needs:
    """Rule of a group's progress (208): Get on the group, and on the topics that are asked for."""
    listed = [name for name in _field(command, "topicList").split(";") if name]
    one = _field(command, "topic")
    named = listed or ([one] if one.strip() else [])
    topics = (need for name in dict.fromkeys(named) for need in topic_needs(name, cluster, GET))
    return group(_field(command, "consumerGroup"), GET), *topics


def clone(command: Command, cluster: str) -> Needs:
    """Rule of cloning offsets (314): Get on the group they come from, Update on the other and the topic."""
    one = _field(command, "topic").strip()
    groups = group(_field(command, "srcGroup"), GET), group(_field(command, "destGroup"), UPDATE)
    return *groups, *(topic_needs(one, cluster, UPDATE) if one else ())


# --- bodies ---------------------------------------------------------------------------------------------

B = TypeVar("B", bound=bodies.Body)


def of_body(kind: type[B], named: Callable[[B, str], Iterable[Need]]) -> Rule:
    """Returns the rule of a request whose body names its resources: `named` lists the needs of a body."""
    return lambda command, cluster: tuple(dict.fromkeys(named(kind.decode(command.body), cluster)))


def of_body_if_any(kind: type[B], named: Callable[[B, str], Iterable[Need]]) -> Rule:
    """Returns the rule of a request whose handler does nothing without a body."""
    rule = of_body(kind, named)
    return lambda command, cluster: rule(command, cluster) if command.body else ()


def of_body_or_cluster(kind: type[B], named: Callable[[B, str], Iterable[Need]]) -> Rule:
    """Returns the rule of a change whose body lists resources; one that lists none needs the cluster."""

    def rule(command: Command, name: str) -> Needs:
        found = tuple(dict.fromkeys(named(kind.decode(command.body), name))) if command.body else ()
        return found or (cluster(name, UPDATE),)

    return rule


def heartbeat(beat: bodies.HeartbeatData, cluster: str) -> Iterator[Need]:
    """Yields Sub on each consumer group and its topics; producers need nothing to say that they are there."""
    for data in beat.consumerDataSet:
        yield group(data.groupName, SUB)
        for one in data.subscriptionDataSet or ():
            yield from topic_needs(one.topic, cluster, SUB)


def checked_client(asked: bodies.CheckClientRequestBody, cluster: str) -> Iterator[Need]:
    """Yields Sub on the group and topic of a subscription that is to be checked (46), if it has them."""
    if asked.group:
        yield group(asked.group, SUB)
    if asked.subscriptionData is not None:
        yield from topic_needs(asked.subscriptionData.topic, cluster, SUB)


def locks(wish: bodies.LockBatchRequestBody, cluster: str) -> Iterator[Need]:
    yield group(wish.consumerGroup, SUB)
    for queue in wish.mqSet:
        yield from topic_needs(queue.topic, cluster, SUB)


def assignment(asked: bodies.QueryAssignmentRequestBody, cluster: str) -> Iterator[Need]:
    yield group(asked.consumerGroup, SUB)
    yield from topic_needs(asked.topic, cluster, SUB)


def request_mode(wanted: bodies.SetMessageRequestModeRequestBody, cluster: str) -> Iterator[Need]:
    yield group(wanted.consumerGroup, UPDATE)
    yield from topic_needs(wanted.topic, cluster, UPDATE)


def acks(body: bodies.BatchAckMessageRequestBody, cluster: str) -> Iterator[Need]:
    for ack in body.acks:
        yield group(ack.c, SUB)
        yield from topic_needs(ack.t, cluster, SUB)


def created_topics(body: bodies.CreateTopicListRequestBody, cluster: str) -> Iterator[Need]:
    for config in body.topicConfigList:
        yield from topic_needs(config.topicName, cluster, CREATE)


def created_group(config: bodies.SubscriptionGroupConfig, cluster: str) -> Iterator[Need]:
    yield group(config.groupName, CREATE)


def created_groups(body: bodies.CreateSubscriptionGroupListRequestBody, cluster: str) -> Iterator[Need]:
    for config in body.groupConfigList:
        yield group(config.groupName, CREATE)
