"""A link of the `before` chain for slaves and followers: they store nothing and change no table of their own.

The table has every request code. What a slave knows later than its master (topics above all) must not decide
here what is deleted: a request that does so is refused too.
"""

from enum import Enum

from turbopump.protocol.codes import RequestCode as Code
from turbopump.protocol.command import Command
from turbopump.protocol.errors import ServiceNotAvailable
from turbopump.remoting.connection import Connection


class SlaveRule(Enum):
    """What a slave does with a request: serve it, refuse it, or it has no handler in any broker."""

    SERVED = "served"
    REFUSED = "refused"
    NO_HANDLER = "no handler"


_SERVED = (
    # Consumers read from a slave, and commit what they have read; it brings the offsets to its master.
    *(Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE, Code.QUERY_MESSAGE, Code.VIEW_MESSAGE_BY_ID),
    *(Code.QUERY_CONSUMER_OFFSET, Code.UPDATE_CONSUMER_OFFSET, Code.SEARCH_OFFSET_BY_TIMESTAMP),
    *(Code.GET_MAX_OFFSET, Code.GET_MIN_OFFSET, Code.GET_EARLIEST_MSG_STORETIME),
    *(Code.HEART_BEAT, Code.UNREGISTER_CLIENT, Code.CHECK_CLIENT_CONFIG, Code.GET_CONSUMER_LIST_BY_GROUP),
    *(Code.LOCK_BATCH_MQ, Code.UNLOCK_BATCH_MQ, Code.QUERY_ASSIGNMENT),
    # Tools look at it, and at the clients that are connected to it.
    *(Code.GET_ALL_TOPIC_CONFIG, Code.GET_TOPIC_CONFIG, Code.GET_TOPIC_STATS_INFO),
    *(Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, Code.QUERY_TOPIC_CONSUME_BY_WHO, Code.QUERY_CONSUME_QUEUE),
    *(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, Code.GET_SUBSCRIPTIONGROUP_CONFIG),
    *(Code.GET_CONSUME_STATS, Code.GET_BROKER_CONSUME_STATS, Code.QUERY_CONSUME_TIME_SPAN),
    *(Code.QUERY_CORRECTION_OFFSET, Code.QUERY_TOPICS_BY_CONSUMER, Code.QUERY_SUBSCRIPTION_BY_CONSUMER),
    *(Code.GET_CONSUMER_CONNECTION_LIST, Code.GET_PRODUCER_CONNECTION_LIST, Code.GET_ALL_PRODUCER_INFO),
    *(Code.GET_CONSUMER_RUNNING_INFO, Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS),
    *(Code.CONSUME_MESSAGE_DIRECTLY, Code.VIEW_BROKER_STATS_DATA, Code.GET_BROKER_RUNTIME_INFO),
    # Its own settings, accounts of its own file, and files that have expired here and at its master.
    *(Code.GET_BROKER_CONFIG, Code.UPDATE_BROKER_CONFIG, Code.DELETE_EXPIRED_COMMITLOG),
    *(Code.UPDATE_AND_CREATE_ACL_CONFIG, Code.DELETE_ACL_CONFIG, Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG),
    *(Code.GET_BROKER_CLUSTER_ACL_INFO, Code.GET_BROKER_CLUSTER_ACL_CONFIG),
    *(Code.AUTH_GET_USER, Code.AUTH_LIST_USER, Code.AUTH_GET_ACL, Code.AUTH_LIST_ACL, Code.AUTH_EXPLAIN),
    # Copies of the log.
    *(Code.GET_ALL_CONSUMER_OFFSET, Code.GET_ALL_DELAY_OFFSET, Code.GET_ALL_MESSAGE_REQUEST_MODE),
    *(Code.GET_TIMER_CHECK_POINT, Code.GET_TIMER_METRICS, Code.GET_BROKER_HA_STATUS),
    *(Code.REPLICA_COMPARE, Code.REPLICA_STATUS, Code.REPLICA_PROMOTE, Code.REPLICA_GIVEN_OFFSETS),
    *(Code.RAFT_STATUS, Code.RAFT_TRANSFER),
)

