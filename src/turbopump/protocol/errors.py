"""The two kinds of failure a peer can cause: a request that is refused, and bytes that cannot be decoded.

`Refused` carries the wire code and remark of the answer: raised where the reason is known, turned into a
response by the router, rebuilt as the same class in a client by `refusal`. Decoders raise the three `Broken`
classes and no other exception.
"""

from typing import Any, ClassVar

from turbopump.protocol.access_refusals import access_refusal
from turbopump.protocol.codes import ResponseCode


class BrokenFrame(Exception):
    """The byte stream cannot be cut into frames, or a frame's header cannot be read. Ends the connection."""


class BrokenRecord(Exception):
    """The bytes are not a commit-log record."""


class BrokenBody(Exception):
    """The body of a request, a response or a message cannot be read."""


class Refused(Exception):
    """A request answered with a code other than success. `fields` go into the header of the answer."""

    def __init__(self, code: int, remark: str, fields: dict[str, str] | None = None) -> None:
        super().__init__(code, remark)
        self.code = int(code)
        self.remark = remark
        self.fields = fields

    def __str__(self) -> str:
        return f"{_name(self.code)}: {self.remark}"


class KnownRefusal(Refused):
    """Base of the refusals with a fixed code, `CODE`: constructed without it, from remark and fields."""

    CODE: ClassVar[ResponseCode]

    def __init__(self, remark: str, fields: dict[str, str] | None = None) -> None:
        Exception.__init__(self, remark)
        self.code = int(self.CODE)
        self.remark = remark
        self.fields = fields


class SystemFailure(KnownRefusal):
    """The server failed to handle the request, or the request is malformed."""

    CODE = ResponseCode.SYSTEM_ERROR


class SystemBusy(KnownRefusal):
    """The server is overloaded; try again later."""

    CODE = ResponseCode.SYSTEM_BUSY


class RequestNotSupported(KnownRefusal):
    """The server does not support this request."""

    CODE = ResponseCode.REQUEST_CODE_NOT_SUPPORTED


class FlushDiskTimeout(KnownRefusal):
    """The message is stored but was not flushed to disk in time."""

    CODE = ResponseCode.FLUSH_DISK_TIMEOUT


class SlaveNotAvailable(KnownRefusal):
    """The message is stored but no slave is available."""

    CODE = ResponseCode.SLAVE_NOT_AVAILABLE


class FlushSlaveTimeout(KnownRefusal):
    """The message is stored but was not replicated in time."""

    CODE = ResponseCode.FLUSH_SLAVE_TIMEOUT


class MessageIllegal(KnownRefusal):
    """The message is invalid: too large, or with an invalid topic or properties."""

    CODE = ResponseCode.MESSAGE_ILLEGAL


class ServiceNotAvailable(KnownRefusal):
    """The broker does not accept messages now."""

    CODE = ResponseCode.SERVICE_NOT_AVAILABLE


class NoPermission(KnownRefusal):
    """The operation is forbidden, for example by the permission of the topic or broker."""

    CODE = ResponseCode.NO_PERMISSION


class AccessRefused(NoPermission):
    """Access control refused the request; the text says what to do. `code` is 16, or 1 of servers of 4.x."""

    def __init__(self, code: int, remark: str, reason: str, advice: str) -> None:
        super().__init__(remark)
        self.code = int(code)
        self.reason = reason
        self.advice = advice

    def __str__(self) -> str:
        return f"{_name(self.code)}: {self.reason}; {self.advice}"

    def __reduce__(self) -> tuple[Any, ...]:
        return AccessRefused, (self.code, self.remark, self.reason, self.advice)


class TopicNotFound(KnownRefusal):
    """The topic does not exist."""

    CODE = ResponseCode.TOPIC_NOT_EXIST


class PullNotFound(KnownRefusal):
    """There is no message at the offset yet."""

    CODE = ResponseCode.PULL_NOT_FOUND


