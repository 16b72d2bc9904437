"""Commands of name servers."""

from tests.kit import virtual
from tests.unit.admin.kit import NAMESRV, cluster, golden


@virtual
async def test_values_and_settings_are_changed() -> None:
    async with cluster() as town:
        golden(
            "namesrv",
            await town.mqadmin("updateKvConfig", "-s", "house", "-k", "door", "-v", "open"),
            await town.mqadmin("updateKvConfig", "-s", "house", "-k", "door", "-v", "shut", "--json"),
            await town.mqadmin("deleteKvConfig", "-s", "house", "-k", "door"),
            await town.mqadmin("deleteKvConfig", "-s", "house", "-k", "door", "--json"),
            await town.mqadmin("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "true"),
            await town.mqadmin("updateNamesrvConfig", "-k", "enableTopicList", "-v", "true", "--json"),
            await town.mqadmin("updateNamesrvConfig", "-k", "kvConfigPath", "-v", "/etc/passwd"),
        )
        assert await town.admin.name_servers.value("house", "door") is None


@virtual
async def test_a_value_reaches_the_name_server() -> None:
    async with cluster() as town:
        await town.mqadmin("updateKvConfig", "-s", "house", "-k", "door", "-v", "open")
        assert await town.admin.name_servers.value("house", "door") == "open"


@virtual
async def test_settings_are_shown() -> None:
    async with cluster() as town:
        await town.mqadmin("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "true")
        shown = await town.mqadmin("getNamesrvConfig")
        assert shown.lines[0] == f"============{NAMESRV}============"
        assert f"{'orderMessageEnable':<50}=  true" in shown.lines
        (server,) = (await town.mqadmin("getNamesrvConfig", "--json")).json["nameServers"]
        assert server["nameServer"] == NAMESRV
        assert server["config"]["orderMessageEnable"] == "true"


@virtual
async def test_a_broker_loses_its_write_permission_and_gets_it_again() -> None:
    async with cluster() as town:
        await town.create_topic("orders")
        wiped = await town.mqadmin("wipeWritePerm", "-b", "broker-a")
        topics = len(await town.admin.topics.names())
        said = f"wipe write perm of broker[broker-a] in name server[{NAMESRV}] OK, {topics}"
        assert wiped.lines == [said]
        assert (await town.admin.topics.route("orders")).queueDatas[0].perm == 4
        added = await town.mqadmin("addWritePerm", "-b", "broker-a", "--json")
        assert added.json == {
            "brokerName": "broker-a",
            "nameServers": [{"nameServer": NAMESRV, "topicCount": topics}],
        }
        assert (await town.admin.topics.route("orders")).queueDatas[0].perm == 6


@virtual
async def test_one_name_server_that_fails_does_not_hide_the_others() -> None:
    async with cluster() as town:
        both = f"127.0.0.1:1;{NAMESRV}"
        printed = await town.mqadmin("wipeWritePerm", "-b", "broker-a", "-n", both)
        assert printed.status == 1
        assert printed.lines[0] == "wipe write perm of broker[broker-a] in name server[127.0.0.1:1] Failed"
        assert printed.lines[1].startswith(
            f"wipe write perm of broker[broker-a] in name server[{NAMESRV}] OK, "
        )
        assert printed.err.endswith("not every name server was changed")