_REFUSED = (
    # They store a message, or a record of a transaction.
    *(Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE, Code.CONSUMER_SEND_MSG_BACK),
    *(Code.SEND_REPLY_MESSAGE, Code.SEND_REPLY_MESSAGE_V2, Code.END_TRANSACTION, Code.RECALL_MESSAGE),
    *(Code.LEDGER_OPEN, Code.LEDGER_SEND, Code.LEDGER_DECIDE, Code.LEDGER_END, Code.LEDGER_FORGET),
    *(Code.GLOBAL_OPEN, Code.GLOBAL_APPEND, Code.GLOBAL_DECIDE, Code.GLOBAL_CLAIM, Code.GLOBAL_RESOLVE),
    Code.RESUME_CHECK_HALF_MESSAGE,
    # They read what only a master has opened: "not known" would be a wrong answer.
    *(Code.LEDGER_READ, Code.LEDGER_LIST, Code.GLOBAL_READ),
    # They change a table that the master's replaces.
    *(Code.UPDATE_AND_CREATE_TOPIC, Code.UPDATE_AND_CREATE_TOPIC_LIST, Code.DELETE_TOPIC_IN_BROKER),
    *(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST),
    *(Code.DELETE_SUBSCRIPTIONGROUP, Code.UPDATE_AND_GET_GROUP_FORBIDDEN, Code.SET_MESSAGE_REQUEST_MODE),
    *(Code.INVOKE_BROKER_TO_RESET_OFFSET, Code.CLONE_GROUP_OFFSET),
    *(Code.AUTH_CREATE_USER, Code.AUTH_UPDATE_USER, Code.AUTH_DELETE_USER),
    *(Code.AUTH_CREATE_ACL, Code.AUTH_UPDATE_ACL, Code.AUTH_DELETE_ACL),
    # They delete the queues of topics that this broker does not know, perhaps not yet.
    *(Code.CLEAN_UNUSED_TOPIC, Code.CLEAN_EXPIRED_CONSUMEQUEUE),
)

