"""What the tests of ordered share with others."""

from tests.unit.admin.kit import MemoryCluster

from turbopump.client.message import Message, MessageQueue

QUEUES = [MessageQueue("orders", "broker-a", number) for number in range(8)]


async def send_in_order(town: MemoryCluster, queue: int, start: int, count: int) -> None:
    for number in range(start, start + count):
        await town.producer.send_to(QUEUES[queue], Message("orders", f"{queue}:{number:03d}".encode()))
