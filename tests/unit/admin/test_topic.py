"""Commands of topics, in a cluster of two brokers."""

import json

from tests.kit import virtual
from tests.unit.admin.kit import cluster, golden

from turbopump.client.message import Message, MessageQueue

BROKER_A, BROKER_B = "127.0.0.1:10911", "127.0.0.1:10921"


@virtual
async def test_a_topic_is_created_changed_and_deleted() -> None:
    async with cluster(brokers=2) as town:
        printed = [
            await town.mqadmin("updateTopic", "-c", "DefaultCluster", "-t", "orders", "-r", "2", "-w", "2"),
            await town.mqadmin("updateTopic", "-b", BROKER_A, "-t", "letters", "-a", "+message.type=FIFO"),
        ]
        await town.registered()
        printed += [
            await town.mqadmin("topicRoute", "-t", "orders"),
            await town.mqadmin("topicRoute", "-t", "orders", "-l"),
            await town.mqadmin("topicClusterList", "-t", "orders"),
            await town.mqadmin("updateTopicPerm", "-t", "orders", "-p", "4", "-b", BROKER_A),
            await town.mqadmin("updateTopicPerm", "-t", "orders", "-p", "4", "-b", BROKER_A),
            await town.mqadmin("updateTopicPerm", "-t", "orders", "-p", "6", "-c", "DefaultCluster"),
            await town.mqadmin("deleteTopic", "-t", "letters", "-c", "DefaultCluster"),
        ]
        await town.registered()
        printed.append(await town.mqadmin("topicRoute", "-t", "letters"))
        golden("topic", *printed)


@virtual
async def test_topics_in_json() -> None:
    async with cluster() as town:
        made = await town.mqadmin("updateTopic", "-b", BROKER_A, "-t", "orders", "-r1", "-w1", "--json")
        assert made.json["brokers"] == [BROKER_A]
        assert made.json["topic"]["topicName"] == "orders"
        await town.registered()
        route = (await town.mqadmin("topicRoute", "-t", "orders", "--json")).json
        assert route["brokerDatas"][0]["brokerAddrs"] == {"0": BROKER_A}
        assert "orders" in (await town.mqadmin("topicList", "--json")).json["topics"]
        of_cluster = (await town.mqadmin("topicList", "-c", "--json")).json["topicsByCluster"]
        assert {"cluster": "DefaultCluster", "topic": "orders", "consumerGroups": []} in of_cluster
        status = (await town.mqadmin("topicStatus", "-t", "orders", "--json")).json
        assert status["queues"] == [
            {
                "brokerName": "broker-a",
                "queueId": 0,
                "topic": "orders",
                "lastUpdateTimestamp": 0,
                "maxOffset": 0,
                "minOffset": 0,
            }
        ]
        assert status["topicPutTps"] == 0
        clusters = await town.mqadmin("topicClusterList", "-t", "orders", "--json")
        assert clusters.json == {"clusters": ["DefaultCluster"]}
        perm = ("updateTopicPerm", "-t", "orders", "-p", "4", "-c", "DefaultCluster", "--json")
        changed = (await town.mqadmin(*perm)).json
        assert changed == {"topic": "orders", "changes": [{"broker": BROKER_A, "from": 6, "to": 4}]}
        gone = await town.mqadmin("deleteTopic", "-t", "orders", "-c", "DefaultCluster", "--json")
        assert gone.json == {"topic": "orders", "brokers": [BROKER_A], "nameServers": ["127.0.0.1:9876"]}


@virtual
async def test_the_status_of_a_topic_shows_the_ends_of_its_queues() -> None:
    async with cluster(brokers=2) as town:
        await town.create_topic("orders", queues=2)
        await town.create_topic("orders", queues=1, broker=1)
        for _ in range(3):
            await town.producer.send_to(MessageQueue("orders", "broker-a", 1), Message("orders", b"hello"))
        golden(
            "topic_status",
            await town.mqadmin("topicStatus", "-t", "orders"),
            await town.mqadmin("topicStatus", "-t", "orders", "-c", "DefaultCluster"),
            await town.mqadmin("topicStatus", "-t", "nowhere"),
        )


@virtual
async def test_the_list_of_topics() -> None:
    async with cluster() as town:
        await town.create_topic("orders")
        plain = await town.mqadmin("topicList")
        assert "orders" in plain.lines
        assert plain.lines == sorted(plain.lines)
        with_clusters = await town.mqadmin("topicList", "-c")
        assert with_clusters.lines[0] == f"{'#Cluster Name':<20}  {'#Topic':<48}  {'#Consumer Group':<48}"
        assert f"{'DefaultCluster':<20}  {'orders':<64}  {'':<64}" in with_clusters.lines


@virtual
async def test_changing_the_permission_leaves_the_queues_of_each_broker_alone() -> None:
    async with cluster(brokers=2) as town:
        await town.create_topic("orders", queues=2)
        await town.create_topic("orders", queues=5, broker=1)
        await town.mqadmin("updateTopicPerm", "-t", "orders", "-p", "4", "-c", "DefaultCluster")
        for address, queues in ((BROKER_A, 2), (BROKER_B, 5)):
            config = await town.admin.topics.config(address, "orders")
            assert (config.perm, config.readQueueNums, config.writeQueueNums) == (4, queues, queues)


@virtual
async def test_the_permission_changes_only_at_a_master_that_has_the_topic() -> None:
    async with cluster(brokers=2) as town:
        await town.create_topic("orders")
        refused = await town.mqadmin("updateTopicPerm", "-t", "orders", "-p", "4", "-b", BROKER_B)
        assert refused.status == 1
        assert refused.err == f"{BROKER_B}: not the master of a broker that has topic orders"