_WITHOUT_HANDLER = (
    # Served by name servers.
    *(Code.PUT_KV_CONFIG, Code.GET_KV_CONFIG, Code.DELETE_KV_CONFIG, Code.GET_KVLIST_BY_NAMESPACE),
    *(Code.REGISTER_BROKER, Code.UNREGISTER_BROKER, Code.BROKER_HEARTBEAT, Code.QUERY_DATA_VERSION),
    *(Code.GET_ROUTEINFO_BY_TOPIC, Code.GET_BROKER_CLUSTER_INFO, Code.GET_BROKER_MEMBER_GROUP),
    *(Code.WIPE_WRITE_PERM_OF_BROKER, Code.ADD_WRITE_PERM_OF_BROKER),
    *(
        Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        Code.GET_TOPICS_BY_CLUSTER,
        Code.GET_SYSTEM_TOPIC_LIST_FROM_NS,
    ),
    *(Code.GET_UNIT_TOPIC_LIST, Code.GET_HAS_UNIT_SUB_TOPIC_LIST, Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST),
    *(Code.DELETE_TOPIC_IN_NAMESRV, Code.REGISTER_TOPIC_IN_NAMESRV),
    *(Code.UPDATE_NAMESRV_CONFIG, Code.GET_NAMESRV_CONFIG),
    # Served by clients.
    *(Code.CHECK_TRANSACTION_STATE, Code.NOTIFY_CONSUMER_IDS_CHANGED, Code.RESET_CONSUMER_CLIENT_OFFSET),
    *(Code.GET_CONSUMER_STATUS_FROM_CLIENT, Code.PUSH_REPLY_MESSAGE_TO_CLIENT, Code.GET_CLIENT_CONFIG),
    # Served by no broker: old requests, and features that are not there.
    *(Code.QUERY_BROKER_OFFSET, Code.GET_TOPIC_CONFIG_LIST, Code.GET_TOPIC_NAME_LIST),
    *(Code.TRIGGER_DELETE_FILES, Code.SUSPEND_CONSUMER, Code.RESUME_CONSUMER),
    *(Code.RESET_CONSUMER_OFFSET_IN_CONSUMER, Code.RESET_CONSUMER_OFFSET_IN_BROKER),
    *(Code.ADJUST_CONSUMER_THREAD_POOL, Code.WHO_CONSUME_THE_MESSAGE),
    *(Code.REGISTER_FILTER_SERVER, Code.REGISTER_MESSAGE_FILTER_CLASS),
    *(Code.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, Code.EXPORT_ROCKSDB_CONFIG_TO_JSON),
    *(Code.UPDATE_AND_CREATE_STATIC_TOPIC, Code.SWITCH_TIMER_ENGINE, Code.SET_COMMITLOG_READ_MODE),
    *(Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, Code.REMOVE_COLD_DATA_FLOW_CTR_CONFIG),
    Code.GET_COLD_DATA_FLOW_CTR_INFO,
    *(Code.ADD_BROKER, Code.REMOVE_BROKER, Code.NOTIFY_MIN_BROKER_ID_CHANGE, Code.EXCHANGE_BROKER_HA_INFO),
    *(Code.RESET_MASTER_FLUSH_OFFSET, Code.GET_BROKER_EPOCH_CACHE, Code.NOTIFY_BROKER_ROLE_CHANGED),
    *(Code.CONTROLLER_ALTER_SYNC_STATE_SET, Code.CONTROLLER_ELECT_MASTER, Code.CONTROLLER_REGISTER_BROKER),
    *(Code.CONTROLLER_GET_REPLICA_INFO, Code.CONTROLLER_GET_METADATA_INFO),
    *(Code.CONTROLLER_GET_SYNC_STATE_DATA, Code.UPDATE_CONTROLLER_CONFIG, Code.GET_CONTROLLER_CONFIG),
    *(Code.CLEAN_BROKER_DATA, Code.CONTROLLER_GET_NEXT_BROKER_ID, Code.CONTROLLER_APPLY_BROKER_ID),
    *(Code.POP_MESSAGE, Code.ACK_MESSAGE, Code.BATCH_ACK_MESSAGE, Code.PEEK_MESSAGE),
    *(Code.CHANGE_MESSAGE_INVISIBLETIME, Code.NOTIFICATION, Code.POLLING_INFO, Code.POP_ROLLBACK),
    *(Code.POP_LITE_MESSAGE, Code.LITE_SUBSCRIPTION_CTL, Code.ACK_LITE_MESSAGE),
    *(Code.NOTIFY_UNSUBSCRIBE_LITE, Code.GET_BROKER_LITE_INFO, Code.GET_PARENT_TOPIC_INFO),
    *(Code.GET_LITE_TOPIC_INFO, Code.GET_LITE_CLIENT_INFO, Code.GET_LITE_GROUP_INFO),
    Code.TRIGGER_LITE_DISPATCH,
)

RULES: dict[int, SlaveRule] = {
    **dict.fromkeys(_SERVED, SlaveRule.SERVED),
    **dict.fromkeys(_REFUSED, SlaveRule.REFUSED),
    **dict.fromkeys(_WITHOUT_HANDLER, SlaveRule.NO_HANDLER),
}
"""What a slave, or a follower of a DLedger group, does with each request code."""


class SlaveRules:
    """Refuses the requests that only a master may serve."""

    def check(self, command: Command, connection: Connection) -> None:
        if RULES.get(command.code) is SlaveRule.REFUSED:
            raise ServiceNotAvailable(
                "service not available now. It may be caused by one of the following reasons: "
                "messages are put to the slave; this broker is a slave, ask its master"
            )

    def permits_plain_sends(self, connection: Connection) -> bool:
        return False
