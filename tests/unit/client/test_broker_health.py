import pytest

from turbopump.client.errors import InvalidArgument
from turbopump.client.message import MessageQueue
from turbopump.client.produce.broker_health import BrokerHealth, HealthyQueueSelector, broker_health
from turbopump.client.routes import RoundRobin
from turbopump.client.settings import ProducerSettings, made
from turbopump.runtime.chance import Chance

DEFAULTS = ProducerSettings()
QUEUES = tuple(MessageQueue("t", broker, number) for broker in "abc" for number in range(2))


def health() -> BrokerHealth:
    return BrokerHealth(DEFAULTS.latency_max, DEFAULTS.not_available_duration)


def test_the_table_of_pauses_is_apaches() -> None:
    table = health()
    expected = [
        (0.0, 0.0), (0.049, 0.0), (0.05, 0.0), (0.549, 0.0), (0.55, 2.0), (1.799, 2.0), (1.8, 5.0),
        (3.0, 6.0), (4.999, 6.0), (5.0, 10.0), (10.0, 10.0), (14.999, 10.0), (15.0, 30.0), (100.0, 30.0),
    ]  # fmt: skip
    assert [table.pause_for(latency_s) for latency_s, _ in expected] == [pause for _, pause in expected]


def test_the_table_of_4_x_is_one_setting() -> None:
    table = broker_health(made(ProducerSettings, {"latency_table": "4.x"}))
    expected = [
        (0.549, 0.0), (0.55, 30.0), (0.999, 30.0), (1.0, 60.0), (2.0, 120.0), (3.0, 180.0), (14.999, 180.0),
        (15.0, 600.0),
    ]  # fmt: skip
    assert [table.pause_for(latency_s) for latency_s, _ in expected] == [pause for _, pause in expected]
    table.record("a", 0.001, now=100.0, failed=True)
    assert not table.is_available("a", 699.9)
    assert table.is_available("a", 700.0)


def test_without_it_the_steps_are_those_that_are_set() -> None:
    steps = {"latency_max": (1.0,), "not_available_duration": (7.0,), "start_detector_enable": True}
    table = broker_health(made(ProducerSettings, steps))
    assert (table.pause_for(0.999), table.pause_for(1.0), table.is_probed) == (0.0, 7.0, True)
    assert broker_health(DEFAULTS) == health()


def test_steps_of_ones_own_and_the_table_of_4_x_do_not_mix() -> None:
    with pytest.raises(InvalidArgument, match="latency_table must not be set together with"):
        broker_health(made(ProducerSettings, {"latency_table": "4.x", "latency_max": (1.0,)}))


def test_a_failure_counts_as_ten_seconds() -> None:
    table = health()
    table.record("a", 0.001, now=100.0, failed=True)
    assert not table.is_available("a", 109.999)
    assert table.is_available("a", 110.0)


def test_a_new_pause_never_shortens_the_one_that_runs() -> None:
    table = health()
    table.record("a", 5.0, now=100.0)
    table.record("a", 0.6, now=101.0)
    assert not table.is_available("a", 109.0)
    table.record("a", 0.001, now=101.0)
    assert not table.is_available("a", 109.0)
    table.record("a", 5.0, now=105.0)
    assert not table.is_available("a", 114.0)


def test_a_success_makes_a_broker_reachable_again() -> None:
    table = health()
    table.record("a", 0.001, now=0.0, failed=True, reachable=False)
    assert not table.is_reachable("a")
    table.record("a", 0.001, now=1.0)
    assert table.is_reachable("a")
    assert table.is_reachable("never seen")


def test_available_brokers_come_first_then_reachable_ones_then_all() -> None:
    table = health()
    now = 0.0
    choice = HealthyQueueSelector(table, RoundRobin(Chance(1)), lambda: now)

    def chosen(avoid: str | None = None) -> set[str]:
        return {choice.choose(QUEUES, avoid).broker for _ in range(12)}

    assert chosen() == {"a", "b", "c"}
    table.record("a", 0.0, now, failed=True)
    assert chosen() == {"b", "c"}
    assert chosen(avoid="b") == {"c"}
    table.record("b", 0.0, now, failed=True, reachable=False)
    table.record("c", 0.0, now, failed=True)
    assert chosen() == {"a", "c"}
    assert chosen(avoid="c") == {"a"}
    table.record("a", 0.0, now, failed=True, reachable=False)
    table.record("c", 0.0, now, failed=True, reachable=False)
    assert chosen() == {"a", "b", "c"}
    assert chosen(avoid="a") == {"b", "c"}
    now = 10.0
    assert chosen() == {"a", "b", "c"}
