"""Commands for connections: producers and consumers of a group, and all producers of a broker."""

from turbopump.admin.command import AdminCommand, Call
from turbopump.admin.options import host_port, optional, required, text
from turbopump.admin.render import TextTable, fields
from turbopump.protocol.bodies import ClientConnection
from turbopump.protocol.codes import version_name

PRODUCER_GROUP = required("g", "producerGroup", "producer group name", text)
TOPIC = required("t", "topic", "topic name", text)
CONSUMER_GROUP = required("g", "consumerGroup", "consumer group name", text)
BROKER = optional("b", "brokerAddr", "broker address", host_port)
OF_BROKER = required("b", "broker", "broker address", host_port)

PRODUCERS = "%04d  %-32s %-22s %-8s %s"
CLIENTS = TextTable("%-36s %-22s %-10s %s", ("#ClientId", "#ClientAddr", "#Language", "#Version"))
SUBSCRIPTIONS = TextTable("%-20s %s", ("#Topic", "#SubExpression"))


async def producer_connection(call: Call) -> None:
    found = await call.admin.connections.producers(call.given[PRODUCER_GROUP], call.given[TOPIC])
    lines = [
        PRODUCERS % (number, *client_row(connection))
        for number, connection in enumerate(found.connectionSet, 1)
    ]
    call.out.show({"connections": [client_fields(each) for each in found.connectionSet]}, lines)


async def consumer_connection(call: Call) -> None:
    group, broker = call.given[CONSUMER_GROUP], call.given[BROKER]
    connections = call.admin.connections
    found = await (connections.consumers_at(broker, group) if broker else connections.consumers(group))
    subscriptions = [data for _, data in sorted(found.subscriptionTable.items())]
    lines = [
        *CLIENTS.lines(client_row(each) for each in found.connectionSet),
        "",
        "Below is subscription:",
        *SUBSCRIPTIONS.lines((data.topic, data.subString) for data in subscriptions),
        "",
        f"ConsumeType: {found.consumeType}",
        f"MessageModel: {found.messageModel}",
        f"ConsumeFromWhere: {found.consumeFromWhere}",
    ]
    document = {
        "connections": [client_fields(each) for each in found.connectionSet],
        "subscriptions": fields(subscriptions),
        "consumeType": found.consumeType,
        "messageModel": found.messageModel,
        "consumeFromWhere": found.consumeFromWhere,
    }
    call.out.show(document, lines)


async def producer(call: Call) -> None:
    groups = await call.admin.connections.all_producers(call.given[OF_BROKER])
    lines = []
    for group, clients in sorted(groups.items()):
        if not clients:
            lines.append(f"producer group ({group}) instances are empty")
        lines += [
            f"producer group ({group}) instance : clientId={each.clientId},remoteIP={each.remoteIP}, "
            f"language={each.language}, version={each.version}, "
            f"lastUpdateTimestamp={each.lastUpdateTimestamp}"
            for each in clients
        ]
    document = [{"group": group, "producers": fields(clients)} for group, clients in sorted(groups.items())]
    call.out.show({"groups": document}, lines)


def client_row(connection: ClientConnection) -> tuple[str, str, str, str]:
    version = version_name(connection.version)
    return connection.clientId, connection.clientAddr, connection.language, version


def client_fields(connection: ClientConnection) -> dict[str, object]:
    return {**fields(connection), "versionDesc": version_name(connection.version)}


COMMANDS = (
    AdminCommand(
        "producerConnection",
        "Query producer's socket connection and client version.",
        producer_connection,
        (PRODUCER_GROUP, TOPIC),
    ),
    AdminCommand(
        "consumerConnection",
        "Query consumer's socket connection, client version and subscription.",
        consumer_connection,
        (CONSUMER_GROUP, BROKER),
    ),
)
PRODUCER_COMMANDS = (
    AdminCommand("producer", "Query producer's instances, connection, status, etc.", producer, (OF_BROKER,)),
)
