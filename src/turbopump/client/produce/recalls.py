"""Recalls a delayed message: asks the broker that its recall handle names not to deliver it (code 370).

In: the recall handle of its receipt, which names the broker. Out: the id of the message.
"""

from turbopump.client.errors import InvalidArgument
from turbopump.client.name_servers import successful
from turbopump.client.produce.sender import Sender
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import request
from turbopump.protocol.handles import read_handle
from turbopump.protocol.headers.send import RecallMessageRequest
from turbopump.protocol.names import is_retry_or_dlq


async def recall(sender: Sender, topic: str, handle: str, timeout_s: float) -> str:
    """Asks the broker named in the handle to recall its message; returns the message id.

    `topic` includes the namespace. Raises InvalidArgument, Refused, and OSError when the broker cannot be
    reached.
    """
    found = read_handle(handle)
    if found is None:
        raise InvalidArgument(
            f"handle must be a recall handle, got {handle!r}: use receipt.recall_handle of the message"
        )
    if is_retry_or_dlq(topic):
        raise InvalidArgument(
            f"topic must not be a retry or dead-letter topic, got {topic}: their messages cannot be recalled"
        )
    route = await sender.route(topic, timeout_s)
    address = route.master(found.broker)
    if address is None:
        raise ConnectionError(f"broker {found.broker}, which has the message, has no master")
    header = RecallMessageRequest(topic, handle, sender.group)
    asked = request(RequestCode.RECALL_MESSAGE, header)
    answer = successful(await sender.calls.call(address, asked, timeout_s))
    return (answer.ext or {}).get("msgId", "")
