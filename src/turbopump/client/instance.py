"""What the clients with one client id share: connections, routes, heartbeats, and requests of brokers.

Producers and consumers join an instance and leave it; it is closed when the last one leaves. Each has an
instance of its own unless several of one process get the same `instance_name`. What is never here: sending
and consuming.
"""

import asyncio
import contextlib
import logging
import os
import ssl
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from turbopump.client import discovery
from turbopump.client.credentials import credentials_of, signer_of
from turbopump.client.encryption import network_for
from turbopump.client.errors import InvalidArgument, NoNameServer, Unreachable
from turbopump.client.heartbeats import Heartbeats
from turbopump.client.message import MessageExt, MessageQueue
from turbopump.client.name_servers import IN_HTTP, NameServers
from turbopump.client.namespace import marks
from turbopump.client.produce.request_reply import PendingReplies, reply_of
from turbopump.client.produce.transaction import CheckRequest, group_of
from turbopump.client.produce.unique_ids import ProcessIds
from turbopump.client.routes import RouteCache
from turbopump.client.settings import ClientSettings
from turbopump.client.short_heartbeats import ShortHeartbeats
from turbopump.client.world import World
from turbopump.protocol import bodies, record
from turbopump.protocol.addresses import split_address
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import request
from turbopump.protocol.errors import SystemFailure
from turbopump.protocol.headers.client import (
    ConsumeMessageDirectlyRequest,
    GetConsumerRunningInfoRequest,
    GetConsumerStatusRequest,
    NotifyConsumerIdsChangedRequest,
    ResetOffsetRequest,
)
from turbopump.protocol.headers.namesrv import GetRouteInfoRequest
from turbopump.protocol.headers.send import CheckTransactionStateRequest, PushReplyMessageRequest
from turbopump.protocol.names import AUTO_CREATE_TOPIC
from turbopump.remoting.client import Client
from turbopump.remoting.http_get import BadPage, get
from turbopump.remoting.router import Answer, Request, Route, Router
from turbopump.runtime.chance import Chance
from turbopump.runtime.tasks import SharedTask, Tasks

log = logging.getLogger(__name__)

DEFAULT_NAME = "DEFAULT"
STREAM = "@STREAM"  # end of a client id
STREAM_MARKS = {"ReqT": "0"}
DISCOVERY_S = 120.0
DISCOVERY_TIMEOUT_S = 3.0
KIND_TIMEOUT_S = 1.0  # for the first answer, which shows whether the server is a name server


class ProducerMember(Protocol):
    """Interface of a producer to its `ClientInstance`: group, topics, and checks of transactions."""

    @property
    def group(self) -> str: ...

    def topics(self) -> Iterable[str]:
        """Returns the topics whose brokers get heartbeats with the producer's group."""

    def check_transaction(self, request: CheckRequest) -> None:
        """Called when a broker asks how a transaction of the group ended."""


