"""The two kinds of failure a peer can cause: a request that is refused, and bytes that cannot be decoded.

`Refused` carries the wire code and remark of the answer: raised where the reason is known, turned into a
response by the router, rebuilt as the same class in a client by `refusal`. Decoders raise the three `Broken`
classes and no other exception.
"""

from typing import ClassVar

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
    """Base of the classes that have one code each; constructed from the remark alone."""

    CODE: ClassVar[ResponseCode]

    def __init__(self, remark: str, fields: dict[str, str] | None = None) -> None:
        Exception.__init__(self, remark)
        self.code = int(self.CODE)
        self.remark = remark
        self.fields = fields


class SystemFailure(KnownRefusal):
    CODE = ResponseCode.SYSTEM_ERROR


class SystemBusy(KnownRefusal):
    CODE = ResponseCode.SYSTEM_BUSY


class RequestNotSupported(KnownRefusal):
    CODE = ResponseCode.REQUEST_CODE_NOT_SUPPORTED


class FlushDiskTimeout(KnownRefusal):
    CODE = ResponseCode.FLUSH_DISK_TIMEOUT


class SlaveNotAvailable(KnownRefusal):
    CODE = ResponseCode.SLAVE_NOT_AVAILABLE


class FlushSlaveTimeout(KnownRefusal):
    CODE = ResponseCode.FLUSH_SLAVE_TIMEOUT


class MessageIllegal(KnownRefusal):
    CODE = ResponseCode.MESSAGE_ILLEGAL


class ServiceNotAvailable(KnownRefusal):
    CODE = ResponseCode.SERVICE_NOT_AVAILABLE


class NoPermission(KnownRefusal):
    CODE = ResponseCode.NO_PERMISSION


class TopicNotFound(KnownRefusal):
    CODE = ResponseCode.TOPIC_NOT_EXIST


class PullNotFound(KnownRefusal):
    CODE = ResponseCode.PULL_NOT_FOUND


class PullRetryImmediately(KnownRefusal):
    CODE = ResponseCode.PULL_RETRY_IMMEDIATELY


class PullOffsetMoved(KnownRefusal):
    CODE = ResponseCode.PULL_OFFSET_MOVED


class QueryNotFound(KnownRefusal):
    CODE = ResponseCode.QUERY_NOT_FOUND


class SubscriptionUnreadable(KnownRefusal):
    CODE = ResponseCode.SUBSCRIPTION_PARSE_FAILED


class SubscriptionNotFound(KnownRefusal):
    CODE = ResponseCode.SUBSCRIPTION_NOT_EXIST


class SubscriptionNotLatest(KnownRefusal):
    CODE = ResponseCode.SUBSCRIPTION_NOT_LATEST


class GroupNotFound(KnownRefusal):
    CODE = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


class FilterDataNotFound(KnownRefusal):
    CODE = ResponseCode.FILTER_DATA_NOT_EXIST


class FilterDataNotLatest(KnownRefusal):
    CODE = ResponseCode.FILTER_DATA_NOT_LATEST


class InvalidParameter(KnownRefusal):
    CODE = ResponseCode.INVALID_PARAMETER


class ConsumerNotOnline(KnownRefusal):
    CODE = ResponseCode.CONSUMER_NOT_ONLINE


class ConsumeTimeout(KnownRefusal):
    CODE = ResponseCode.CONSUME_MSG_TIMEOUT


class NoMessage(KnownRefusal):
    CODE = ResponseCode.NO_MESSAGE


class PollingFull(KnownRefusal):
    CODE = ResponseCode.POLLING_FULL


class PollingTimeout(KnownRefusal):
    CODE = ResponseCode.POLLING_TIMEOUT


class FlowControl(KnownRefusal):
    CODE = ResponseCode.FLOW_CONTROL


class IllegalOperation(KnownRefusal):
    CODE = ResponseCode.ILLEGAL_OPERATION


class GoAway(KnownRefusal):
    CODE = ResponseCode.GO_AWAY


class UserNotFound(KnownRefusal):
    CODE = ResponseCode.USER_NOT_EXIST


class PolicyNotFound(KnownRefusal):
    CODE = ResponseCode.POLICY_NOT_EXIST


class Fenced(KnownRefusal):
    """A newer run of the same transactional id has taken over; this run must end and is ignored."""

    CODE = ResponseCode.LEDGER_FENCED


REFUSALS: dict[int, type[Refused]] = {int(kind.CODE): kind for kind in KnownRefusal.__subclasses__()}
"""Code to class. Other codes are a plain `Refused`."""


def refusal(code: int, remark: str | None) -> Refused:
    """Returns the exception for the code and remark of an answer."""
    kind = REFUSALS.get(code)
    if kind is not None and issubclass(kind, KnownRefusal):
        return kind(remark or "")
    return Refused(code, remark or "")


def _name(code: int) -> str:
    try:
        return f"{ResponseCode(code).name} ({code})"
    except ValueError:
        return str(code)
