"""Diagnoses of `turbopump doctor`; its queries are tested in tests/integration/cli."""

import pytest

from turbopump.cli import doctor
from turbopump.cli.doctor import FAIL, OK, WARN, Diagnosis, KnownBroker
from turbopump.client.message import MessageQueue
from turbopump.client.routes import TopicRoute

NOW_MS = 1_700_000_000_000
WELL = {
    "brokerVersionDesc": "V5_5_0",
    "bootTimestamp": str(NOW_MS - 90_000_000),
    "runtime": "[ 1 days, 1 hours, 0 minutes, 0 seconds. ]",
    "commitLogDiskRatio": "0.5",
}
QUEUE = MessageQueue("t", "a", 0)


def levels(found: list[Diagnosis]) -> list[str]:
    return [one.level for one in found]


def test_a_broker_that_is_well() -> None:
    assert levels(doctor.judge_broker("broker", WELL, NOW_MS)) == [OK]


@pytest.mark.parametrize(
    ("figures", "level", "told"),
    [
        ({"commitLogDiskRatio": "0.8"}, WARN, "80% full"),
        ({"commitLogDiskRatio": "0.95"}, FAIL, "95% full"),
        ({"storeTrouble": "no room"}, FAIL, "accepts no messages: no room"),
        ({"runtime": "[ 1 days, 1 hours, 1 minutes, 0 seconds. ]"}, WARN, "by +60 s"),
        ({"runtime": "[ 1 days, 0 hours, 59 minutes, 0 seconds. ]"}, WARN, "by -60 s"),
    ],
)
def test_what_a_brokers_figures_say(figures: dict[str, str], level: str, told: str) -> None:
    first, second = doctor.judge_broker("broker", WELL | figures, NOW_MS)
    assert (first.level, second.level) == (OK, level)
    assert told in second.text


@pytest.mark.parametrize("figures", [{}, {"runtime": "unknown"}, {"commitLogDiskRatio": "x"}])
def test_figures_that_are_missing_are_no_failure(figures: dict[str, str]) -> None:
    assert FAIL not in levels(doctor.judge_broker("broker", figures, NOW_MS))


def test_a_loopback_address_is_right_on_one_machine_only() -> None:
    assert doctor.judge_address("broker", "127.0.0.1:10911", ["localhost:9876"]) == []
    assert doctor.judge_address("broker", "10.0.0.5:10911", ["10.0.0.5:9876"]) == []
    (found,) = doctor.judge_address("broker", "127.0.0.1:10911", ["10.0.0.5:9876"])
    assert found.level == FAIL
    assert "brokerIP1" in found.advice


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("172.17.0.2:10911", "container network"),
        ("10.0.0.5:10911", "private address"),
        ("8.8.8.8:10911", "public address"),
        ("broker:10911", "is a name"),
    ],
)
def test_an_address_that_cannot_be_reached_says_where_it_comes_from(address: str, kind: str) -> None:
    found = doctor.unreachable("broker", address, "timed out")
    assert found.level == FAIL
    assert kind in found.advice
    assert "TURBOPUMP_BROKER_IP1" in found.advice


def test_name_servers_must_know_the_same_brokers() -> None:
    a, b = KnownBroker("a", 0, "10.0.0.1:10911"), KnownBroker("b", 0, "10.0.0.2:10911")
    assert list(doctor.judge_name_servers({"x:9876": {a, b}, "y:9876": {a, b}})) == []
    (missing,) = doctor.judge_name_servers({"x:9876": {a, b}, "y:9876": {a}})
    assert (missing.level, missing.subject) == (WARN, "name server y:9876")
    (nothing,) = doctor.judge_name_servers({"x:9876": set()})
    assert nothing.level == FAIL


def test_the_route_of_a_topic() -> None:
    assert doctor.judge_route("t", TopicRoute((QUEUE,), (QUEUE,), {})).level == OK
    assert doctor.judge_route("t", TopicRoute((), (QUEUE,), {})).level == WARN
    assert doctor.judge_route("t", None).level == WARN


def test_where_the_address_is_from() -> None:
    assert "by --namesrv" in doctor.where_from("x", {"NAMESRV_ADDR": "y"}, ["x"]).text
    assert "by NAMESRV_ADDR" in doctor.where_from(None, {"NAMESRV_ADDR": "y"}, ["y"]).text
    assert "by the default" in doctor.where_from(None, {}, ["z"]).text


def test_the_last_line_counts() -> None:
    assert doctor.summary([Diagnosis(OK, "a", "b")]) == "no problems found"
    assert doctor.summary([Diagnosis(FAIL, "a", "b"), Diagnosis(WARN, "a", "b")]) == "1 FAIL, 1 WARN"
