"""Commands of topics: create, change, delete, and what there is to know about them."""

from turbopump.admin.command import Call, Command
from turbopump.admin.options import flag, required, text
from turbopump.admin.render import Table, fields
from turbopump.protocol import dialect
from turbopump.protocol.bodies import TopicRouteData

TOPIC = required("t", "topic", "topic name", text)
AS_LIST = flag("l", "list", "Use list format to print data")

ROUTE = Table(
    "%-45s %-32s %-50s %-10s %-11s %-5s",
    ("#ClusterName", "#BrokerName", "#BrokerAddrs", "#ReadQueue", "#WriteQueue", "#Perm"),
)


async def topic_list(call: Call) -> None:
    names = await call.admin.topics.names()
    call.out.show({"topics": names}, names)


async def topic_route(call: Call) -> None:
    route = await call.admin.topics.route(call.given[TOPIC])
    lines = route_lines(route) if call.given[AS_LIST] else [dialect.dumps_pretty(route).decode()]
    call.out.show(fields(route), lines)


def route_lines(route: TopicRouteData) -> list[str]:
    queues = {data.brokerName: data for data in route.queueDatas}
    rows = []
    for broker in sorted(route.brokerDatas, key=lambda broker: broker.brokerName):
        data = queues[broker.brokerName]
        addresses = ", ".join(f"{number}={at}" for number, at in sorted(broker.brokerAddrs.items()))
        counts = (data.readQueueNums, data.writeQueueNums, data.perm)
        rows.append((broker.cluster, broker.brokerName, f"{{{addresses}}}", *counts))
    read = sum(data.readQueueNums for data in route.queueDatas)
    write = sum(data.writeQueueNums for data in route.queueDatas)
    return [*ROUTE.lines(rows), "-" * 158, ROUTE.row("Total:", len(queues), "", read, write, "")]


COMMANDS = (
    Command("topicRoute", "Examine topic route info.", topic_route, (TOPIC, AS_LIST)),
    Command("topicList", "Fetch all topic list from name server.", topic_list),
)
