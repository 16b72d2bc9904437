import json
from pathlib import Path

import pytest
from tests.unit.broker.kit import HandClock
from tests.unit.store.kit import apache_store

from turbopump.broker.config import GroupRules
from turbopump.broker.groups.groups import SubscriptionGroup, SubscriptionGroups
from turbopump.protocol.bodies import SubscriptionGroupConfig
from turbopump.protocol.errors import BrokenBody, GroupNotFound, InvalidParameter, SystemFailure
from turbopump.protocol.names import SYSTEM_GROUPS


def table(auto_create: bool = True) -> SubscriptionGroups:
    return SubscriptionGroups(GroupRules(auto_create=auto_create), HandClock())


def test_a_group_has_a_bounded_number_of_retry_queues() -> None:
    """It is the number of queues of a topic, over which tools and consumers go one by one."""
    groups = table()
    with pytest.raises(InvalidParameter, match="retryQueueNums must be at most 65536"):
        groups.update_all([SubscriptionGroupConfig(groupName="G", retryQueueNums=2_000_000_000)])
    assert groups.find("G") is None
    groups.load(b'{"subscriptionGroupTable":{"G":{"groupName":"G","retryQueueNums":2000000000}}}')
    assert groups.for_consume("G").retry_queues == 65_536


def test_the_built_in_groups_are_there() -> None:
    assert {group.name for group in table().all()} == SYSTEM_GROUPS


def test_a_consumer_creates_its_group_with_apaches_defaults() -> None:
    groups = table()
    changes: list[None] = []
    groups.on_change = lambda: changes.append(None)
    group = groups.for_consume("G")
    assert (group.consume_enable, group.retry_queues, group.retry_max_times, group.sys_flag) == (
        True,
        1,
        16,
        0,
    )
    assert group.notifies_members
    assert groups.for_consume("G") is group
    assert groups.version.counter == len(changes) == 1


@pytest.mark.parametrize(
    ("auto_create", "name"), [(False, "G"), (True, "bad group!"), (True, ""), (True, "g" * 121)]
)
def test_an_unknown_group_is_refused_when_it_may_not_be_created(auto_create: bool, name: str) -> None:
    groups = table(auto_create)
    with pytest.raises(GroupNotFound) as refused:
        groups.for_consume(name)
    assert refused.value.remark.startswith(f"subscription group [{name}] does not exist, \nSee https://")
    assert groups.version.counter == 0


def test_groups_of_the_system_are_created_all_the_same() -> None:
    assert table(auto_create=False).find_or_create("CID_RMQ_SYS_anything") is not None
    neither = SubscriptionGroups(GroupRules(auto_create=False, create_system_groups=False), HandClock())
    assert neither.find_or_create("CID_RMQ_SYS_anything") is None


def test_an_update_replaces_the_group_and_a_bad_name_replaces_none() -> None:
    groups = table()
    with pytest.raises(
        InvalidParameter, match="The specified group: bad group!, contains illegal characters"
    ):
        groups.update_all(
            [SubscriptionGroupConfig(groupName="G"), SubscriptionGroupConfig(groupName="bad group!")]
        )
    assert groups.find("G") is None
    groups.update_all([SubscriptionGroupConfig(groupName="G", consumeEnable=False, retryQueueNums=3)])
    found = groups.find("G")
    assert found is not None
    assert not found.consume_enable
    assert found.retry_queues == 3


def test_an_update_changes_the_attributes_of_a_group_and_refuses_those_that_there_are_not() -> None:
    groups = table()

    def change(**attributes: str) -> None:
        changes = {name.replace("_", "."): value for name, value in attributes.items()}
        groups.update_all([SubscriptionGroupConfig(groupName="G", attributes=changes)])

    change(**{"+priority_factor": "7"})
    change()
    found = groups.find("G")
    assert found is not None
    assert found.config.attributes == {"priority.factor": "7"}
    with pytest.raises(SystemFailure, match="unsupported key: nosuch"):
        change(**{"+nosuch": "1"})
    with pytest.raises(SystemFailure, match=r"value is not in range\(0, 100\)"):
        change(**{"+priority_factor": "101"})
    change(**{"-priority_factor": ""})
    assert groups.find("G") == SubscriptionGroup(SubscriptionGroupConfig(groupName="G"))


def test_a_deleted_group_is_gone() -> None:
    groups = table()
    groups.for_consume("G")
    assert groups.delete("G")
    assert not groups.delete("G")
    assert groups.find("G") is None


@pytest.mark.parametrize("name", ["4.9.7-clean", "5.5.0-clean"])
def test_the_file_of_an_apache_broker_is_read_and_ours_holds_the_same(name: str, tmp_path: Path) -> None:
    data = Path(apache_store(name, tmp_path), "config/subscriptionGroup.json").read_bytes()
    groups = table()
    theirs = json.loads(data)["subscriptionGroupTable"]
    assert groups.load(data) == len(theirs)
    assert set(theirs) <= {group.name for group in groups.all()}
    ours = json.loads(groups.dump())["subscriptionGroupTable"]
    for group, config in theirs.items():
        assert ours[group] | config == ours[group]
    again = table()
    again.load(groups.dump())
    assert again.all() == groups.all()
    assert again.version == groups.version


@pytest.mark.parametrize("data", [b"", b"nonsense", b'{"subscriptionGroupTable":[]}'])
def test_a_damaged_file_is_refused(data: bytes) -> None:
    with pytest.raises(BrokenBody):
        table().load(data)


def test_topics_forbidden_to_a_group_by_a_5x_broker_survive_us() -> None:
    groups = table()
    groups.load(b'{"forbiddenTable":{"G":{"T":1}},"subscriptionGroupTable":{}}')
    assert json.loads(groups.dump())["forbiddenTable"] == {"G": {"T": 1}}
