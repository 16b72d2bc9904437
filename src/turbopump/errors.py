"""Re-exports the exceptions that clients raise: `ClientError`, `Refused`, `NotFound` and subclasses.

- `ClientError`: raised by the client itself, with a text that says what to do. `InvalidArgument` is a
  ValueError, `NotRunning` a RuntimeError, `Unreachable` and `NoNameServer` are ConnectionErrors; `SendFailed`
  is an OSError with every attempt in `.tries`, `SendTimedOut` and `RequestTimedOut` are TimeoutErrors.
- `Refused`: a server refused a request. `.code` is Apache's number, `.remark` its text; many codes have a
  class.
- `NotFound`: `Admin` did not find what was asked for by name.
"""

from turbopump.client.admin import NotFound
from turbopump.client.errors import (
    BrokenBody,
    ClientError,
    EventLoopBlocked,
    InsideEventLoop,
    InvalidArgument,
    NoNameServer,
    NotPrepared,
    NotRunning,
    RequestTimedOut,
    SendFailed,
    SendRefused,
    SendTimedOut,
    TopicUnknown,
    Try,
    Unreachable,
    UnreadableMessage,
)
from turbopump.client.group.consume_status import RetryLater
from turbopump.protocol.errors import (
    AccessRefused,
    ConsumerNotOnline,
    FlowControl,
    GroupNotFound,
    IllegalOperation,
    MessageIllegal,
    NoPermission,
    Refused,
    RequestNotSupported,
    ServiceNotAvailable,
    SubscriptionNotFound,
    SystemBusy,
    SystemFailure,
    TopicNotFound,
)

__all__ = [
    "AccessRefused",
    "BrokenBody",
    "ClientError",
    "ConsumerNotOnline",
    "EventLoopBlocked",
    "FlowControl",
    "GroupNotFound",
    "IllegalOperation",
    "InsideEventLoop",
    "InvalidArgument",
    "MessageIllegal",
    "NoNameServer",
    "NoPermission",
    "NotFound",
    "NotPrepared",
    "NotRunning",
    "Refused",
    "RequestNotSupported",
    "RequestTimedOut",
    "RetryLater",
    "SendFailed",
    "SendRefused",
    "SendTimedOut",
    "ServiceNotAvailable",
    "SubscriptionNotFound",
    "SystemBusy",
    "SystemFailure",
    "TopicNotFound",
    "TopicUnknown",
    "Try",
    "Unreachable",
    "UnreadableMessage",
]
