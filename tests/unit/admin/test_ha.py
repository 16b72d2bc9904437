"""haStatus, as Apache's mqadmin 5.5.0 prints it."""

from tests.kit import virtual
from tests.unit.admin.kit import cluster

from turbopump.admin.ha import lines_of
from turbopump.protocol.bodies import HAClientRuntimeInfo, HAConnectionInfo, HARuntimeInfo

BROKER = "127.0.0.1:10911"


@virtual
async def test_a_master_without_slaves() -> None:
    async with cluster() as town:
        printed = await town.mqadmin("haStatus", "-b", BROKER)
        assert printed.status == 0
        assert printed.lines[1] == f"#MasterAddr\t{BROKER}"
        assert printed.lines[3:5] == ["#SlaveNum\t0", "#InSyncSlaveNum\t0"]
        by_cluster = await town.mqadmin("haStatus", "-c", "DefaultCluster")
        assert by_cluster.lines == printed.lines
        (found,) = (await town.mqadmin("getBrokerHAStatus", "-b", BROKER, "--json")).json["brokers"]
        assert found["address"] == BROKER
        assert found["status"]["master"] is True
        assert (await town.mqadmin("haStatus")).status == 2


def test_the_slaves_of_a_master() -> None:
    slaves = [
        HAConnectionInfo("10.0.0.6:4711", 0, True, 900, 900, 2048),
        HAConnectionInfo("10.0.0.7:4712", 800, False, 100, 400, 0),
    ]
    status = HARuntimeInfo(haConnectionInfo=slaves, inSyncSlaveNums=1, masterCommitLogMaxOffset=900)
    assert list(lines_of("10.0.0.5:10911", status)) == [
        "",
        "#MasterAddr\t10.0.0.5:10911",
        "#MasterCommitLogMaxOffset\t900",
        "#SlaveNum\t2",
        "#InSyncSlaveNum\t1",
        "#SlaveAddr                        #SlaveAckOffset             #Diff #TransferSpeed(KB/s)"
        "          #Status #TransferFromWhere",
        "10.0.0.6:4711                     900                             0             2.00"
        "               OK              900",
        "10.0.0.7:4712                     100                           800             0.00"
        "      Fall Behind              400",
    ]


def test_a_slave_shows_its_master() -> None:
    client = HAClientRuntimeInfo(0, 0, "10.0.0.5:10912", 5, 900, 1024)
    status = HARuntimeInfo(haClientRuntimeInfo=client, master=False)
    lines = list(lines_of("10.0.0.6:10911", status))
    assert lines[1:4] == [
        "#MasterAddr\t10.0.0.5:10912",
        "#CommitLogMaxOffset\t900",
        "#TransferSpeed(KB/s)\t1.00",
    ]
    assert [line.partition("\t")[0] for line in lines[4:]] == [
        "#LastReadTime",
        "#LastWriteTime",
        "#MasterFlushOffset",
    ]
    assert lines[-1] == "#MasterFlushOffset\t5"
