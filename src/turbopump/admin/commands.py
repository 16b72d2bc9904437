"""The table of all commands of mqadmin, by area."""

from turbopump.admin import (
    accounts,
    broker,
    cluster,
    connection,
    consumer,
    export,
    ha,
    message,
    namesrv,
    offset,
    queue,
    stats,
    topic,
    users,
)
from turbopump.admin.command import AdminCommand
from turbopump.admin.sending import CHECK_MSG_SEND_RT

AREAS: dict[str, tuple[AdminCommand, ...]] = {
    "topic": topic.COMMANDS,
    "consumer": consumer.COMMANDS,
    "broker": broker.COMMANDS,
    "message": (*message.COMMANDS, CHECK_MSG_SEND_RT),
    "offset": offset.COMMANDS,
    "queue": queue.COMMANDS,
    "cluster": cluster.COMMANDS,
    "connection": connection.COMMANDS,
    "producer": connection.PRODUCER_COMMANDS,
    "namesrv": namesrv.COMMANDS,
    "stats": stats.COMMANDS,
    "auth": users.COMMANDS,
    "acl": accounts.COMMANDS,
    "ha": ha.COMMANDS,
    "export": export.COMMANDS,
}

BY_NAME: dict[str, AdminCommand] = {
    name.lower(): command
    for commands in AREAS.values()
    for command in commands
    for name in (command.name, *command.aliases)
}
