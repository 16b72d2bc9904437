"""What each request needs: the table of all request codes, of both servers and of DLedger's members.

In: a command and the name of the cluster. Out: the needs that must all be met; () means that an identity
suffices. A code without a row is refused: deny by default. Rows follow Apache 5.5.0, so that its users and
policies can be taken over, except where its servers leave a request open or look at a field that the handler
does not use. What only a handler can know (the topic of the message at an offset) it asks again, by
`needs_of_stored`.
"""

from turbopump.auth import rules
from turbopump.auth.resources import Action, Need
from turbopump.auth.rules import Rule, both, of_body, of_body_or_cluster, on_cluster, on_group, on_topic
from turbopump.protocol import bodies
from turbopump.protocol.codes import RequestCode as Code
from turbopump.protocol.command import Command
from turbopump.protocol.dledger.codes import DLedgerRequestCode as DLedgerCode
from turbopump.protocol.errors import BrokenBody, NoPermission, SystemFailure

PUB, SUB, GET = Action.PUB, Action.SUB, Action.GET
CREATE, UPDATE, DELETE = Action.CREATE, Action.UPDATE, Action.DELETE

READS = on_cluster(GET)
CHANGES = on_cluster(UPDATE)

_send = rules.send("topic", "properties", "batch")
_send_v2 = rules.send("b", "i", "m")
_pull = both(on_topic(SUB), on_group(SUB))
_pop = both(on_group(SUB), on_topic(SUB))
_progress_of_both = both(on_group(GET, field="group"), on_topic(GET))
_offsets = on_topic(SUB, GET)  # Apache asks for Get alone; a consumer without offsets starts with these

_OF_CLIENTS: dict[int, Rule] = {
    Code.SEND_MESSAGE: _send,
    Code.SEND_MESSAGE_V2: _send_v2,
    Code.SEND_BATCH_MESSAGE: _send_v2,
    # A reply is stored in its topic like a message, and passed on to a client. Apache: nothing.
    Code.SEND_REPLY_MESSAGE: rules.reply(_send, "topic"),
    Code.SEND_REPLY_MESSAGE_V2: rules.reply(_send_v2, "b"),
    Code.RECALL_MESSAGE: on_topic(PUB),
    Code.END_TRANSACTION: rules.on_topic_if_given(PUB),  # and Pub on that of the half message
    Code.PULL_MESSAGE: _pull,
    Code.LITE_PULL_MESSAGE: _pull,  # Apache: nothing
    Code.POP_MESSAGE: _pop,
    Code.ACK_MESSAGE: _pop,
    Code.PEEK_MESSAGE: _pop,
    Code.CHANGE_MESSAGE_INVISIBLETIME: _pop,
    Code.NOTIFICATION: _pop,
    Code.POP_ROLLBACK: CHANGES,
    Code.BATCH_ACK_MESSAGE: of_body_or_cluster(bodies.BatchAckMessageRequestBody, rules.acks),
    Code.POLLING_INFO: both(on_group(GET), on_topic(GET)),
    Code.QUERY_MESSAGE: on_topic(SUB, GET),
    Code.VIEW_MESSAGE_BY_ID: rules.on_topic_if_given(GET),  # and Get on that of the message
    Code.QUERY_CONSUMER_OFFSET: both(on_topic(SUB, GET), on_group(SUB, GET)),
    Code.UPDATE_CONSUMER_OFFSET: both(on_topic(SUB, UPDATE), on_group(SUB, UPDATE)),
    Code.SEARCH_OFFSET_BY_TIMESTAMP: _offsets,
    Code.GET_MAX_OFFSET: on_topic(PUB, SUB, GET),  # producers ask it to find out whether a broker is back
    Code.GET_MIN_OFFSET: _offsets,
    Code.GET_EARLIEST_MSG_STORETIME: _offsets,
    Code.HEART_BEAT: of_body(bodies.HeartbeatData, rules.heartbeat),
    Code.UNREGISTER_CLIENT: rules.on_group_if_given(SUB),
    Code.CHECK_CLIENT_CONFIG: rules.of_body_if_any(bodies.CheckClientRequestBody, rules.checked_client),
    Code.GET_CONSUMER_LIST_BY_GROUP: on_group(SUB, GET),
    Code.CONSUMER_SEND_MSG_BACK: on_group(SUB, field="group"),  # and Sub on the topic of the message
    Code.LOCK_BATCH_MQ: of_body(bodies.LockBatchRequestBody, rules.locks),
    Code.UNLOCK_BATCH_MQ: of_body(bodies.LockBatchRequestBody, rules.locks),
    Code.QUERY_ASSIGNMENT: of_body(bodies.QueryAssignmentRequestBody, rules.assignment),
    # Transactional ids of the ledger of decisions count as groups to which one publishes.
    Code.LEDGER_OPEN: rules.on_ledger_id(PUB),
    Code.LEDGER_SEND: rules.halves,
    Code.LEDGER_READ: rules.on_ledger_id(PUB, GET),
    Code.LEDGER_DECIDE: rules.on_ledger_id(PUB),
    Code.LEDGER_END: rules.on_ledger_id(PUB),
    # Global transactions belong to the group of the programs that coordinate them.
    Code.GLOBAL_OPEN: on_group(PUB, field="group"),
    Code.GLOBAL_APPEND: on_group(PUB, field="group"),
    Code.GLOBAL_DECIDE: on_group(PUB, field="group"),
    Code.GLOBAL_CLAIM: on_group(PUB, field="group"),
    Code.GLOBAL_READ: rules.on_group_or_cluster(PUB, GET, field="group"),
}
"""Requests of producers and consumers."""

