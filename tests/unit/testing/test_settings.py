"""Settings of an embedded cluster are checked when it is created."""

import doctest
from typing import Any

import pytest

from turbopump.testing import AsyncCluster, Cluster, settings


def test_the_examples_of_the_module_are_true() -> None:
    assert doctest.testmod(settings).failed == 0


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"settings": {"messageDelayLevl": "1s"}}, "did you mean messageDelayLevel"),
        ({"settings": {"messageDelayLevel": "soon"}}, "messageDelayLevel: must be times such as"),
        ({"settings": {"autoCreateTopicEnable": None}}, "must be text, a number or True or False"),
        ({"settings": {"useTLS": "true"}}, "has no effect here"),
        ({"settings": {"brokerName": "x"}}, "is set by the cluster"),
        ({"brokers": 0}, "brokers must be a whole number from 1 to 26"),
        ({"brokers": "2"}, "brokers must be a whole number"),
        ({"clock": "fake"}, "clock must be 'real' or 'virtual'"),
    ],
)
@pytest.mark.parametrize("kind", [Cluster, AsyncCluster])
def test_what_a_cluster_cannot_be_is_said_when_it_is_made(
    kind: type[Any], given: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        kind(**given)


def test_numbers_and_truth_values_may_be_given_as_such() -> None:
    given: dict[str, Any] = {"defaultTopicQueueNums": 3, "autoCreateTopicEnable": True}
    with Cluster(clock="virtual", settings=given) as cluster:
        assert cluster.brokers == ("broker-a",)