class PullRetryImmediately(KnownRefusal):
    """The pull found no matching message; pull again."""

    CODE = ResponseCode.PULL_RETRY_IMMEDIATELY


class PullOffsetMoved(KnownRefusal):
    """The offset does not exist; the answer has a valid one."""

    CODE = ResponseCode.PULL_OFFSET_MOVED


class QueryNotFound(KnownRefusal):
    """The query found nothing."""

    CODE = ResponseCode.QUERY_NOT_FOUND


class SubscriptionUnreadable(KnownRefusal):
    """The subscription expression cannot be parsed."""

    CODE = ResponseCode.SUBSCRIPTION_PARSE_FAILED


class SubscriptionNotFound(KnownRefusal):
    """The group has no subscription to the topic."""

    CODE = ResponseCode.SUBSCRIPTION_NOT_EXIST


class SubscriptionNotLatest(KnownRefusal):
    """The broker's copy of the subscription is older than the version that the request names."""

    CODE = ResponseCode.SUBSCRIPTION_NOT_LATEST


class GroupNotFound(KnownRefusal):
    """The consumer group does not exist."""

    CODE = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


class FilterDataNotFound(KnownRefusal):
    """The broker has no filter data of the group."""

    CODE = ResponseCode.FILTER_DATA_NOT_EXIST


class FilterDataNotLatest(KnownRefusal):
    """The broker's filter data of the group is older than the version that the request names."""

    CODE = ResponseCode.FILTER_DATA_NOT_LATEST


class InvalidParameter(KnownRefusal):
    """A parameter of the request is invalid."""

    CODE = ResponseCode.INVALID_PARAMETER


class ConsumerNotOnline(KnownRefusal):
    """The consumer or its group is not connected."""

    CODE = ResponseCode.CONSUMER_NOT_ONLINE


class ConsumeTimeout(KnownRefusal):
    """A consumer did not answer in time a request that the broker relayed to it."""

    CODE = ResponseCode.CONSUME_MSG_TIMEOUT


class NoMessage(KnownRefusal):
    """There is no message."""

    CODE = ResponseCode.NO_MESSAGE


class PollingFull(KnownRefusal):
    """Too many requests wait at the broker."""

    CODE = ResponseCode.POLLING_FULL


class PollingTimeout(KnownRefusal):
    """A waiting request found nothing in time."""

    CODE = ResponseCode.POLLING_TIMEOUT


class FlowControl(KnownRefusal):
    """The server limits the rate of requests; try again later."""

    CODE = ResponseCode.FLOW_CONTROL


class IllegalOperation(KnownRefusal):
    """The operation is not permitted in the current state."""

    CODE = ResponseCode.ILLEGAL_OPERATION


class GoAway(KnownRefusal):
    """The server is closing; use another connection."""

    CODE = ResponseCode.GO_AWAY


class UserNotFound(KnownRefusal):
    """The user does not exist."""

    CODE = ResponseCode.USER_NOT_EXIST


class PolicyNotFound(KnownRefusal):
    """The access policy does not exist."""

    CODE = ResponseCode.POLICY_NOT_EXIST


class Fenced(KnownRefusal):
    """A newer run of the transactional id has taken over, or the id expired; requests of this run fail."""

    CODE = ResponseCode.LEDGER_FENCED


REFUSALS: dict[int, type[Refused]] = {int(kind.CODE): kind for kind in KnownRefusal.__subclasses__()}
"""Code to class. Other codes are a plain `Refused`."""


def refusal(code: int, remark: str | None) -> Refused:
    """Returns the exception for the code and remark of an answer."""
    if (access := access_refusal(code, remark or "")) is not None:
        return AccessRefused(code, remark or "", *access)
    kind = REFUSALS.get(code)
    if kind is not None and issubclass(kind, KnownRefusal):
        return kind(remark or "")
    return Refused(code, remark or "")


def _name(code: int) -> str:
    try:
        return f"{ResponseCode(code).name} ({code})"
    except ValueError:
        return str(code)