_OF_TOPICS: dict[int, Rule] = {
    Code.UPDATE_AND_CREATE_TOPIC: on_topic(CREATE),
    Code.UPDATE_AND_CREATE_TOPIC_LIST: of_body_or_cluster(
        bodies.CreateTopicListRequestBody, rules.created_topics
    ),
    Code.UPDATE_AND_CREATE_STATIC_TOPIC: on_topic(CREATE),
    Code.DELETE_TOPIC_IN_BROKER: on_topic(DELETE),
    Code.GET_TOPIC_CONFIG: on_topic(GET),
    Code.GET_TOPIC_STATS_INFO: on_topic(GET),
    Code.QUERY_TOPIC_CONSUME_BY_WHO: on_topic(GET),
    Code.QUERY_CONSUME_QUEUE: both(on_topic(GET), rules.on_group_if_given(GET)),
    Code.RESUME_CHECK_HALF_MESSAGE: rules.on_topic_if_given(UPDATE),  # and that of the message
    Code.CHECK_ROCKSDB_CQ_WRITE_PROGRESS: on_topic(GET),
    Code.GET_ALL_TOPIC_CONFIG: READS,
    Code.GET_TOPIC_CONFIG_LIST: READS,
    Code.GET_TOPIC_NAME_LIST: READS,
    Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: READS,
    Code.CLEAN_UNUSED_TOPIC: CHANGES,
    Code.CLEAN_EXPIRED_CONSUMEQUEUE: CHANGES,
}

