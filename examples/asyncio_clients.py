"""The asyncio client, turbopump.aio: many concurrent sends and an `async def` handler."""

import asyncio

from turbopump.aio import Consumer, Message, MessageExt, Producer


async def main() -> None:
    async with Producer("sensors") as producer:
        messages = [Message("ReadingTopic", b"%d degrees" % number) for number in range(100)]
        receipts = await asyncio.gather(*(producer.send(message) for message in messages))
        print(f"sent: {len(receipts)} messages to {len({receipt.queue for receipt in receipts})} queues")

    consumer = Consumer("display")
    readings: asyncio.Queue[str] = asyncio.Queue()

    @consumer.on("ReadingTopic")
    async def show(message: MessageExt) -> None:  # up to consume_thread_max of them run at a time
        await readings.put(message.text)

    async with consumer:
        shown = [await asyncio.wait_for(readings.get(), 30) for _ in receipts]
    print(f"consumed: {len(shown)} messages, {len(set(shown))} different ones")


asyncio.run(main())
