"""Asks a broker whether it supports a subscription before it is used: a refused pull would only be logged."""

from turbopump.client.group.rebalancer import readable_queues
from turbopump.client.group.subscription import Subscription
from turbopump.client.instance import ClientInstance
from turbopump.client.name_servers import successful
from turbopump.client.settings import ClientSettings
from turbopump.protocol import bodies
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import request
from turbopump.protocol.names import TAG


async def check_expression(
    instance: ClientInstance, settings: ClientSettings, group: str, wanted: Subscription
) -> None:
    """Asks a broker of the topic to check an expression. Raises Refused, or TopicNotFound without a broker.

    Every broker supports tags, so these are not checked.
    """
    if wanted.kind == TAG:
        return
    queues = await readable_queues(instance, wanted.topic)
    body = bodies.CheckClientRequestBody(
        clientId=instance.client_id,
        group=group,
        namespace=settings.namespace or None,
        subscriptionData=wanted.to_wire(),
    )
    question = request(RequestCode.CHECK_CLIENT_CONFIG, body=body.encode())
    timeout_s = settings.mq_client_api_timeout
    for queue in queues[:1]:
        answer = await instance.routes.ask_replica(
            queue, lambda replica: instance.client.call(replica.address, question, timeout_s)
        )
        successful(answer)
