"""Bodies about consumer groups (subscription groups): their configuration and retry policies."""

from typing import Annotated

from turbopump.protocol.bodies.base import Body, always, empty_list, empty_map, new
from turbopump.protocol.bodies.lenient import java_enum
from turbopump.protocol.bodies.topics import DataVersion
from turbopump.protocol.headers.base import I32, I64


class CustomizedRetryPolicy(Body):
    next: list[I64] = empty_list()


class ExponentialRetryPolicy(Body):
    initial: I64 = always(5000)
    max: I64 = always(7200000)
    multiplier: I64 = always(2)


class GroupRetryPolicy(Body):
    customizedRetryPolicy: CustomizedRetryPolicy | None = None
    exponentialRetryPolicy: ExponentialRetryPolicy | None = None
    type: Annotated[str, java_enum("EXPONENTIAL", "CUSTOMIZED")] = always("CUSTOMIZED")


class SimpleSubscriptionData(Body):
    expression: str | None = None
    expressionType: str | None = None
    topic: str | None = None
    version: I64 = always(0)


class SubscriptionGroupConfig(Body):
    attributes: dict[str, str] = empty_map()
    brokerId: I64 = always(0)
    consumeBroadcastEnable: bool = always(True)
    consumeEnable: bool = always(True)
    consumeFromMinEnable: bool = always(True)
    consumeMessageOrderly: bool = always(False)
    consumeTimeoutMinute: I32 = always(15)
    groupName: str = always("")
    groupRetryPolicy: GroupRetryPolicy = new(GroupRetryPolicy)
    groupSysFlag: I32 = always(0)
    notifyConsumerIdsChangedEnable: bool = always(True)
    retryMaxTimes: I32 = always(16)
    retryQueueNums: I32 = always(1)
    subscriptionDataSet: list[SimpleSubscriptionData] | None = None
    whichBrokerWhenConsumeSlowly: I64 = always(1)


class SubscriptionGroupWrapper(Body):
    dataVersion: DataVersion = new(DataVersion)
    forbiddenTable: dict[str, dict[str, I32]] | None = None
    subscriptionGroupTable: dict[str, SubscriptionGroupConfig] = empty_map()


class CreateSubscriptionGroupListRequestBody(Body):
    groupConfigList: list[SubscriptionGroupConfig] = empty_list()


class GroupForbidden(Body):
    group: str | None = None
    readable: bool | None = None
    topic: str | None = None
