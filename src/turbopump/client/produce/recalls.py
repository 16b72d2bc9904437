"""Taking back a message that waits for its time: asks the broker that has it (code 370).

In: the handle of its receipt. Out: the id of the message. Which broker that is, is in the handle.
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
    """`topic` with its namespace. Raises InvalidArgument, Refused, and OSError when the broker is away."""
    found = read_handle(handle)
    if found is None:
        raise InvalidArgument("this is no recall handle: take recall_handle of the receipt of the message")
    if is_retry_or_dlq(topic):
        raise InvalidArgument(f"messages of {topic} cannot be recalled")
    route = await sender.route(topic, timeout_s)
    address = route.master(found.broker)
    if address is None:
        raise ConnectionError(f"broker {found.broker}, which has the message, has no master")
    header = RecallMessageRequest(topic, handle, sender.group)
    asked = request(RequestCode.RECALL_MESSAGE, header)
    answer = successful(await sender.calls.call(address, asked, timeout_s))
    return (answer.ext or {}).get("msgId", "")
