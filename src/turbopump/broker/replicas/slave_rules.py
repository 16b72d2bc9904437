"""A link of the `before` chain for slaves: they store nothing, and change no table of their own."""

from turbopump.protocol.codes import RequestCode as Code
from turbopump.protocol.command import Command
from turbopump.protocol.errors import ServiceNotAvailable
from turbopump.remoting.connection import Connection

FOR_MASTERS = frozenset(
    (
        *(Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE, Code.CONSUMER_SEND_MSG_BACK),
        *(Code.SEND_REPLY_MESSAGE, Code.SEND_REPLY_MESSAGE_V2, Code.END_TRANSACTION, Code.RECALL_MESSAGE),
        *(Code.LEDGER_OPEN, Code.LEDGER_SEND, Code.LEDGER_DECIDE, Code.LEDGER_END, Code.LEDGER_FORGET),
        *(Code.GLOBAL_OPEN, Code.GLOBAL_APPEND, Code.GLOBAL_DECIDE, Code.GLOBAL_CLAIM, Code.GLOBAL_READ),
        Code.GLOBAL_RESOLVE,
        *(Code.UPDATE_AND_CREATE_TOPIC, Code.DELETE_TOPIC_IN_BROKER, Code.RESUME_CHECK_HALF_MESSAGE),
        *(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, Code.DELETE_SUBSCRIPTIONGROUP),
        Code.SET_MESSAGE_REQUEST_MODE,
        *(Code.INVOKE_BROKER_TO_RESET_OFFSET, Code.CLONE_GROUP_OFFSET),
        *(Code.AUTH_CREATE_USER, Code.AUTH_UPDATE_USER, Code.AUTH_DELETE_USER),
        *(Code.AUTH_CREATE_ACL, Code.AUTH_UPDATE_ACL, Code.AUTH_DELETE_ACL),
    )
)
"""Requests that a slave refuses: they would change what its master decides."""


class SlaveRules:
    """Refuses the requests that only a master may serve."""

    def check(self, command: Command, connection: Connection) -> None:
        if command.code in FOR_MASTERS:
            raise ServiceNotAvailable(
                "service not available now. It may be caused by one of the following reasons: "
                "messages are put to the slave; this broker is a slave, ask its master"
            )

    def permits_plain_sends(self, connection: Connection) -> bool:
        return False
