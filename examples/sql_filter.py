"""SQL92: a group gets the messages whose properties match an expression.

The broker filters, as it does with tags. `turbopump up` serves expressions; a separate broker does with
enablePropertyFilter=true.
"""

import queue

from turbopump import Consumer, Message, MessageExt, Producer

SALES = (("A-1", "99", "EU"), ("A-2", "250", "EU"), ("A-3", "400", "US"), ("A-4", "120", "UK"))

with Producer("shop") as producer:
    for number, amount, region in SALES:
        producer.send(Message("SaleTopic", number.encode(), properties={"amount": amount, "region": region}))

consumer = Consumer("auditors")
audited: queue.SimpleQueue[str] = queue.SimpleQueue()


@consumer.on("SaleTopic", sql="amount BETWEEN 100 AND 300 AND region IN ('EU', 'UK')")
def audit(message: MessageExt) -> None:
    audited.put(message.text)


with consumer:
    print("audited:", *sorted(audited.get(timeout=30) for _ in range(2)))
