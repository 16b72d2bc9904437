"""Commands of Apache's mqadmin that are not supported, and the features they need.

`UNSUPPORTED` has the line to print for each, by the command's name in lower case.
"""

NEEDS: dict[str, tuple[str, ...]] = {
    "a controller": (
        *("getBrokerEpoch", "resetMasterFlushOffset"),
        *("getSyncStateSet", "getControllerMetaData", "getControllerConfig", "updateControllerConfig"),
        *("electMaster", "cleanBrokerMetadata"),
    ),
    "a broker container": ("addBroker", "removeBroker"),
    "static topics": ("updateStaticTopic", "remappingStaticTopic"),
    "pop consumption": ("setConsumeMode", "exportPopRecord"),
    "lite topics": (
        *("getBrokerLiteInfo", "getParentTopicInfo", "getLiteTopicInfo", "getLiteClientInfo"),
        *("getLiteGroupInfo", "triggerLiteDispatch"),
    ),
    "compaction topics": ("dumpCompactionLog",),
    "RocksDB": (
        *("rocksDBConfigToJson", "exportMetadataInRocksDB", "checkRocksdbCqWriteProgress"),
        "switchTimerEngine",
    ),
    "control of cold reads": (
        *("getColdDataFlowCtrInfo", "updateColdDataFlowCtrGroupConfig"),
        *("removeColdDataFlowCtrGroupConfig", "setCommitLogReadAheadMode"),
    ),
}

UNSUPPORTED: dict[str, str] = {
    name.lower(): f"{name} is not supported: it needs {need}, which Turbopump does not have"
    for need, commands in NEEDS.items()
    for name in commands
}