_OF_GROUPS: dict[int, Rule] = {
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: of_body_or_cluster(
        bodies.SubscriptionGroupConfig, rules.created_group
    ),
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: of_body_or_cluster(
        bodies.CreateSubscriptionGroupListRequestBody, rules.created_groups
    ),
    Code.DELETE_SUBSCRIPTIONGROUP: on_group(DELETE, field="groupName"),
    Code.GET_SUBSCRIPTIONGROUP_CONFIG: on_group(GET, field="group"),
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: READS,
    Code.UPDATE_AND_GET_GROUP_FORBIDDEN: both(on_group(UPDATE, field="group"), on_topic(UPDATE)),
    Code.SET_MESSAGE_REQUEST_MODE: of_body(bodies.SetMessageRequestModeRequestBody, rules.request_mode),
    Code.GET_ALL_MESSAGE_REQUEST_MODE: READS,
    Code.INVOKE_BROKER_TO_RESET_OFFSET: both(on_group(UPDATE, field="group"), on_topic(UPDATE)),
    Code.CLONE_GROUP_OFFSET: rules.clone,
    Code.GET_CONSUME_STATS: rules.progress,
    Code.QUERY_CONSUME_TIME_SPAN: _progress_of_both,
    Code.QUERY_CORRECTION_OFFSET: both(on_group(GET, field="compareGroup"), on_topic(GET)),
    Code.QUERY_TOPICS_BY_CONSUMER: on_group(GET, field="group"),
    Code.QUERY_SUBSCRIPTION_BY_CONSUMER: both(on_group(GET, field="group"), rules.on_topic_if_given(GET)),
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _progress_of_both,
    Code.GET_CONSUMER_CONNECTION_LIST: on_group(GET),
    Code.GET_CONSUMER_RUNNING_INFO: on_group(GET),
    Code.CONSUME_MESSAGE_DIRECTLY: both(on_group(SUB), rules.on_topic_if_given(SUB)),  # and of the message
    Code.GET_PRODUCER_CONNECTION_LIST: READS,
    Code.GET_ALL_PRODUCER_INFO: READS,
    Code.WHO_CONSUME_THE_MESSAGE: READS,
    Code.SUSPEND_CONSUMER: CHANGES,
    Code.RESUME_CONSUMER: CHANGES,
    Code.RESET_CONSUMER_OFFSET_IN_CONSUMER: CHANGES,
    Code.RESET_CONSUMER_OFFSET_IN_BROKER: CHANGES,
    Code.ADJUST_CONSUMER_THREAD_POOL: CHANGES,
    Code.REGISTER_FILTER_SERVER: CHANGES,
    Code.REGISTER_MESSAGE_FILTER_CLASS: CHANGES,
    # Sent by brokers to clients: no server serves them.
    Code.CHECK_TRANSACTION_STATE: CHANGES,
    Code.NOTIFY_CONSUMER_IDS_CHANGED: CHANGES,
    Code.RESET_CONSUMER_CLIENT_OFFSET: CHANGES,
    Code.GET_CONSUMER_STATUS_FROM_CLIENT: CHANGES,
    Code.PUSH_REPLY_MESSAGE_TO_CLIENT: CHANGES,
    Code.GET_CLIENT_CONFIG: READS,
}

_OF_BROKERS: dict[int, Rule] = {
    Code.UPDATE_BROKER_CONFIG: CHANGES,  # Apache: nothing
    Code.GET_BROKER_CONFIG: READS,  # Apache: nothing, and the answer has secrets
    Code.GET_BROKER_RUNTIME_INFO: READS,
    Code.TRIGGER_DELETE_FILES: CHANGES,
    Code.DELETE_EXPIRED_COMMITLOG: CHANGES,
    Code.VIEW_BROKER_STATS_DATA: READS,
    Code.GET_BROKER_CONSUME_STATS: READS,
    Code.QUERY_BROKER_OFFSET: READS,
    Code.GET_ALL_CONSUMER_OFFSET: READS,
    Code.GET_ALL_DELAY_OFFSET: READS,
    Code.GET_TIMER_CHECK_POINT: READS,
    Code.GET_TIMER_METRICS: READS,
    Code.SWITCH_TIMER_ENGINE: CHANGES,
    Code.EXPORT_ROCKSDB_CONFIG_TO_JSON: READS,
    Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG: CHANGES,
    Code.REMOVE_COLD_DATA_FLOW_CTR_CONFIG: CHANGES,
    Code.GET_COLD_DATA_FLOW_CTR_INFO: READS,
    Code.SET_COMMITLOG_READ_MODE: CHANGES,
    Code.LEDGER_LIST: READS,
    Code.LEDGER_FORGET: CHANGES,
    Code.GLOBAL_RESOLVE: CHANGES,
    # Light queues of 5.5 through the proxy, which are not served.
    Code.POP_LITE_MESSAGE: CHANGES,
    Code.LITE_SUBSCRIPTION_CTL: CHANGES,
    Code.ACK_LITE_MESSAGE: CHANGES,
    Code.NOTIFY_UNSUBSCRIBE_LITE: CHANGES,
    Code.TRIGGER_LITE_DISPATCH: CHANGES,
    Code.GET_BROKER_LITE_INFO: READS,
    Code.GET_PARENT_TOPIC_INFO: READS,
    Code.GET_LITE_TOPIC_INFO: READS,
    Code.GET_LITE_CLIENT_INFO: READS,
    Code.GET_LITE_GROUP_INFO: READS,
}