@virtual
async def test_a_permission_that_is_none_is_refused_before_anyone_is_asked() -> None:
    async with cluster() as town:
        await town.create_topic("orders")
        asked = [
            await town.mqadmin("updateTopic", "-b", BROKER_A, "-t", "letters", "-p", "9"),
            await town.mqadmin("updateTopicPerm", "-b", BROKER_A, "-t", "orders", "-p", "-1"),
        ]
        assert [one.status for one in asked] == [1, 1]
        assert [one.out for one in asked] == ["", ""]
        assert "topicPermission value: 9 is invalid." in asked[0].err
        town.disk.write("/topics.json", b'[{"topicName":"letters","perm":9}]', sync=False)
        of_file = await town.mqadmin("updateTopicList", "-b", BROKER_A, "-f", "/topics.json")
        assert of_file.status == 1
        await town.registered()
        assert "letters" not in (await town.mqadmin("topicList", "--json")).json["topics"]


@virtual
async def test_order_topics() -> None:
    async with cluster(brokers=2) as town:
        order = ("updateOrderConf", "-t", "steps", "-m")
        golden(
            "order",
            await town.mqadmin("updateTopic", "-c", "DefaultCluster", "-t", "steps", "-w", "2", "-o", "true"),
            await town.mqadmin(*order, "get"),
            await town.mqadmin("updateTopic", "-b", BROKER_B, "-t", "steps", "-w", "4", "-o", "true"),
            await town.mqadmin(*order, "get"),
            await town.mqadmin(*order, "put", "-v", "broker-a:3"),
            await town.mqadmin(*order, "get", "--json"),
            await town.mqadmin(*order, "delete"),
            await town.mqadmin(*order, "get"),
            await town.mqadmin(*order, "put"),
            await town.mqadmin(*order, "steal"),
        )


@virtual
async def test_topics_from_a_file() -> None:
    async with cluster(brokers=2) as town:
        town.disk.write("/topics.json", b'[{"topicName":"a","readQueueNums":3},{"topicName":"b"}]')
        done = await town.mqadmin("updateTopicList", "-c", "DefaultCluster", "-f", "/topics.json")
        assert done.lines == [
            f"submit batch of topic config to {address} success, please check the result later."
            for address in (BROKER_A, BROKER_B)
        ]
        assert (await town.admin.topics.config(BROKER_B, "a")).readQueueNums == 3
        again = await town.mqadmin("updateTopicList", "-b", BROKER_A, "-f", "/topics.json", "--json")
        assert again.json == {"topics": ["a", "b"], "brokers": [BROKER_A]}
        town.disk.write("/topics.json", b"[]")
        empty = await town.mqadmin("updateTopicList", "-b", BROKER_A, "-f", "/topics.json")
        assert (empty.status, empty.err) == (1, "/topics.json: the list must not be empty")
        town.disk.write("/topics.json", b"{")
        broken = await town.mqadmin("updateTopicList", "-b", BROKER_A, "-f", "/topics.json")
        assert broken.status == 1
        assert broken.err.startswith("/topics.json: ")
        absent = await town.mqadmin("updateTopicList", "-b", BROKER_A, "-f", "/none.json")
        assert absent.status == 1
        assert absent.err.startswith("/none.json: ")


@virtual
async def test_groups_from_a_file() -> None:
    async with cluster(brokers=2) as town:
        town.disk.write("/groups.json", b'[{"groupName":"a","retryMaxTimes":3},{"groupName":"b"}]')
        words = ("updateSubGroupList", "-f", "/groups.json")
        done = await town.mqadmin(*words, "-c", "DefaultCluster")
        assert done.lines == [
            f"submit batch of subscription group config to {address} success, please check the result later."
            for address in (BROKER_A, BROKER_B)
        ]
        assert (await town.admin.groups.configs(BROKER_B))["a"].retryMaxTimes == 3
        one = await town.mqadmin(*words, "-b", BROKER_A)
        assert one.out.startswith(f"submit batch of group config to {BROKER_A} success")
        again = await town.mqadmin(*words, "-b", BROKER_A, "--json")
        assert again.json == {"groups": ["a", "b"], "brokers": [BROKER_A]}


@virtual
async def test_queues_are_divided_as_a_consumer_group_would() -> None:
    async with cluster() as town:
        await town.create_topic("orders", queues=3)
        printed = await town.mqadmin("allocateMQ", "-t", "orders", "-i", "1.1.1.1,2.2.2.2")
        result = json.loads(printed.out)["result"]
        assert [queue["queueId"] for queue in result["1.1.1.1"]] == [0, 1]
        assert result["2.2.2.2"] == [{"brokerName": "broker-a", "queueId": 2, "topic": "orders"}]
        in_json = await town.mqadmin("allocateMQ", "-t", "orders", "-i", "1.1.1.1,2.2.2.2", "--json")
        assert in_json.json["result"] == result


@virtual
async def test_a_cluster_that_is_not_there_is_a_failure() -> None:
    async with cluster() as town:
        for command in ("updateTopic", "deleteTopic"):
            missed = await town.mqadmin(command, "-c", "Nowhere", "-t", "orders")
            assert (missed.status, missed.err) == (1, "there is no cluster Nowhere")
        both = await town.mqadmin("updateTopic", "-c", "C", "-b", BROKER_A, "-t", "orders")
        assert both.status == 2
        assert both.err.startswith("only one of -b or -c can be given; ")
