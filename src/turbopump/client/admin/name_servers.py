"""Administers name servers: key-value tables, settings, and the write permission of brokers.

Name servers are independent: values and settings are changed at all of them, write permissions at the one
that the caller names. Answers of several are by address.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from turbopump.client.admin.brokers import properties_of
from turbopump.client.admin.calls import AdminCalls
from turbopump.protocol import bodies
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.conf import pack_properties
from turbopump.protocol.errors import QueryNotFound
from turbopump.protocol.headers.namesrv import (
    AddWritePermOfBrokerRequest,
    AddWritePermOfBrokerResponse,
    DeleteKVConfigRequest,
    GetKVConfigRequest,
    GetKVConfigResponse,
    GetKVListByNamespaceRequest,
    PutKVConfigRequest,
    WipeWritePermOfBrokerRequest,
    WipeWritePermOfBrokerResponse,
)
from turbopump.protocol.names import ORDER_TOPIC_NAMESPACE


@dataclass
class NameServerSettings:
    """Administers name servers: key-value tables, settings, and the write permission of brokers.

    Example:

        await admin.name_servers.put_value("ORDER_TOPIC_CONFIG", "OrderTopic", "broker-a:4;broker-b:4")
        for address in admin.name_servers.addresses:
            await admin.name_servers.wipe_write_permission(address, "broker-b")
    """

    asking: AdminCalls

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses of the name servers in use, as configured or discovered."""
        return self.asking.name_servers

    async def value(self, namespace: str, key: str) -> str | None:
        """Returns one value of a namespace, from one name server; None if there is none."""
        try:
            answer = await self.asking.ask_name_server(
                RequestCode.GET_KV_CONFIG, GetKVConfigRequest(namespace, key)
            )
        except QueryNotFound:
            return None
        return GetKVConfigResponse.from_ext(answer.ext).value

    async def values(self, namespace: str) -> dict[str, str]:
        """Returns all keys and values of a namespace, from one name server; empty if there are none.

        Example:

            await admin.name_servers.values("ORDER_TOPIC_CONFIG")
        """
        header = GetKVListByNamespaceRequest(namespace)
        try:
            answer = await self.asking.ask_name_server(RequestCode.GET_KVLIST_BY_NAMESPACE, header)
        except QueryNotFound:
            return {}
        return bodies.KVTable.decode(answer.body).table

    async def put_value(self, namespace: str, key: str, value: str) -> None:
        """Sets a key of a namespace to a value on every name server."""
        header = PutKVConfigRequest(namespace, key, value)
        await self.asking.ask_name_servers(RequestCode.PUT_KV_CONFIG, header)

    async def delete_value(self, namespace: str, key: str) -> None:
        """Removes a key of a namespace from every name server."""
        header = DeleteKVConfigRequest(namespace, key)
        await self.asking.ask_name_servers(RequestCode.DELETE_KV_CONFIG, header)

    async def put_order(self, topic: str, broker: str, queues: int) -> str:
        """Sets one broker's queue count in a topic's order configuration; returns the whole `broker:n;…`."""
        old = await self.value(ORDER_TOPIC_NAMESPACE, topic) or ""
        parts = {part.partition(":")[0]: part for part in old.split(";") if part}
        parts[broker] = f"{broker}:{queues}"
        whole = ";".join(parts.values())
        await self.put_value(ORDER_TOPIC_NAMESPACE, topic, whole)
        return whole

    async def wipe_write_permission(self, address: str, broker: str) -> int:
        """Removes a broker's write permission at one name server; returns how many of its topics changed."""
        header = WipeWritePermOfBrokerRequest(broker)
        answer = await self.asking.ask(address, RequestCode.WIPE_WRITE_PERM_OF_BROKER, header)
        return WipeWritePermOfBrokerResponse.from_ext(answer.ext).wipeTopicCount

    async def add_write_permission(self, address: str, broker: str) -> int:
        """Restores a broker's write permission at one name server; returns how many of its topics changed."""
        header = AddWritePermOfBrokerRequest(broker)
        answer = await self.asking.ask(address, RequestCode.ADD_WRITE_PERM_OF_BROKER, header)
        return AddWritePermOfBrokerResponse.from_ext(answer.ext).addTopicCount

    async def configs(self) -> dict[str, dict[str, str]]:
        """Returns the settings of each name server, by its address."""
        answers = await self.asking.ask_name_servers(RequestCode.GET_NAMESRV_CONFIG)
        return {address: properties_of(answer.body) for address, answer in answers.items()}

    async def update_config(self, changes: Mapping[str, str]) -> None:
        """Changes settings of every name server."""
        body = pack_properties(changes)
        await self.asking.ask_name_servers(RequestCode.UPDATE_NAMESRV_CONFIG, body=body)
