"""Requests of other members and of tools on the DLedger port.

In: commands with JSON bodies. Out: events for the node, whose answers come later by the number of the
request, and answers that need no node: who is in the group, an entry that is committed. The command of an
answer always has code 200, the result is in its body. A body that cannot be read, and an unknown request, are
answered by the router.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, cast

from turbopump.protocol.bodies.base import Body
from turbopump.protocol.command import Command
from turbopump.protocol.dledger import messages as wire_messages
from turbopump.protocol.dledger.answers import refuse
from turbopump.protocol.dledger.codes import DLedgerCode, DLedgerRequestCode
from turbopump.protocol.dledger.entry import END_MARK
from turbopump.raft import Received, Role
from turbopump.raft.messages import PeerAnswer
from turbopump.remoting.router import Answer, Request, Result, Route, Routes
from turbopump.replication.dledger import wire
from turbopump.replication.dledger.group import DLedgerGroup
from turbopump.store.dledger.entry_log import EntryLog

OUR_LANGUAGE = Command(0).language
"""What requests and answers of our own members have in their heads; those of Apache's have JAVA."""
NODE_REQUESTS = (
    DLedgerRequestCode.VOTE,
    DLedgerRequestCode.HEART_BEAT,
    DLedgerRequestCode.PUSH,
    DLedgerRequestCode.LEADERSHIP_TRANSFER,
)


class KnownMember(Protocol):
    """Interface of what handlers ask a member: its role and its leader."""

    @property
    def role(self) -> Role: ...
    @property
    def leader(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class _WaitingRequest:
    """A request that the node has not answered yet."""

    request: Request[None]
    message: wire.NodeRequest


class MemberHandlers:
    """Gives requests to the node, and its answers to the connections on which they came."""

    def __init__(
        self, group: DLedgerGroup, log: EntryLog, member: KnownMember, received: Callable[[Received], None]
    ) -> None:
        self._group = group
        self._log = log
        self._member = member
        self._received = received
        self._waiting: dict[int, _WaitingRequest] = {}
        self._languages: dict[str, str] = {}  # of the last request of each member
        self._last_id = 0

    def routes(self) -> Routes:
        """Returns the handlers by request code."""
        return {
            DLedgerRequestCode.METADATA: Route(None, self.members),
            DLedgerRequestCode.GET: Route(None, self.committed_entry),
            **{code: Route(None, self.ask_node) for code in NODE_REQUESTS},
        }

    def next_id(self) -> int:
        """Returns a number for a request, also one that did not come over the wire."""
        self._last_id += 1
        return self._last_id

    def is_ours(self, member: str) -> bool:
        """Whether the last request of another member came from a program of ours."""
        return self._languages.get(member) == OUR_LANGUAGE

    # requests that the node answers

    def ask_node(self, request: Request[None]) -> Result:
        message = cast(wire.NodeRequest, wire_messages.decode_request(request.command.code, request.body))
        if refusal := self._misdirected(message):
            return _refusal(request, message, refusal, self._member.leader)
        incoming = wire.incoming(message, self._log.file_size - END_MARK.size)
        if incoming is None:
            return _refusal(request, message, DLedgerCode.UNEXPECTED_ARGUMENT, self._member.leader)
        sender = wire.sender_of(message)
        self._languages[sender] = request.command.language
        number = self.next_id()
        self._waiting[number] = _WaitingRequest(request, message)
        # Until it is answered it counts against the bounds of its connection.
        request.connection.begin(len(request.body))
        self._received(Received(number, sender, incoming))
        return None

    def respond(self, number: int, answer: PeerAnswer) -> None:
        """Answers the request with this number."""
        if (waiting := self._waiting.pop(number, None)) is not None:
            _end(waiting, _answer(wire.answer_to(waiting.message, answer)))

    def refuse_all(self, code: DLedgerCode) -> None:
        """Answers everything that still waits: the node that was asked is no more."""
        waiting, self._waiting = self._waiting, {}
        for one in waiting.values():
            _end(one, _refusal(one.request, one.message, code, self._member.leader))

    # requests that need no node

    def members(self, request: Request[None]) -> Result:
        message = wire_messages.PeersRequestBody.decode(request.body)
        if refusal := self._misdirected(message):
            return _refusal(request, message, refusal, self._member.leader)
        peers = dict(self._group.addresses)
        return _answer(
            wire_messages.PeersAnswerBody(group=self._group.name, leaderId=self._member.leader, peers=peers)
        )

    def committed_entry(self, request: Request[None]) -> Result:
        """Returns one entry, as Apache's nodes do; unlike theirs, only if it is committed."""
        message = wire_messages.GetEntriesRequestBody.decode(request.body)
        refusal = self._misdirected(message)
        if refusal is None and self._member.role is not Role.LEADER:
            refusal = DLedgerCode.NOT_LEADER
        index = -1 if message.beginIndex is None else message.beginIndex
        entry = self._log.entry(index) if index <= self._log.committed_index else None
        if refusal is None and entry is None:
            refusal = DLedgerCode.INDEX_OUT_OF_RANGE
        if refusal is not None:
            return _refusal(request, message, refusal, self._member.leader)
        assert entry is not None
        return _answer(wire_messages.EntriesAnswerBody(group=self._group.name, entries=[entry]))

    def _misdirected(self, message: wire_messages.DLedgerRequest) -> DLedgerCode | None:
        """Returns why a request is not for this member; None: it is."""
        if message.remoteId != self._group.own_id:
            return DLedgerCode.UNKNOWN_MEMBER
        return DLedgerCode.UNKNOWN_GROUP if message.group != self._group.name else None


def _refusal(
    request: Request[None], message: wire_messages.DLedgerRequest, code: DLedgerCode, leader: str | None
) -> Answer:
    kind = wire_messages.REQUESTS[request.command.code][1]
    return _answer(refuse(kind, message, code, leader))


def _answer(body: Body) -> Answer:
    return Answer(code=DLedgerCode.SUCCESS, body=body.encode())


def _end(waiting: _WaitingRequest, answer: Answer) -> None:
    waiting.request.answer(answer)
    waiting.request.connection.end(len(waiting.request.body))