class ConsumerMember(Protocol):
    """Interface of a consumer to its `ClientInstance`, which passes requests of brokers and tools on."""

    @property
    def group(self) -> str: ...

    def topics(self) -> Iterable[str]: ...

    def describe(self) -> bodies.ConsumerData: ...

    def members_changed(self) -> None:
        """Called when the members of the group have changed, or a broker is new."""

    async def reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Called when a tool resets the group: continues each queue at the given offset."""

    def positions(self, topic: str) -> Mapping[MessageQueue, int]:
        """Returns, for each assigned queue of a topic, the offset that can be committed."""

    def running_info(self, with_stacks: bool) -> bodies.ConsumerRunningInfo: ...

    async def consume_directly(self, message: MessageExt) -> bodies.ConsumeMessageDirectlyResult: ...


class ClientInstance:
    """The connections, routes and heartbeats that the producers and consumers of one client id share."""

    def __init__(
        self,
        settings: ClientSettings,
        name_servers: tuple[str, ...],
        world: World,
        name: str,
        is_stream: bool = False,
    ) -> None:
        self.settings = settings
        self.world = world
        self.name = name
        self.client_id = ""
        self._is_stream = is_stream
        self.signer = signer_of(settings)
        self.router = Router(_BrokerRequests(self).routes())
        """The requests of brokers; members that join may add to it."""
        self.client = Client(
            network_for(settings, world.network),
            world.clock,
            self.router,
            world.limits,
            connect_timeout_s=settings.connect_timeout,
            extra=marks(settings.namespace_v2) | (STREAM_MARKS if is_stream else {}),
            sign=self.signer,
        )
        self.name_servers = NameServers(self.client, name_servers, world.chance)
        self.routes = RouteCache(self.name_servers, settings.mq_client_api_timeout)
        self.heartbeats = Heartbeats(
            self.client,
            self.routes,
            world.clock,
            self._topics,
            self._describe,
            settings.heartbeat_broker_interval,
            settings.mq_client_api_timeout,
            ShortHeartbeats() if settings.use_heartbeat_v2 else None,
        )
        self.routes.on_new_address = self.heartbeats.renew
        self.unique_ids: ProcessIds
        self.replies = PendingReplies()
        self.producers: dict[str, ProducerMember] = {}
        self.consumers: dict[str, ConsumerMember] = {}
        self._discovers = not name_servers
        self._starting = SharedTask(self._start)
        self._stack = contextlib.AsyncExitStack()
        self._tasks = Tasks(log)

    # Start and close

    async def start(self) -> None:
        """Connects to a name server, starts background tasks; once for all callers. Raises NoNameServer."""
        await self._starting.wait()

    async def _start(self) -> None:
        self._stack.push_async_callback(self.client.close)
        try:
            if self._discovers:
                await self._discover()
            ip = self.settings.client_ip or await self._local_address()
            await self._check_kind()
        except BaseException:
            await self._stack.aclose()
            raise
        self.client_id = client_id(ip, self.name, self.settings.unit_name, self._is_stream)
        self.unique_ids = ProcessIds(ip, self.world.clock.now_ms, self.world.chance)
        if self._discovers:
            keep_running(self._stack, self._tasks, self._discover_regularly())
        keep_running(self._stack, self._tasks, self._refresh_regularly())
        keep_running(self._stack, self._tasks, self.heartbeats.keep())

    async def close(self) -> None:
        await self._stack.aclose()

    @property
    def key(self) -> str:
        """The key of the instance in `ClientInstances`: its name, with `@STREAM` added for stream clients."""
        return self.name + STREAM if self._is_stream else self.name

    @property
    def is_unused(self) -> bool:
        return not self.producers and not self.consumers

    # Members

    async def join_producer(self, producer: ProducerMember) -> None:
        if producer.group in self.producers:
            raise InvalidArgument(
                f"instance {self.name} already has a producer of group {producer.group}: "
                "give this one another group or another instance_name"
            )
        self.producers[producer.group] = producer
        self.heartbeats.renew()

    async def join_consumer(self, consumer: ConsumerMember) -> None:
        """Adds a consumer and sends heartbeats. Raises InvalidArgument if its group has joined already.

        Raises AccessRefused if access control of all its brokers refuses it: it would never get a message.
        """
        if consumer.group in self.consumers:
            raise InvalidArgument(
                f"instance {self.name} already has a consumer of group {consumer.group}: "
                "give this one another group or another instance_name"
            )
        self.consumers[consumer.group] = consumer
        if await self.heartbeats.announce():
            return
        if (refused := await self.heartbeats.refused_by_all()) is not None:
            del self.consumers[consumer.group]
            raise refused
        self.heartbeats.renew()

    async def leave_producer(self, group: str) -> None:
        if self.producers.pop(group, None) is not None:
            await self.heartbeats.leave(producer_group=group)

    async def leave_consumer(self, group: str) -> None:
        if self.consumers.pop(group, None) is not None:
            await self.heartbeats.leave(consumer_group=group)

    def _topics(self) -> set[str]:
        everyone: list[ProducerMember | ConsumerMember] = [*self.producers.values(), *self.consumers.values()]
        return {topic for one in everyone for topic in one.topics()}

    def _describe(self) -> bodies.HeartbeatData:
        return bodies.HeartbeatData(
            clientID=self.client_id,
            producerDataSet=[bodies.ProducerData(groupName=group) for group in self.producers],
            consumerDataSet=[consumer.describe() for consumer in self.consumers.values()],
        )

    # Servers

    async def _local_address(self) -> str:
        """Returns the local IP of a connection to the first name server that accepts. Raises NoNameServer.

        Brokers and tools see this address in the client id.
        """
        failure: OSError | None = None
        for address in self.name_servers.addresses:
            try:
                return (await self.client.connect(address)).local[0]
            except OSError as error:
                failure = error
        where = "; ".join(self.name_servers.addresses)
        advice = "`turbopump up` starts one, name_servers= or NAMESRV_ADDR names another"
        if isinstance(failure, ssl.SSLError):
            advice = "give its authority as tls_trust_cert_path=, or accept any with tls_auth_server=False"
        raise NoNameServer(f"no name server answers at {where} ({failure}); {advice}")

    async def _check_kind(self) -> None:
        """Raises NoNameServer if another kind of server answers; a silent one may be slow, and passes."""
        header = GetRouteInfoRequest(topic=AUTO_CREATE_TOPIC, acceptStandardJsonOnly=True)
        question = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        try:
            await self.name_servers.ask(question, min(KIND_TIMEOUT_S, self.settings.mq_client_api_timeout))
        except Unreachable:
            for address in self.name_servers.addresses:
                await self._refuse_http(address)

    async def _refuse_http(self, address: str) -> None:
        """Raises NoNameServer if the address answers a GET in HTTP; else returns.

        A web server does not answer the other requests: it waits for more bytes than they have.
        """
        host, port = split_address(address)
        try:
            await get(self.world.network, host, port, "/", KIND_TIMEOUT_S)
        except OSError as error:
            if not isinstance(error, BadPage) or "HTTP/" not in str(error):
                return
        raise NoNameServer(f"{address} is not a name server: {IN_HTTP}")

    async def _discover(self) -> None:
        at = discovery.endpoint(self.settings)
        try:
            page = await get(self.world.network, at.host, at.port, at.path, DISCOVERY_TIMEOUT_S)
            found = discovery.addresses(page.strip().splitlines()[0] if page.strip() else "")
        except (OSError, ValueError) as error:
            raise NoNameServer(
                f"no name server is given, and http://{at.host}:{at.port}{at.path} names none ({error}); "
                'give one: name_servers="host:9876", turbopump.configure(name_servers=…) or NAMESRV_ADDR'
            ) from None
        if found:
            self.name_servers.replace(found)

    async def _discover_regularly(self) -> None:
        while True:
            await self.world.clock.sleep(DISCOVERY_S)
            try:
                await self._discover()
            except NoNameServer as error:
                log.warning("Cannot discover name servers; keeping the known ones: %s", error)

    async def _refresh_regularly(self) -> None:
        while True:
            await self.world.clock.sleep(self.settings.poll_name_server_interval)
            await self.routes.refresh_known(self._topics())
            await self.routes.return_home()

    async def routes_changed(self) -> None:
        """Refreshes all known routes now, then makes every consumer of the instance rebalance."""
        await self.routes.refresh_known(self._topics())
        for consumer in self.consumers.values():
            consumer.members_changed()


def client_id(ip: str, name: str, unit: str = "", is_stream: bool = False) -> str:
    host = f"[{ip}]" if ":" in ip else ip
    whole = f"{host}@{name}@{unit}" if unit else f"{host}@{name}"
    return whole + STREAM if is_stream else whole


@dataclass
class _BrokerRequests:
    """Handlers of the requests that brokers send to this client, which pass each to the members concerned."""

    instance: ClientInstance

    def routes(self) -> dict[int, Route[Any]]:
        return {
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: Route(NotifyConsumerIdsChangedRequest, self._changed),
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET: Route(ResetOffsetRequest, self._reset),
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: Route(GetConsumerStatusRequest, self._status),
            RequestCode.GET_CONSUMER_RUNNING_INFO: Route(GetConsumerRunningInfoRequest, self._running_info),
            RequestCode.CONSUME_MESSAGE_DIRECTLY: Route(ConsumeMessageDirectlyRequest, self._directly),
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: Route(PushReplyMessageRequest, self._reply),
            RequestCode.CHECK_TRANSACTION_STATE: Route(CheckTransactionStateRequest, self._asked),
        }

    def _changed(self, request: Request[NotifyConsumerIdsChangedRequest]) -> None:
        for consumer in self.instance.consumers.values():
            consumer.members_changed()

    async def _reset(self, request: Request[ResetOffsetRequest]) -> None:
        consumer = self.instance.consumers.get(request.header.group)
        if consumer is not None:
            asked = bodies.ResetOffsetBody.decode(request.body).offsetTable
            await consumer.reset({MessageQueue.of_wire(queue): offset for queue, offset in asked.items()})

    def _status(self, request: Request[GetConsumerStatusRequest]) -> Answer:
        positions = self._consumer(request.header.group).positions(request.header.topic)
        table = {queue.to_wire(): offset for queue, offset in positions.items()}
        return Answer(body=bodies.GetConsumerStatusBody(messageQueueTable=table).encode())

    def _running_info(self, request: Request[GetConsumerRunningInfoRequest]) -> Answer:
        header = request.header
        told = self._consumer(header.consumerGroup).running_info(bool(header.jstackEnable))
        return Answer(body=told.encode())

    async def _directly(self, request: Request[ConsumeMessageDirectlyRequest]) -> Answer:
        consumer = self._consumer(request.header.consumerGroup)
        one = record.decode(request.body)
        queue = MessageQueue(one.topic, request.header.brokerName or "", one.queue_id)
        return Answer(body=(await consumer.consume_directly(MessageExt(one, queue))).encode())

    def _reply(self, request: Request[PushReplyMessageRequest]) -> Answer:
        reply = reply_of(request.header, request.body, self.instance.world.clock.now_ms())
        if not self.instance.replies.arrived(reply):
            log.info("Ignoring a reply that no request waits for any more: %s", reply.message_id)
        return Answer()

    def _asked(self, request: Request[CheckTransactionStateRequest]) -> None:
        """Passes a broker's transaction check to the producer of its group; ignores it if there is none.

        Then the broker asks another client.
        """
        half = record.decode(request.body)
        producer = self.instance.producers.get(group_of(half))
        if producer is not None:
            producer.check_transaction(CheckRequest(request.header, half, request.connection))

    def _consumer(self, group: str) -> ConsumerMember:
        consumer = self.instance.consumers.get(group)
        if consumer is None:
            raise SystemFailure(f"The Consumer Group <{group}> not exist in this consumer")
        return consumer


# --- instances by name --------------------------------------------------------------------------------------


@dataclass
class ClientInstances:
    """The client instances of one event loop, by name; `take` makes one for an unknown name."""

    named: dict[str, ClientInstance] = field(default_factory=dict)

    async def take(
        self,
        settings: ClientSettings,
        name_servers: tuple[str, ...],
        world: World,
        fixed_name: bool = False,
        is_stream: bool = False,
    ) -> ClientInstance:
        """Returns the started instance of `instance_name`, for DEFAULT a new one; `give_back` ends its use.

        DEFAULT becomes a new name for each call. `fixed_name`: DEFAULT stays the name, for broadcasting
        consumers, whose offsets are stored under it.
        """
        name, end = settings.instance_name, STREAM if is_stream else ""
        if name == DEFAULT_NAME and not fixed_name:
            name = self._new_name(world.chance, end)
        instance = self.named.get(name + end)
        if instance is None:
            instance = ClientInstance(settings, name_servers, world, name, is_stream)
            self.named[instance.key] = instance
        else:
            _check_same_user(instance, settings)
        try:
            await instance.start()
        except BaseException:
            self.named.pop(instance.key, None)
            raise
        return instance

    def _new_name(self, chance: Chance, end: str) -> str:
        while (name := f"{os.getpid()}#{chance.getrandbits(53)}") + end in self.named:
            continue
        return name

    async def give_back(self, instance: ClientInstance) -> None:
        """Closes and removes the instance, unless a producer or consumer still uses it."""
        if instance.is_unused:
            if self.named.get(instance.key) is instance:
                del self.named[instance.key]
            await instance.close()


def _check_same_user(instance: ClientInstance, settings: ClientSettings) -> None:
    """Raises InvalidArgument if a client would send its requests as another user, over shared connections."""
    signer = instance.signer
    if credentials_of(settings) != (signer and signer.credentials):
        raise InvalidArgument(
            f"clients of instance {instance.name} must have the same credentials: "
            "give this one another instance_name"
        )


_by_loop: dict[asyncio.AbstractEventLoop, ClientInstances] = {}


def instances() -> ClientInstances:
    """Returns the client instances of the running event loop; removes those of closed loops."""
    for loop in [loop for loop in _by_loop if loop.is_closed()]:
        del _by_loop[loop]
    return _by_loop.setdefault(asyncio.get_running_loop(), ClientInstances())


# --- background tasks ------------------------------------------------------------------------------------


def keep_running(stack: contextlib.AsyncExitStack, tasks: Tasks, work: Coroutine[Any, Any, None]) -> None:
    """Starts a background task that the closing of the stack cancels, in its order of closing."""
    stack.push_async_callback(tasks.cancel, tasks.start(work))
