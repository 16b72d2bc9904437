"""Topics, as brokers store them and register them with name servers."""

from typing import Annotated, Any

from turbopump.protocol.bodies.base import Body, always, empty_list, empty_map, new
from turbopump.protocol.bodies.lenient import java_enum
from turbopump.protocol.headers.base import I32, I64

TopicFilterType = Annotated[str, java_enum("SINGLE_TAG", "MULTI_TAG")]


class DataVersion(Body):
    counter: I64 = always(0)
    stateVersion: I64 = always(0)
    timestamp: I64 = always(0)


class TopicConfig(Body):
    attributes: dict[str, str] | None = None
    order: bool = always(False)
    perm: I32 = always(6)
    readQueueNums: I32 = always(16)
    topicFilterType: TopicFilterType = always("SINGLE_TAG")
    topicName: str = always("")
    topicSysFlag: I32 = always(0)
    writeQueueNums: I32 = always(16)


class TopicConfigSerializeWrapper(Body):
    dataVersion: DataVersion = new(DataVersion)
    mappingDataVersion: DataVersion | None = None
    topicConfigTable: dict[str, TopicConfig] = empty_map()
    topicQueueMappingDetailMap: dict[str, Any] | None = None
    topicQueueMappingInfoMap: dict[str, Any] | None = None


class TopicConfigAndMappingSerializeWrapper(TopicConfigSerializeWrapper):
    """Answer of 5.x to code 21: the mappings of static topics are present even when empty."""

    dataVersion: DataVersion = new(DataVersion)
    mappingDataVersion: DataVersion | None = new(DataVersion)
    topicConfigTable: dict[str, TopicConfig] = empty_map()
    topicQueueMappingDetailMap: dict[str, Any] | None = empty_map()
    topicQueueMappingInfoMap: dict[str, Any] | None = empty_map()


class CreateTopicListRequestBody(Body):
    topicConfigList: list[TopicConfig] = empty_list()
