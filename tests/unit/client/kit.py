"""A cluster made of answers: a function per address and code, and a list of what was asked."""

from collections.abc import Callable

from turbopump.client.message import MessageQueue
from turbopump.protocol import properties
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import Command, decode, reply
from turbopump.protocol.frame import Frame, cut
from turbopump.protocol.headers.pull import PullMessageRequest, PullMessageResponse
from turbopump.protocol.packed_send import PackedSend
from turbopump.protocol.record import MAGIC_V1, Record, crc31, encode

NAMESRV = "127.0.0.1:9876"
BROKER_A = "127.0.0.1:10911"
BROKER_B = "127.0.0.1:10921"

Answer = Callable[[Command], Command]


class Cluster:
    """Plays `remoting.Client`: addresses without an answer refuse connections."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, int], Answer] = {}
        self.asked: list[tuple[str, Command]] = []
        self.extra: dict[str, str] = {}

    def on(self, address: str, code: int, answer: Answer) -> None:
        self.answers[address, int(code)] = answer

    async def call(self, address: str, request: Command | PackedSend, timeout_s: float) -> Command:
        request = as_command(request)
        self.asked.append((address, request))
        answer = self.answers.get((address, request.code))
        if answer is None:
            raise ConnectionRefusedError(f"nobody at {address}")
        return answer(request)

    def ask(self, address: str, request: Command | PackedSend, timeout_s: float) -> None:
        """There is never a connection: use `call`."""

    async def send_oneway(self, address: str, request: Command | PackedSend, timeout_s: float) -> None:
        await self.call(address, request, timeout_s)

    def times_asked(self, code: int) -> int:
        return sum(1 for _, request in self.asked if request.code == code)


def as_command(request: Command | PackedSend) -> Command:
    """What a server reads."""
    if isinstance(request, Command):
        return request
    frames: list[Frame] = []
    cut(request.frame(0), frames)
    return decode(frames[0])


def routes_to(topics: dict[str, int], brokers: dict[str, str]) -> Answer:
    """A name server that knows topics (name → queues, on every broker) and brokers (name → master)."""

    def answer(request: Command) -> Command:
        topic = (request.ext or {})["topic"]
        if topic not in topics:
            return reply(request, 17, f"No topic route info in name server for the topic: {topic}")
        queues = ",".join(
            f'{{"brokerName":"{name}","perm":6,"readQueueNums":{topics[topic]},"topicSysFlag":0,'
            f'"writeQueueNums":{topics[topic]}}}'
            for name in brokers
        )
        addresses = ",".join(
            f'{{"brokerAddrs":{{"0":"{address}"}},"brokerName":"{name}","cluster":"c"}}'
            for name, address in brokers.items()
        )
        body = f'{{"brokerDatas":[{addresses}],"filterServerTable":{{}},"queueDatas":[{queues}]}}'
        return reply(request, body=body.encode())

    return answer


def stored(request: Command) -> Command:
    """A broker that stores everything at offset 7."""
    queue_id = (request.ext or {})["e"]
    ext = {"msgId": "7F00000100002A9F0000000000000000", "queueId": queue_id, "queueOffset": "7"}
    return reply(request, ext={**ext, "durability": "memory", "replicas": "1"})


def record(queue: MessageQueue, offset: int, stored_ms: int, body: bytes = b"x", tags: str = "") -> Record:
    packed = properties.pack({properties.TAGS: tags} if tags else {}).encode()
    return Record(
        topic=queue.topic,
        queue_id=queue.id,
        flag=0,
        queue_offset=offset,
        physical_offset=offset * 1000,
        sys_flag=0,
        born_timestamp=stored_ms,
        born_host=bytes(8),
        store_timestamp=stored_ms,
        store_host=bytes(8),
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=body,
        properties=packed,
        body_crc=crc31(body),
        size=0,
        magic=MAGIC_V1,
    )


class Queues:
    """A broker's queues, in memory, for one topic. A pull that finds nothing calls `on_empty`."""

    def __init__(self) -> None:
        self.records: dict[int, list[Record]] = {}
        self.on_empty: Callable[[], None] = lambda: None

    def attach(self, cluster: Cluster, address: str) -> None:
        cluster.on(address, RequestCode.PULL_MESSAGE, self.pull)
        cluster.on(address, RequestCode.GET_MAX_OFFSET, self._end)
        cluster.on(address, RequestCode.GET_MIN_OFFSET, lambda request: reply(request, ext={"offset": "0"}))

    def pull(self, request: Command) -> Command:
        header = PullMessageRequest.from_ext(request.ext)
        queue = self.records.get(header.queueId, [])
        found = queue[header.queueOffset : header.queueOffset + 2]
        if not found:
            self.on_empty()
        ends = PullMessageResponse(0, header.queueOffset + len(found), 0, len(queue)).to_ext()
        return reply(request, 0 if found else 19, ext=ends, body=b"".join(encode(one) for one in found))

    def _end(self, request: Command) -> Command:
        queue_id = int((request.ext or {})["queueId"])
        return reply(request, ext={"offset": str(len(self.records.get(queue_id, [])))})