_OF_REPLICAS: dict[int, Rule] = {
    Code.ADD_BROKER: CHANGES,
    Code.REMOVE_BROKER: CHANGES,
    Code.NOTIFY_MIN_BROKER_ID_CHANGE: CHANGES,
    Code.EXCHANGE_BROKER_HA_INFO: CHANGES,
    Code.GET_BROKER_HA_STATUS: READS,
    Code.RESET_MASTER_FLUSH_OFFSET: CHANGES,
    Code.CONTROLLER_ALTER_SYNC_STATE_SET: CHANGES,
    Code.CONTROLLER_ELECT_MASTER: CHANGES,
    Code.CONTROLLER_REGISTER_BROKER: CHANGES,
    Code.CONTROLLER_GET_REPLICA_INFO: READS,
    Code.CONTROLLER_GET_METADATA_INFO: READS,
    Code.CONTROLLER_GET_SYNC_STATE_DATA: READS,
    Code.GET_BROKER_EPOCH_CACHE: READS,
    Code.NOTIFY_BROKER_ROLE_CHANGED: CHANGES,
    Code.UPDATE_CONTROLLER_CONFIG: CHANGES,
    Code.GET_CONTROLLER_CONFIG: READS,
    Code.CLEAN_BROKER_DATA: CHANGES,
    Code.CONTROLLER_GET_NEXT_BROKER_ID: READS,
    Code.CONTROLLER_APPLY_BROKER_ID: CHANGES,
    Code.REPLICA_COMPARE: READS,
    Code.REPLICA_STATUS: READS,
    Code.REPLICA_PROMOTE: CHANGES,
    Code.REPLICA_GIVEN_OFFSETS: CHANGES,
    Code.RAFT_STATUS: READS,
    Code.RAFT_TRANSFER: CHANGES,
    # Members of a DLedger group read and write messages of every topic.
    **dict.fromkeys(DLedgerCode, CHANGES),
    DLedgerCode.METADATA: READS,
}
"""Requests between brokers, and of tools about copies of a log."""

_OF_NAME_SERVERS: dict[int, Rule] = {
    Code.GET_ROUTEINFO_BY_TOPIC: rules.route,
    Code.GET_BROKER_CLUSTER_INFO: READS,
    Code.GET_BROKER_MEMBER_GROUP: READS,
    Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: READS,
    Code.GET_TOPICS_BY_CLUSTER: READS,
    Code.GET_SYSTEM_TOPIC_LIST_FROM_NS: READS,
    Code.GET_UNIT_TOPIC_LIST: READS,
    Code.GET_HAS_UNIT_SUB_TOPIC_LIST: READS,
    Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: READS,
    Code.GET_KV_CONFIG: rules.value_of_namespace,
    Code.GET_KVLIST_BY_NAMESPACE: READS,
    Code.GET_NAMESRV_CONFIG: READS,
    Code.PUT_KV_CONFIG: CHANGES,
    Code.DELETE_KV_CONFIG: CHANGES,
    Code.REGISTER_BROKER: CHANGES,
    Code.UNREGISTER_BROKER: CHANGES,
    Code.BROKER_HEARTBEAT: CHANGES,
    Code.QUERY_DATA_VERSION: CHANGES,  # Apache: Get; but the question counts as a sign of life of that broker
    Code.WIPE_WRITE_PERM_OF_BROKER: CHANGES,
    Code.ADD_WRITE_PERM_OF_BROKER: CHANGES,
    Code.DELETE_TOPIC_IN_NAMESRV: CHANGES,
    Code.REGISTER_TOPIC_IN_NAMESRV: CHANGES,
    Code.UPDATE_NAMESRV_CONFIG: CHANGES,
}

