"""Headers of sends (10, 310, 320, 324, 325), and of later requests: send back, end transaction, recall.

The one-letter fields of the V2 header have the long names of the first version here, so a handler reads both
in the same way. For plain sends `SEND_V2_DECODER` and `SEND_DECODER` decode the whole JSON header in one
step; what they reject (`msgspec.MsgspecError`, `UnicodeDecodeError`) goes through the general path.
"""

import msgspec

from turbopump.protocol.headers.base import I32, I64, Header

DEFAULT_QUEUES = 4
"""Queues of a topic that a send creates, unless the sender gives a number; Java's producers send this."""


class SendMessageRequest(Header):
    """Requests 10 (send) and 324 (reply). Required: queue id, both flags, born time; all else has a default.

    The defaults are for fields without which Java accepts a send.
    """

    queueId: I32
    sysFlag: I32
    bornTimestamp: I64
    flag: I32
    producerGroup: str = ""
    topic: str = ""
    defaultTopic: str = ""
    defaultTopicQueueNums: I32 = DEFAULT_QUEUES
    properties: str | None = None
    reconsumeTimes: I32 = 0
    unitMode: bool = False
    batch: bool = False
    maxReconsumeTimes: I32 | None = None
    bname: str | None = None


class SendMessageV2Request(
    SendMessageRequest,
    rename={
        "producerGroup": "a",
        "topic": "b",
        "defaultTopic": "c",
        "defaultTopicQueueNums": "d",
        "queueId": "e",
        "sysFlag": "f",
        "bornTimestamp": "g",
        "flag": "h",
        "properties": "i",
        "reconsumeTimes": "j",
        "unitMode": "k",
        "maxReconsumeTimes": "l",
        "batch": "m",
        "bname": "n",
    },
):
    """Requests 310, 320 (batch) and 325 (reply): `SendMessageRequest` with one-letter names on the wire."""

    queueId: I32
    sysFlag: I32
    bornTimestamp: I64
    flag: I32
    producerGroup: str = ""
    topic: str = ""
    defaultTopic: str = ""
    defaultTopicQueueNums: I32 = DEFAULT_QUEUES
    properties: str | None = None
    reconsumeTimes: I32 = 0
    unitMode: bool = False
    maxReconsumeTimes: I32 | None = None
    batch: bool = False
    bname: str | None = None


class SendMessageResponse(Header):
    msgId: str
    queueId: I32
    queueOffset: I64
    transactionId: str | None = None
    batchUniqId: str | None = None
    recallHandle: str | None = None
    MSG_REGION: str | None = None
    TRACE_ON: str | None = None


class PushReplyMessageRequest(Header):
    """Request 326, broker to the client that sent a request message: its reply, with the body."""

    producerGroup: str
    topic: str
    defaultTopic: str
    defaultTopicQueueNums: I32
    queueId: I32
    sysFlag: I32
    bornTimestamp: I64
    flag: I32
    bornHost: str
    storeHost: str
    storeTimestamp: I64
    properties: str | None = None
    reconsumeTimes: I32 = 0
    unitMode: bool = False


class ConsumerSendMsgBackRequest(Header):
    """Request 36, consumer to broker: deliver the message at log offset `offset` again later."""

    offset: I64
    group: str
    delayLevel: I32
    originMsgId: str | None = None
    originTopic: str | None = None
    unitMode: bool = False
    maxReconsumeTimes: I32 | None = None
    bname: str | None = None


class EndTransactionRequest(Header):
    """Request 37, producer to broker: commit or roll back the half message at `commitLogOffset`."""

    producerGroup: str
    tranStateTableOffset: I64
    commitLogOffset: I64
    commitOrRollback: I32
    msgId: str
    fromTransactionCheck: bool = False
    transactionId: str | None = None
    topic: str | None = None
    bname: str | None = None


class CheckTransactionStateRequest(Header):
    """Request 39, broker to producer: how did the transaction of this half message end?"""

    tranStateTableOffset: I64
    commitLogOffset: I64
    topic: str | None = None
    msgId: str | None = None
    transactionId: str | None = None
    offsetMsgId: str | None = None
    bname: str | None = None


class RecallMessageRequest(Header):
    """Request 370, producer to broker: cancel a timed message by its recall handle."""

    topic: str
    recallHandle: str
    producerGroup: str | None = None
    bname: str | None = None


class RecallMessageResponse(Header):
    msgId: str
    MSG_REGION: str | None = None


class ResumeCheckHalfMessageRequest(Header):
    """Request 323, tool to broker: check a half message again whose checks were given up."""

    msgId: str | None = None
    topic: str | None = None


class PlainSend(msgspec.Struct, gc=False, kw_only=True):
    """The fields of a header with long names that `broker/produce/plain_sends.py` needs; others are skipped.

    Fields that are not decoded cost nothing.
    """

    topic: str
    queueId: I32
    sysFlag: I32
    bornTimestamp: I64
    flag: I32
    properties: str
    reconsumeTimes: I32 = 0
    batch: bool = False


class PlainSendV2(
    PlainSend,
    rename={
        "topic": "b",
        "queueId": "e",
        "sysFlag": "f",
        "bornTimestamp": "g",
        "flag": "h",
        "properties": "i",
        "reconsumeTimes": "j",
        "batch": "m",
    },
    gc=False,
    kw_only=True,
):
    """`PlainSend` with the one-letter names of the V2 header on the wire."""

    topic: str
    queueId: I32
    sysFlag: I32
    bornTimestamp: I64
    flag: I32
    properties: str
    reconsumeTimes: I32 = 0
    batch: bool = False


class SendFrame(msgspec.Struct, gc=False):
    """The whole JSON header of a send with one-letter names. `version` only has to be a 32-bit integer."""

    extFields: PlainSendV2
    code: I32 = 0
    flag: I32 = 0
    opaque: I32 = 0
    version: I32 = 0


class LongSendFrame(msgspec.Struct, gc=False):
    """The whole JSON header of a send with long names. `version` only has to be a 32-bit integer."""

    extFields: PlainSend
    code: I32 = 0
    flag: I32 = 0
    opaque: I32 = 0
    version: I32 = 0


SEND_V2_DECODER = msgspec.json.Decoder(SendFrame, strict=False)
SEND_DECODER = msgspec.json.Decoder(LongSendFrame, strict=False)
