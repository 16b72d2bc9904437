"""Sends a message whose consumption failed back to its broker, to be delivered again later.

The broker stores a copy in the group's retry topic with growing delays, and in the dead-letter topic when the
message has failed too often. When the broker refuses, the consumer sends the copy to the retry topic itself.
"""

import logging
from dataclasses import dataclass

from turbopump.client.instance import ClientInstance
from turbopump.client.message import CopiedMessage, Message, MessageExt
from turbopump.client.name_servers import successful
from turbopump.client.namespace import wrap
from turbopump.client.produce.sender import Sender
from turbopump.client.routes import RoundRobin
from turbopump.protocol import properties
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import request
from turbopump.protocol.errors import BrokenBody, Refused
from turbopump.protocol.headers.send import ConsumerSendMsgBackRequest
from turbopump.protocol.names import retry_topic
from turbopump.protocol.record import body_of

log = logging.getLogger(__name__)

CALL_TIMEOUT_S = 5.0
FIRST_RETRY_LEVEL = 3  # of the delay levels; one more with each failure
MAX_RECONSUME_TIMES = 16


@dataclass
class SendBack:
    """Sends messages whose consumption failed in one group back to their broker.

    When that fails, it sends a copy to the group's retry topic.
    """

    producer: Sender
    group: str
    max_reconsume_times: int = MAX_RECONSUME_TIMES

    async def send(self, message: MessageExt, delay_level: int = 0) -> bool:
        """Sends a failed message back, else a copy; True: a broker has it, so its offset may be committed."""
        try:
            await self._ask_broker(message, delay_level)
        except (OSError, Refused, BrokenBody) as error:
            log.warning(
                "The broker did not take message %s back; sending a copy: %s", message.message_id, error
            )
        else:
            return True
        return await self.send_copy(message)

    async def send_copy(self, message: MessageExt) -> bool:
        """Sends a copy of a failed message to the retry topic; False: the send failed, which is logged.

        The copy is an ordinary message that counts one more failure.
        """
        try:
            await self.producer.send(self._copy(message), CALL_TIMEOUT_S)
        except (OSError, Refused, BrokenBody) as error:
            log.warning("Cannot send message %s back: %s", message.message_id, error)
            return False
        return True

    async def _ask_broker(self, message: MessageExt, delay_level: int) -> None:
        route = await self.producer.routes.find(wrap(message.namespace, message.queue.topic))
        address = route.master(message.queue.broker)
        if address is None:
            raise ConnectionError(f"broker {message.queue.broker} has no master")
        header = ConsumerSendMsgBackRequest(
            offset=message.record.physical_offset,
            group=self.group,
            delayLevel=delay_level,
            originMsgId=message.message_id,
            originTopic=wrap(message.namespace, message.topic),
            maxReconsumeTimes=self.max_reconsume_times,
            bname=message.queue.broker,
        )
        question = request(RequestCode.CONSUMER_SEND_MSG_BACK, header)
        successful(await self.producer.calls.call(address, question, CALL_TIMEOUT_S))

    def _copy(self, message: MessageExt) -> Message:
        kept = message.record.property_map()
        kept.pop(properties.TRANSACTION_PREPARED, None)
        kept.setdefault(properties.ORIGIN_MESSAGE_ID, message.message_id)
        kept[properties.RETRY_TOPIC] = wrap(message.namespace, message.topic)
        kept[properties.RECONSUME_TIME] = str(message.reconsume_times + 1)
        kept[properties.MAX_RECONSUME_TIMES] = str(self.max_reconsume_times)
        kept[properties.DELAY] = str(FIRST_RETRY_LEVEL + message.reconsume_times)
        return CopiedMessage(
            retry_topic(self.group), body_of(message.record), properties=kept, flag=message.record.flag
        )


def send_back_for(instance: ClientInstance, group: str, max_reconsume_times: int) -> SendBack:
    """Makes a `SendBack` over the connections of a client instance."""
    chance = instance.world.chance
    sender = Sender(
        instance.client,
        instance.routes,
        instance.world.clock,
        instance.unique_ids,
        RoundRobin(chance),
        chance=chance,
    )
    return SendBack(sender, group, max_reconsume_times)