_OF_USERS: dict[int, Rule] = {
    Code.UPDATE_AND_CREATE_ACL_CONFIG: CHANGES,
    Code.DELETE_ACL_CONFIG: CHANGES,
    Code.GET_BROKER_CLUSTER_ACL_INFO: READS,
    Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: CHANGES,
    Code.GET_BROKER_CLUSTER_ACL_CONFIG: CHANGES,  # the answer has all accounts
    Code.AUTH_CREATE_USER: CHANGES,
    Code.AUTH_UPDATE_USER: CHANGES,
    Code.AUTH_DELETE_USER: CHANGES,
    Code.AUTH_GET_USER: READS,
    Code.AUTH_LIST_USER: READS,
    Code.AUTH_CREATE_ACL: CHANGES,
    Code.AUTH_UPDATE_ACL: CHANGES,
    Code.AUTH_DELETE_ACL: CHANGES,
    Code.AUTH_GET_ACL: READS,
    Code.AUTH_LIST_ACL: READS,
    Code.AUTH_EXPLAIN: READS,
}
"""Requests about access control itself. Super users are changed by super users only: `book.py`."""

NEEDS: dict[int, Rule] = {
    **_OF_CLIENTS,
    **_OF_TOPICS,
    **_OF_GROUPS,
    **_OF_BROKERS,
    **_OF_REPLICAS,
    **_OF_NAME_SERVERS,
    **_OF_USERS,
}
"""The rule of every request code."""

OF_STORED: dict[int, Action] = {
    Code.VIEW_MESSAGE_BY_ID: GET,
    Code.END_TRANSACTION: PUB,
    Code.CONSUMER_SEND_MSG_BACK: SUB,
    Code.CONSUME_MESSAGE_DIRECTLY: SUB,
    Code.RESUME_CHECK_HALF_MESSAGE: UPDATE,
}
"""Requests that name a message by its place in the log, and what they need on the topic of that message."""

OPEN_AT_NAME_SERVER: frozenset[int] = frozenset(
    {
        Code.GET_ROUTEINFO_BY_TOPIC,
        Code.GET_BROKER_CLUSTER_INFO,
        Code.GET_BROKER_MEMBER_GROUP,
        Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        Code.GET_TOPICS_BY_CLUSTER,
        Code.GET_SYSTEM_TOPIC_LIST_FROM_NS,
        Code.GET_UNIT_TOPIC_LIST,
        Code.GET_HAS_UNIT_SUB_TOPIC_LIST,
        Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
    }
)
"""Requests that a name server with open reads answers to everybody: where topics and brokers are."""


def is_open_at_name_server(command: Command) -> bool:
    """Returns whether a name server with open reads answers a request to everybody.

    Of its values only those are open that say where the messages of a topic are.
    """
    if command.code == Code.GET_KV_CONFIG:
        return (command.ext or {}).get("namespace") in rules.OF_ROUTES
    return command.code in OPEN_AT_NAME_SERVER


def needs_of(command: Command, cluster: str) -> tuple[Need, ...]:
    """Returns what a request needs; raises NoPermission without a row, Refused for an unreadable body."""
    rule = NEEDS.get(command.code)
    if rule is None:
        raise NoPermission(f"request code {command.code} is not permitted: no rule says what it needs")
    try:
        return rule(command, cluster)
    except BrokenBody as broken:
        raise SystemFailure(f"{type(broken).__name__}: {broken}") from None


def needs_of_stored(code: int, topic: str, real_topic: str | None, cluster: str) -> tuple[Need, ...]:
    """Returns what a request of `OF_STORED` needs for the message that its handler found.

    `topic` is that of the record, `real_topic` its property REAL_TOPIC: where a message that waits will go.
    """
    is_waiting = topic in rules.OF_OTHERS and real_topic is not None
    return rules.topic_needs(real_topic if is_waiting and real_topic else topic, cluster, OF_STORED[code])
