"""Bodies about queues: locks, assignments and acknowledgements."""

from typing import Annotated

from turbopump.protocol.bodies.base import Body, WireQueue, always, empty_list, empty_map
from turbopump.protocol.bodies.clients import MessageModel
from turbopump.protocol.bodies.lenient import java_enum
from turbopump.protocol.headers.base import I32, I64

MessageRequestMode = Annotated[str, java_enum("PULL", "POP")]


class LockBatchRequestBody(Body):
    clientId: str = always("")
    consumerGroup: str = always("")
    mqSet: list[WireQueue] = empty_list()
    onlyThisBroker: bool | None = None


class UnlockBatchRequestBody(LockBatchRequestBody):
    pass


class LockBatchResponseBody(Body):
    lockOKMQSet: list[WireQueue] = empty_list()


class QueryAssignmentRequestBody(Body):
    clientId: str = always("")
    consumerGroup: str = always("")
    messageModel: MessageModel = always("CLUSTERING")
    strategyName: str = always("AVG")
    topic: str = always("")


class MessageQueueAssignment(Body):
    attachments: dict[str, str] | None = None
    messageQueue: WireQueue | None = None
    mode: str = always("PULL")


class QueryAssignmentResponseBody(Body):
    messageQueueAssignments: list[MessageQueueAssignment] | None = None


class SetMessageRequestModeRequestBody(Body):
    consumerGroup: str = always("")
    mode: MessageRequestMode = always("PULL")
    popShareQueueNum: I32 = always(0)
    topic: str = always("")


class MessageRequestModeTable(Body):
    """Pull or pop mode by topic and group: the answer to request 402, and messageRequestMode.json."""

    messageRequestModeMap: dict[str, dict[str, SetMessageRequestModeRequestBody]] = empty_map()


class BatchAck(Body):
    """Acknowledges popped messages of a queue: bit i of `b` stands for queue offset `so` + i.

    `b` is the base64 of a bit set in little-endian order.
    """

    b: str = always("")
    c: str = always("")
    it: I64 = always(0)
    pt: I64 = always(0)
    q: I32 = always(0)
    r: str = always("0")
    rq: I32 = always(0)
    so: I64 = always(0)
    t: str = always("")


class BatchAckMessageRequestBody(Body):
    acks: list[BatchAck] = empty_list()
    brokerName: str = always("")
